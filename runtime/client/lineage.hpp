/// Keeps the calls of this process's ended tasks, so that their results can be computed again. A
/// call is kept while a result whose bytes could be lost can still be named. A plain state
/// machine, driven by ClientEngine.
///
/// A kept call must not keep its arguments' memory, or a chain of computed values would never be
/// freed. Therefore the call names an argument that a kept task made by that task's Spec. The
/// argument's bytes go with its last handle, and the task runs again if they are needed. Any
/// other argument (from put, or from another process) is *parked*: it stays while a kept call
/// names it, and its bytes count towards the limit. Above the limit the oldest calls are evicted.
/// A result whose call was evicted ends in ObjectLost when it is lost.
///
///     lineage.keep(tasks.ended(…));               // its results have entry.made_by now
///     lineage.gather(*entry.made_by, order, held);  // what has to run again, arguments first
///     lineage.begin(spec);                        // the task, to be submitted with new results
///
/// A call that runs again makes new objects. Each lost result is forwarded to the new one, its
/// recompute target. Lineage knows the newest object for each result.
///
/// A worker may end before the holders of its results do. Therefore the agent keeps its calls,
/// too, by number (agent/lineage_cache.hpp), and may hand them to another process:
///
///     // here, arguments first:
///     for (Spec* spec : lineage.untold(…)) { …; lineage.set_number(*spec, n); }
///     // in the other process, arguments first:
///     lineage.take_over(task, n, results, made);
///     lineage.entrust(n, index, object);          // each result that may be asked for
///     lineage.all_taken_over();
///
/// Invariants: LINEAGE-1 bytes() is the size of the kept calls plus the size of what is parked
/// for them. LINEAGE-2 an entry is parked while a kept call names it and no handle does.
/// LINEAGE-3 a call that is under way is not begun again. LINEAGE-4 no function here recurses
/// along a chain of calls.
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

/// The call of one ended task, and the state of its results.
struct Spec {
  /// Why a call cannot be made again.
  enum class End : std::uint8_t { none, evicted, failed, spent };
  /// An argument, or a ref inside one. It is either a result of a kept task (`spec` and `index`)
  /// or an entry (`entry`).
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
  bool visited = false;  ///< mark of walk()
  std::vector<Input> inputs;
  std::vector<Entry*> results;    ///< the newest object of each; null when it has no handle
  std::vector<ObjectId> away;     ///< results without a handle here that others hold
  std::uint64_t number = 0;       ///< the agent's number of the call; 0: none
  std::int32_t retries_left = 0;  ///< of the task, when it was last kept or begun
  std::size_t uses = 0;           ///< number of entries, inputs and away ids that name this Spec
  std::size_t bytes = 0;
  Spec *older = nullptr, *newer = nullptr;    ///< among those with a task
  Spec *previous = nullptr, *next = nullptr;  ///< among all
};

class Lineage {
 public:
  class Out {
   public:
    virtual ~Out() = default;
    /// No kept call needs this entry any more. The receiver frees it, but not during this call.
    virtual void unparked(Entry& entry) = 0;
    /// The Spec of a numbered call is deleted.
    virtual void forgotten(std::uint64_t number) = 0;
  };
  Lineage(Out& out, Bytes limit) : out_(out), limit_(limit.count) {}
  Lineage(const Lineage&) = delete;
  Lineage& operator=(const Lineage&) = delete;
  ~Lineage() { clear(); }
  /// Forgets everything. Entries may keep their made_by; no function may be called for them any
  /// more.
  void clear();

  /// Keeps the call of a task that ended well. Call it only if a result may be lost. Returns the
  /// handles of the task's results, then those of its arguments and refs; the caller drops them
  /// outside. With a limit of 0 nothing is kept.
  std::vector<detail::ObjectHandle> keep(std::unique_ptr<Task> task);
  /// Parks an entry whose last handle is gone. Returns false when no kept call needs it; then the
  /// caller frees it, after forget().
  bool park(Entry& entry);
  /// Ends the link from an entry, which is about to be deleted, to its call.
  void forget(Entry& entry);
  /// Returns a new handle of a parked or live entry. Returns an empty one when the entry's
  /// release is under way.
  detail::ObjectHandle revive(Entry& entry);

  /// Records that others hold this result although no handle is left here. Returns whether the
  /// caller must send Lineage to the agent; if so, forget_away() follows some time.
  bool send_away(const Entry& entry);
  void forget_away(ObjectId object);
  struct Away {
    Spec* spec = nullptr;
    std::uint32_t index = 0;
    ObjectId recompute_target;  ///< the object that it was forwarded to; empty: none yet
  };
  /// Returns the result that others hold under this id, or nullptr.
  Away* away(ObjectId object);

  /// Fills `order` with the calls that must run again for the results of `wanted`, arguments
  /// before the calls that need them. Calls that are under way are left out. `held` gets handles
  /// of the results that are present, so that they stay. Errors: object_lost, saying which limit
  /// stands in the way. Cost: linear in the calls.
  Result<void> gather(Spec& wanted, std::vector<Spec*>& order,
                      std::vector<detail::ObjectHandle>& held);
  /// A call that is under way, and its task.
  struct Run {
    Spec* spec = nullptr;
    std::unique_ptr<Task> task;
  };
  /// Runs gather(), then begin() for each call at once: a later eviction cannot hit them.
  Result<std::vector<Run>> begin_all(Spec& wanted, std::vector<detail::ObjectHandle>& held);
  /// Takes the task out, with one retry less. The caller fills in its arguments (from `inputs`)
  /// and results.
  std::unique_ptr<Task> begin(Spec& spec);
  /// Makes `entry` the newest object of this result.
  void is_result(Spec& spec, std::uint32_t index, Entry& entry);
  /// The call will not end well: its results are errors.
  void failed(Spec& spec, Spec::End why);

  /// Returns the call and those that made its arguments, arguments first, as far as they have no
  /// number.
  std::vector<Spec*> untold(Spec& wanted);
  void set_number(Spec& spec, std::uint64_t number);
  /// Returns the call with this number, or nullptr.
  Spec* numbered(std::uint64_t number);
  /// Takes over another process's call, with `results` results. Arguments that are `made` by
  /// numbered calls are named by those; the others have handles in the task. The call stays at
  /// least until all_taken_over(). Returns handles to be dropped outside.
  std::vector<detail::ObjectHandle> take_over(std::unique_ptr<Task> task, std::uint64_t number,
                                              std::size_t results, std::vector<Spec::Input> made);
  /// Records that others hold this result of a numbered call. forget_away() follows some time.
  void entrust(std::uint64_t number, std::uint32_t index, ObjectId object);
  /// Ends the protection of calls from take_over(): from here on they stay only while something
  /// names them.
  void all_taken_over();

  std::size_t bytes() const noexcept { return bytes_; }
  std::size_t kept() const noexcept { return kept_; }
  std::uint64_t limit() const noexcept { return limit_; }
  /// Returns the reason why a call cannot run again, as a sentence.
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
  std::vector<Spec*> taken_over_;  ///< until all_taken_over()
  std::vector<Spec*> unused_;      ///< drop_use() deletes these in a loop, not by recursion
  bool deleting_ = false;
};

}  // namespace troupe::client
