/// Comms: all communicators of NCCL that one rank has on its device. It makes NCCL's calls one at a
/// time, watches the operations in progress, and aborts all communicators together.
#pragma once

#include "troupe/actors/collective/internal/coordinator.hpp"
#include "troupe/actors/collective/internal/flight.hpp"
#include "troupe/actors/collective/nccl/internal/library.hpp"
#include "troupe/runtime/base/signal_masked_thread.hpp"

#include <condition_variable>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace troupe::collective::nccl {

using Control = collective::internal::Coordinator;
using collective::internal::Flight;
using Request = collective::internal::Operation;
class NcclCommunicator;

/// One communicator. NCCL may write `comm` until the communicator is ready, so an Entry is never
/// moved.
struct Entry {
  Comm comm = nullptr;
  Control* control = nullptr;  ///< the host group of its ranks; outlives the entry
};

/// Calls of NCCL are made under one lock, and none of them waits: NCCL is non-blocking.
class Comms final : public collective::internal::Carrier {
 public:
  /// An operation that the device has not done yet.
  struct Under {
    std::shared_ptr<Flight> flight;
    NcclCommunicator* of = nullptr;
    std::uint64_t sequence = 0;
    Time limit{};
  };
  Comms(const Library& library, Duration abort_within);
  Comms(const Comms&) = delete;
  Comms& operator=(const Comms&) = delete;
  ~Comms() override;

  const Library& library() const noexcept { return nccl_; }
  /// Makes a communicator. Returns when NCCL has it ready. Throws as call() does.
  Entry& join(Control& control, const UniqueId& id, const Request& request);
  /// Makes the communicator of a split. Every rank of the parent calls it. Returns null for ranks
  /// without a color.
  Entry* split(Entry& parent, const Request& request);
  /// Sets the host group of an entry.
  void speak_for(Entry& entry, Control& control);
  /// Runs `calls`, which call NCCL, under the lock. Returns when their work is in the device's
  /// queue. Ends the group and throws at an error of NCCL or at the operation's deadline.
  void call(Entry& entry, const Request& request, const std::function<Result()>& calls);
  /// Takes over an operation: from now on this object settles it.
  void add(Under under);
  /// Waits for all operations of the communicator.
  void drain(const NcclCommunicator& of);
  /// Waits for all operations of the communicator if only devices wait for them. Returns false, at
  /// once, when a user still has the Work of an operation that has not ended.
  bool drain_device(const NcclCommunicator& of);
  /// Destroys the communicator; aborts all when the group is over.
  void leave(Entry& entry);
  /// Aborts all communicators, then settles all operations. Precondition: the group is over.
  void finish() noexcept;
  /// Ends the group, aborts all communicators, and throws the error that ended it.
  [[noreturn]] void fail(Control& control, const Request& request, Code code,
                         const std::string& why);

  void lower(const Flight& last, Time to) override;
  void abort(const Flight& flight, std::string_view reason) noexcept override;
  bool await(const Flight& flight, Time until) noexcept override;

 private:
  struct Trouble;
  /// Returns the operations of the communicator that have not ended.
  std::vector<std::shared_ptr<Flight>> flights_of(const NcclCommunicator& of);
  void watch();
  /// Settles operations that are done, and ends the group at a deadline, a death or an error of
  /// NCCL.
  void poll() noexcept;
  void settle_done();
  Trouble find_trouble();
  static void end_late(const Under& under, Time limit);
  void look_for_errors(Trouble& trouble);
  void await_ready(Entry& entry, const Request& request, Time deadline);
  Result state_of(const Entry& entry);
  void abort_all() noexcept;
  void settle_all() noexcept;
  void close(Entry& entry);
  void stop() noexcept;
  [[noreturn]] void die() const noexcept;

  const Library& nccl_;
  Duration abort_within_;
  std::mutex calls_;  // guards NCCL's calls and the members below
  std::condition_variable changed_;
  std::list<Entry> entries_;
  std::vector<Under> under_;
  Time asked_{}, looked_{};  // the last checks for deadlines and errors, and for deaths
  bool stopping_ = false, over_ = false;
  SignalMaskedThread watcher_;
  std::mutex ending_;  // guards the two below
  std::condition_variable ended_changed_;
  bool ended_ = false;
  SignalMaskedThread aborter_;
};

}  // namespace troupe::collective::nccl
