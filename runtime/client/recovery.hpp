/// Lost values: they are found elsewhere, computed again, or end in an error. Keeps the calls of
/// ended tasks (lineage.hpp), and tells the agent of those that may outlive this process. A plain
/// state machine, driven by ClientEngine.
///
/// A value is reached along a chain of objects: a result that was computed at another node is
/// forwarded to an object of that node. When the bytes at the end of the chain are gone, the
/// nearest object of the chain that can be computed again gets a recompute target: a new object
/// with the result of the task's next run. The chain then leads there. For an object that this
/// process did not compute, it sends Rebuild to the owner, whose agent asks the process that did.
///
///     recovery.remember(tasks.ended(…));            // a task ended well
///     if (recovery.recover(entry, error)) …         // its bytes may come: look again
///     recovery.on_rebuild(message);                 // the agent asks for another process
///
/// Invariants: RECOVERY-1 An entry gets one recompute target, for ever; no chain of targets leads
/// back to its beginning. RECOVERY-2 A Rebuild is open for an entry at most once, and an entry
/// whose Rebuild was refused asks no more. RECOVERY-3 A call is told to the agent after those that
/// made its arguments, once, and before it is said that an object is its result. RECOVERY-4 A value
/// that cannot be had again ends in object_lost, with the reason.
#pragma once

#include "troupe/runtime/client/lineage.hpp"
#include "troupe/runtime/client/scheduling_classes.hpp"
#include "troupe/runtime/client/values.hpp"
#include "troupe/runtime/wire/messages.hpp"

#include <cstdint>
#include <memory>
#include <vector>

namespace troupe::client {

class Recovery final : public Values::Lost, private Lineage::Out {
 public:
  /// What this part needs of the process around it.
  class Out : public Values::Out {
   public:
    /// The entry may be freed, but not during this call.
    virtual void unparked(Entry& entry) = 0;
    /// Submits a task for its new results.
    virtual void run_again(std::unique_ptr<Task> task) = 0;
    /// A lost value got another object or a new answer: threads look again.
    virtual void recovered() = 0;
  };
  /// `outlives`: the process is a worker, whose calls its agent keeps. `limit`: bytes of kept calls.
  Recovery(Out& out, Values& values, SchedulingClasses& classes, bool outlives, Bytes limit)
      : out_(out),
        values_(values),
        classes_(classes),
        outlives_(outlives),
        lineage_(static_cast<Lineage::Out&>(*this), limit) {}
  /// Names this process. Call it before the first task ends.
  void belongs_to(ProcessIndex self) noexcept { self_ = self; }
  Lineage& lineage() noexcept { return lineage_; }

  /// Keeps the call of a task that has ended, when a result of it could be lost.
  void remember(std::unique_ptr<Task> task);
  /// Returns the error of a lost value whose task could not run again, or failed when it did. It
  /// names the task and `why`.
  static Error cannot_run_again(const Task& task, const Error& why);
  /// Tries to recover a ready entry whose bytes cannot be had, with reason `error`. True: the bytes
  /// may come, so try again. False: `error` says why they cannot.
  bool recover(Entry& entry, Error& error);
  /// The task has not run because the bytes of an argument are gone. True: send it again once they
  /// are there. False: it ends in `error`.
  bool recover_argument(const Task& task, const wire::Reply& reply, Error& error);
  void on_rebuild(const wire::Rebuild& message);
  /// Handles Ready, which answers an Await or a Rebuild.
  void on_ready(const wire::Ready& message, BlobView payload);
  /// Handles the answer to our Rebuild for a ready entry.
  void rebuilt(Entry& entry, const wire::Value& value, BlobView payload);
  /// Takes over another process's call, which this process may then make again. The refs in the
  /// message are counted for this process.
  void take_over(const wire::KeptCall& message, BlobView payload);

  // --- Values::Lost
  bool recover_pending(Entry& entry, Error& error) override;
  void outlive(Entry& entry) override;
  void tell_calls() override;
  void hand_over(Entry& entry) override;
  bool park(Entry& entry) override { return lineage_.park(entry); }
  detail::ObjectHandle revive(Entry& entry) override { return lineage_.revive(entry); }

 private:
  // Lineage::Out
  void unparked(Entry& entry) override { out_.unparked(entry); }
  void forgotten(std::uint64_t number) override;

  void tell(const wire::NodeMessage& message, BlobView payload = {}) {
    out_.tell(message, payload);
  }
  bool find_recompute_target(Entry& entry, Error& error);
  Result<void> run_again(Spec& spec, const Entry* wanted);
  void resubmit(Lineage::Run run, const Entry* wanted, std::vector<detail::ObjectHandle>& held);
  void forward_to_target(Entry& entry, const detail::ObjectHandle& target);
  void tell_recompute_target(ObjectId object, const detail::ObjectHandle& target);
  ObjectId name_input(const Spec::Input& input, std::vector<detail::ObjectHandle>& held);
  bool tell_call(Spec& spec);

  Out& out_;
  Values& values_;
  SchedulingClasses& classes_;
  const bool outlives_;
  ProcessIndex self_;
  Lineage lineage_;
  std::vector<detail::ObjectHandle> outliving_;  ///< objects whose calls tell_calls() must tell
  bool tells_calls_ = false;
  std::uint64_t told_ = 0;  ///< number of calls told to the agent
  wire::FrameWriter writer_;
};

}  // namespace troupe::client
