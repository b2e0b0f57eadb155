/// Calls of this node's workers whose results other processes can name. When such a worker has
/// ended and a result is lost, another process of its job takes the call over and runs it again
/// (see client/lineage.hpp). A plain state machine beside ReferenceTable.
///
/// A kept call should not keep its arguments' memory. An argument that a task of the same worker
/// made is therefore named by the kept call of that task. Any other argument is held, and its
/// bytes count towards the limit. Beyond the limit the oldest calls are evicted.
///
///     kept.keep(from, job, call, payload);  // a KeptCall, after those that made its arguments
///     kept.made(from, made_by);             // an object that may have to be computed again
///     kept.orphaned(object, lost);          // the ReferenceTable says so: → out.find_process(job)
///     kept.serve(job, process);             // → KeptCall, MadeBy and Rebuild to that process
///     kept.carry_out();                     // again while pending(), and references.settle()
///
/// Invariants: KEPT-1 bytes() counts the kept calls and the arguments held for them. KEPT-2 A call
/// is known as long as a process may name it, an object that it made has a record, or a known call
/// needs it. KEPT-3 A process that takes a call over has got, before it, every needed call whose
/// result is gone. KEPT-4 Each orphan is rebuilt by a process, or ended by ReferenceTable::gone().
#pragma once

#include "troupe/runtime/agent/reference_table.hpp"
#include "troupe/runtime/base/units.hpp"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace troupe::agent {

class LineageCache {
 public:
  /// The effects. An implementation must not call into LineageCache.
  class Out {
   public:
    virtual ~Out() = default;
    /// A process of the job that lives and will live for a while. With nullopt, serve() follows
    /// when there is such a process, or job_over().
    virtual std::optional<ProcessIndex> find_process(JobNumber job) = 0;
    virtual void send(ProcessIndex to, const wire::NodeMessage& message, BlobView payload) = 0;
  };

  LineageCache(ReferenceTable& references, Out& out, Bytes limit)
      : references_(references), out_(out), limit_(limit.count) {}

  void keep(ProcessIndex from, JobNumber job, const wire::KeptCall& call, BlobView payload);
  void made(ProcessIndex from, const wire::MadeBy& message);
  /// The process can name the call no more.
  void forget(ProcessIndex from, std::uint64_t number);
  /// Precondition: all messages of the process have been read, and the ReferenceTable knows of its
  /// death.
  void process_died(ProcessIndex process);
  /// Ends all calls and orphans of the job.
  void job_over(JobNumber job, const std::string& why);
  /// Gives this process the orphans of the job that wait for one.
  void serve(JobNumber job, ProcessIndex process);

  // --- from the ReferenceTable; both take effect with carry_out()
  void orphaned(ObjectId object, ObjectId lost) { orphans_.push_back({object, lost}); }
  void released(ObjectId object) { released_.push_back(object); }
  void carry_out();
  bool pending() const noexcept { return !orphans_.empty() || !released_.empty(); }

  std::size_t bytes() const noexcept { return bytes_; }
  std::size_t size() const noexcept { return calls_.size(); }

 private:
  struct Made {
    ObjectId object;
    std::uint32_t index = 0;  ///< of the result in its call
  };
  struct Call {
    wire::KeptCall message;
    Blob payload;
    JobNumber job;
    std::vector<ProcessIndex> known_to;  ///< processes that can run it, or name it for an argument
    std::vector<Made> made;              ///< objects that have records, the newest last
    std::size_t uses = 0;                ///< calls that need its results
    std::string ended;                   ///< why it cannot run any more; empty if it can
    std::size_t bytes = 0;
    std::uint64_t age = 0;
    bool visited = false;
  };
  struct Orphan {
    ObjectId object, lost;
  };
  using Calls = std::map<std::uint64_t, Call>;

  static bool is_known_to(const Call& call, ProcessIndex process);
  Call* call_of(ObjectId object);
  static const Made* newest(const Call& call, std::uint64_t index);
  void look_after(const Orphan& orphan, std::optional<ProcessIndex> process = {});
  void entrust(const Orphan& orphan, ProcessIndex process);
  void give_up(const Orphan& orphan, const std::string& why);
  Result<void> gather(std::uint64_t wanted, std::vector<std::uint64_t>& order);
  void hand_over(Call& call, ProcessIndex to);
  void end(Call& call, const std::string& why);
  void let_go_of_inputs(Call& call, std::vector<std::uint64_t>& unused);
  void drop_unused(std::uint64_t number);

  ReferenceTable& references_;
  Out& out_;
  std::uint64_t limit_;
  std::size_t bytes_ = 0;
  Calls calls_;                                  ///< by number
  std::map<std::uint64_t, std::uint64_t> ages_;  ///< age → number of the calls that can run
  std::map<ObjectId, std::uint64_t> objects_;    ///< object → number of the call that made it
  std::uint64_t next_age_ = 0;
  std::map<JobNumber, std::vector<Orphan>> waiting_;  ///< orphans that wait for a process
  std::vector<Orphan> orphans_;
  std::vector<ObjectId> released_;
};

}  // namespace troupe::agent
