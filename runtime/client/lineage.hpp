/// How the results of this process's ended tasks can be computed again: their calls, kept while
/// somebody can name a result whose bytes could be lost. A plain state machine.
///
/// A kept call must not keep its arguments' memory, or nothing that was computed step by step would
/// ever be freed. So it names an argument that a task made by that task: the argument's bytes go
/// when its last handle goes, and the task runs again should they be needed. Any other argument
/// (put, or another process's) stays with the lineage that needs it, *parked*, and its bytes count
/// towards the limit. When more is kept than the limit allows the oldest calls are evicted, and
/// what hung on them ends in ObjectLost when it is lost.
///
///     lineage.keep(tasks.ended(…));               // its results have entry.made_by now
///     lineage.gather(*entry.made_by, order, held);  // what has to run again, arguments first
///     lineage.begin(spec);                        // the task, to be submitted with new results
///
/// A call's results are computed again into new objects, and each lost one is forwarded to its
/// recompute target. Lineage knows for each result the newest object that stands for it.
///
/// A worker may end before whoever holds its results. So the agent keeps its calls, too, by number
/// (agent/lineage_cache.hpp), and may entrust another process with them:
///
///     for (Spec* spec : lineage.untold(…)) { …; lineage.set_number(*spec, n); }  // arguments
///     first lineage.take_over(task, n, results, made);  // in the other process, again arguments
///     first lineage.entrust(n, index, object);          // what may be asked for
///     lineage.all_taken_over();
///
/// Invariants: LINEAGE-1 bytes() is what the calls that are kept take together with what is parked
/// for them. LINEAGE-2 an entry is parked while a kept call names it and no handle does. LINEAGE-3
/// a call that is under way is not begun again. LINEAGE-4 nothing here recurses along a chain of
/// calls.
#pragma once

#include "troupe/runtime/base/units.hpp"
#include "troupe/runtime/client/objects.hpp"
#include "troupe/runtime/client/tasks.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace troupe::client {

/// The call of one task that has ended, and what became of its results.
struct Spec {
  /// Why a call cannot be made again.
  enum class End : std::uint8_t { none, evicted, failed, spent };
  /// An argument, or a ref inside one: made by a task that is kept, or an entry.
  struct Input {
    Spec* spec = nullptr;
    std::uint32_t index = 0;  ///< of the result
    Entry* entry = nullptr;
    bool is_ref = false;
    std::uint32_t position = 0;  ///< in the call's arguments, or in its refs
  };
  std::unique_ptr<Task> task;  ///< null: under way, or ended
  End end = End::none;
  bool running = false;
  bool visited = false;  ///< while gather() runs
  std::vector<Input> inputs;
  std::vector<Entry*> results;    ///< the newest of each, null when no handle is left
  std::vector<ObjectId> away;     ///< results that others hold and no handle here
  std::uint64_t number = 0;       ///< by which the agent knows it; 0: it does not
  std::int32_t retries_left = 0;  ///< of the task, when it was here last
  std::size_t uses = 0;           ///< entries, inputs and away ids that name it
  std::size_t bytes = 0;
  Spec *older = nullptr, *newer = nullptr;    ///< among those with a task
  Spec *previous = nullptr, *next = nullptr;  ///< among all
};

class Lineage {
 public:
  class Out {
   public:
    virtual ~Out() = default;
    /// Nothing keeps this entry any more: free it, later.
    virtual void unparked(Entry& entry) = 0;
    /// A call with a number is gone.
    virtual void forgotten(std::uint64_t number) = 0;
  };
  Lineage(Out& out, Bytes limit) : out_(out), limit_(limit.count) {}
  Lineage(const Lineage&) = delete;
  Lineage& operator=(const Lineage&) = delete;
  ~Lineage() { clear(); }
  /// Forgets everything. Entries may still say made_by: nothing may be asked about them any more.
  void clear();

  /// A task ended well and one of its results is worth keeping it for. Its arguments' handles are
  /// let go of (returned, to be dropped outside). With a limit of 0 nothing is kept.
  std::vector<detail::ObjectHandle> keep(std::unique_ptr<Task> task);
  /// The last handle of the entry is gone. True: it is parked, and stays as it is. Else whoever
  /// frees it first calls forget() for it.
  bool park(Entry& entry);
  void forget(Entry& entry);
  /// A parked entry, or one that still has handles, gets a handle; empty: its release is under way.
  detail::ObjectHandle revive(Entry& entry);

  /// Others hold this result though no handle is left here. Returns whether that is worth telling
  /// the agent: forget_away() follows some time.
  bool send_away(const Entry& entry);
  void forget_away(ObjectId object);
  struct Away {
    Spec* spec = nullptr;
    std::uint32_t index = 0;
    ObjectId recompute_target;  ///< where it was forwarded to; none yet
  };
  Away* away(ObjectId object);

  /// What has to run again to have the results of `wanted`, arguments before who needs them,
  /// without what is under way; `held` keeps the results that are there. Errors: object_lost,
  /// saying which limit stands in the way. Cost: linear in the calls.
  Result<void> gather(Spec& wanted, std::vector<Spec*>& order,
                      std::vector<detail::ObjectHandle>& held);
  /// A call that is under way from here on, and the task that makes it.
  struct Run {
    Spec* spec = nullptr;
    std::unique_ptr<Task> task;
  };
  /// gather(), and begin() for each at once: what is evicted from here on is none of them.
  Result<std::vector<Run>> begin_all(Spec& wanted, std::vector<detail::ObjectHandle>& held);
  /// Takes the task out, one retry less; its arguments (from `inputs`) and results are to be filled
  /// in.
  std::unique_ptr<Task> begin(Spec& spec);
  /// An entry that is to hold the result from now on.
  void is_result(Spec& spec, std::uint32_t index, Entry& entry);
  /// It will not end well: its results are errors.
  void failed(Spec& spec, Spec::End why);

  /// The call and those that made its arguments, arguments first, as far as they have no number.
  std::vector<Spec*> untold(Spec& wanted);
  void set_number(Spec& spec, std::uint64_t number);
  /// A call with this number, or nullptr.
  Spec* numbered(std::uint64_t number);
  /// Another process's call with so many results, which is to be made here from now on. Its
  /// arguments have handles, but for those that are `made` by calls with numbers. It stays until
  /// all_taken_over() at least. Returns handles to be dropped outside.
  std::vector<detail::ObjectHandle> take_over(std::unique_ptr<Task> task, std::uint64_t number,
                                              std::size_t results, std::vector<Spec::Input> made);
  /// Others hold this result of the call; forget_away() follows some time.
  void entrust(std::uint64_t number, std::uint32_t index, ObjectId object);
  void all_taken_over();

  std::size_t bytes() const noexcept { return bytes_; }
  std::size_t kept() const noexcept { return kept_; }
  std::uint64_t limit() const noexcept { return limit_; }
  /// Why the call behind this result cannot run again, as a sentence.
  static std::string sentence(Spec::End end);

 private:
  template <class Enter, class Needs>
  static void walk(Spec& wanted, std::vector<Spec*>& order, const Enter& enter, const Needs& needs);
  Spec& add_spec(std::size_t results);
  void store(Spec& spec, std::unique_ptr<Task> task, std::vector<detail::ObjectHandle>& dropped,
             bool first);
  bool send_away(Spec& spec, std::uint32_t index, ObjectId object);
  void add(Spec& spec);
  void remove(Spec& spec);
  void drop_use(Spec& spec);
  void drop_inputs(Spec& spec);
  void evict();
  void end(Spec& spec, Spec::End why);

  Out& out_;
  std::uint64_t limit_;
  std::size_t bytes_ = 0;
  std::size_t kept_ = 0;
  Spec *oldest_ = nullptr, *newest_ = nullptr, *all_ = nullptr;
  std::map<ObjectId, Away> away_;
  std::map<std::uint64_t, Spec*> numbered_;
  std::vector<Spec*> taken_over_;  ///< until all are
  std::vector<Spec*> unused_;      ///< to be deleted
  bool deleting_ = false;
};

}  // namespace troupe::client
