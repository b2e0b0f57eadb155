/// Memory of the object store for processes and transfers, and objects on the node's own disk:
/// requests to the spiller until they have their answer, and the quotas of jobs.
///
///     extents.need(asker, message, now);             // → GiveExtent
///     extents.where_is(process, message, now);       // → NowAt
///     if (extents.restores_first(node, message, now)) …;   // the pull goes on when it can
///     extents.serve(now);                            // each pass; sooner at next_deadline()
///     extents.tell();                                // each pass, after the store's notices
///
/// Invariants: EXTENT-1 Each request is answered once: with memory, with a place, with an error, or
/// by the word to ask again. A process that has ended gets no answer. EXTENT-2 At most one request
/// for transfers is open. EXTENT-3 A process of a job at its quota asks again every 10 ms. It gets
/// out_of_memory when nothing of the job was freed for the spiller's patience.
#pragma once

#include "troupe/objectstore/host.hpp"
#include "troupe/objectstore/spiller.hpp"
#include "troupe/runtime/agent/folder_copies.hpp"
#include "troupe/runtime/agent/object_accounting.hpp"
#include "troupe/runtime/agent/options.hpp"
#include "troupe/runtime/agent/outgoing.hpp"
#include "troupe/runtime/agent/prefault_policy.hpp"
#include "troupe/runtime/agent/quota_wait.hpp"
#include "troupe/runtime/agent/replica_host.hpp"

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace troupe::agent {

class Extents final : public FolderCopies::Store, private objectstore::Spiller::Out {
 public:
  /// What this part needs of processes and transfers. An implementation must not call back.
  class Out {
   public:
    virtual ~Out() = default;
    /// Sends to a process that lives, over its socket, with descriptors.
    virtual void send_with(ProcessIndex to, const wire::NodeMessage& message,
                           std::vector<int> descriptors) = 0;
    /// Tells every process to give memory back.
    virtual void press() = 0;
    /// Answers short_of_memory(), when nothing is under way: memory came, or `why` it cannot.
    virtual void memory_answer(const std::optional<Error>& why) = 0;
    /// An object that another node pulls is back in memory.
    virtual void restored(NodeId from, const wire::PullRequest& request) = 0;
  };
  /// The parts below this one. `node`: its name, for texts.
  struct Below {
    const std::string& node;
    const AgentOptions& options;
    objectstore::Host& host;
    ReferenceTable& references;
    ObjectAccounting& accounting;
    PrefaultPolicy& prefault;
    FolderCopies& copies;
    const ReplicaHost& replica_host;
    Outgoing& outgoing;
    Out& out;
  };
  /// A process that asks for memory.
  struct Asker {
    ProcessIndex index;
    std::uint32_t store_index = 0;
    JobId job;
    JobNumber job_number;
  };
  explicit Extents(const Below& below) : below_(below) {}
  /// Spills to these files from now on.
  void open(std::unique_ptr<objectstore::SpillFiles> files);
  /// Returns the spiller; null: there is no folder to spill to.
  objectstore::Spiller* spiller() const noexcept { return spiller_.get(); }
  /// Returns whether the bytes can be read, as far as is known.
  bool is_readable(const wire::Location& at);

  // --- from processes
  void need(const Asker& from, const wire::NeedExtent& message, Time now);
  void where_is(ProcessIndex from, const wire::WhereIs& message, Time now);
  /// Forgets the requests of a process that has ended.
  void forget(ProcessIndex process, std::uint32_t store_index);

  // --- from transfers and other nodes
  /// Asks the spiller for memory for transfers. One such request is open at a time; transfers ask
  /// again after its answer.
  void short_of_memory(std::uint64_t bytes, Time now);
  /// Returns whether the message is a pull of an object that lies on disk. Then asks the spiller to
  /// bring the object back; the pull goes on when it has.
  bool restores_first(NodeId from, const wire::PeerMessage& message, Time now);
  /// Forgets the pulls of a node that is gone. When it comes back, it asks anew and does not know
  /// the old requests.
  void forget_pulls(NodeId node);

  // --- FolderCopies::Store
  std::optional<objectstore::Location> where(const objectstore::Location& name) override {
    return spiller_ ? spiller_->where(name) : name;
  }
  void bring_back(ObjectId object, const objectstore::Location& name, Time now) override;
  bool need_room(ObjectId object, std::uint64_t bytes, Time now) override;
  void may_spill(const wire::Location& at) override;

  // --- the loop
  /// Tells processes of jobs at their quotas to ask again.
  void answer_quota(Time now);
  /// Readable when the spiller has work; -1: there is no spiller.
  int fd() const noexcept { return spiller_ ? spiller_->fd() : -1; }
  /// Notes whether fd() was readable.
  void note_ready(bool is_ready) noexcept { ready_ = is_ready; }
  void serve(Time now);
  /// Tells processes and transfers to ask for memory again, and sends MemoryPressure. The notices
  /// of the store go first: they concern the very memory that is asked for.
  void tell();
  Time next_deadline() const;

 private:
  /// A request to the spiller that has no answer yet:
  /// - extent: memory for `process`, or for transfers if that is kSelf;
  /// - place: where an object lies now, for `process`;
  /// - pull: an object that `node` wants and that is on disk;
  /// - copy: the same for an object of which a copy is written to a shared folder;
  /// - room: memory for bytes that are read from such a copy.
  struct Asked {
    enum class What : std::uint8_t { extent, place, pull, copy, room } what = What::extent;
    ProcessIndex process;
    std::uint64_t request = 0;  ///< extent, place: the number that `process` gave its request
    NodeId node;                ///< pull
    wire::PullRequest pull;
    ObjectId object;  ///< copy, room
  };
  struct TryAgain {
    ProcessIndex process;
    std::uint64_t request = 0;
    Time due{};
  };
  // objectstore::Spiller::Out
  void granted(std::uint64_t ask, objectstore::ExtentGrant grant) override;
  void try_again(std::uint64_t ask) override { try_again_.push_back(ask); }
  void located(std::uint64_t ask, const objectstore::Location& at) override;
  void refused(std::uint64_t ask, const Error& error) override;
  void memory_pressure() override { memory_pressure_ = true; }

  bool exceeds_quota(const Asker& from, const wire::NeedExtent& message, Time now);
  std::uint64_t ask(Asked asked);
  std::optional<Asked> take_ask(std::uint64_t number);
  void give(ProcessIndex process, std::uint64_t request, Result<objectstore::ExtentGrant> grant);
  void take(Result<objectstore::ExtentGrant> grant);
  void add(objectstore::ExtentGrant grant);

  const Below below_;
  std::unique_ptr<objectstore::Spiller> spiller_;
  std::map<std::uint64_t, Asked> asked_;
  std::uint64_t last_ask_ = 0;
  std::vector<std::uint64_t> try_again_;  ///< of asked_: to be asked anew, after the notices
  bool ready_ = false;                    ///< the spiller's descriptor is ready
  bool memory_pressure_ = false;          ///< MemoryPressure is due, after the notices
  bool asks_for_transfers_ = false;       ///< a request of short_of_memory() has no answer yet
  bool memory_came_ = false;              ///< transfers are to be told of that answer
  std::optional<Error> memory_refused_;   ///< the answer, if it is an error
  std::map<ProcessIndex, QuotaWait> at_quota_;  ///< waits for memory beyond a job's quota
  std::deque<TryAgain> try_quota_again_;
};

}  // namespace troupe::agent
