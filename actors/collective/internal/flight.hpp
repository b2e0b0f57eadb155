/// Flight: an operation that was started and has not ended. FlightQueue: the thread of a
/// communicator that carries operations out. Work (work.hpp) is the user's handle to a Flight.
#pragma once

#include "troupe/actors/collective/internal/operation.hpp"
#include "troupe/runtime/base/signal_masked_thread.hpp"

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

namespace troupe::collective::internal {

struct Flight;

/// Carries out operations that have not ended when their call returns. Any thread may call it.
class Carrier {
 public:
  virtual ~Carrier();
  /// Sets a deadline for this operation and those before it, after which they end in an error.
  virtual void lower(const Flight& last, Time to) = 0;
  /// Ends the group of an operation.
  virtual void abort(const Flight& flight, std::string_view reason) noexcept = 0;
  /// Waits for the operation's end, at most until `until`. Returns whether it has ended.
  virtual bool await(const Flight& flight, Time until) noexcept;
};

/// One operation. The thread that waits for it and the carrier share it.
struct Flight final : kernels::EventState {
  Operation operation;
  std::atomic<Time::rep> limit{Time::max().time_since_epoch().count()};
  /// Set before another thread sees the flight. Expired or empty: the operation has ended, since a
  /// carrier ends all its operations before it is destroyed.
  std::weak_ptr<Carrier> carrier;
  /// Happens when the device has done the operation. Set before another thread sees the flight.
  kernels::Event on_device;
  /// Only a device waits for the operation; its Work is done.
  std::atomic<bool> left_to_device = false;

  bool has_happened() const noexcept override;
  bool wait(Time until) const noexcept override;
  const kernels::EventState* of_device() const noexcept override { return on_device.of_device(); }
  /// Waits like wait(), for carriers that settle the flight from another thread.
  bool park(Time until) const noexcept;
  /// Records the end of the operation and wakes the waiting threads. Called once.
  void settle(std::optional<Error> how);
  /// Precondition: the operation has ended.
  const std::optional<Error>& error() const noexcept { return error_; }
  /// Sets an earlier deadline; a later one has no effect.
  void lower(Time to) noexcept;

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::atomic<bool> over_ = false;
  std::optional<Error> error_;
};

/// A thread that carries out one operation after the other.
class FlightQueue final : public Carrier {
 public:
  FlightQueue(std::function<void(Flight&)> carry_out, std::function<void(std::string_view)> abort);
  FlightQueue(const FlightQueue&) = delete;
  FlightQueue& operator=(const FlightQueue&) = delete;
  ~FlightQueue() override;
  /// Adds an operation. Blocks while kMost operations are in the queue.
  void submit(std::shared_ptr<Flight> flight);
  void lower(const Flight& last, Time to) override;
  void abort(const Flight& flight, std::string_view reason) noexcept override;
  /// Ends the group if an operation has not ended, and joins the thread: after that no operation is
  /// carried out.
  void stop() noexcept;

 private:
  static constexpr std::size_t kMost = 4096;
  void work();

  std::function<void(Flight&)> carry_out_;
  std::function<void(std::string_view)> abort_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Flight>> flights_;  // the first one is being carried out
  bool stopping_ = false;
  SignalMaskedThread thread_;
};

}  // namespace troupe::collective::internal
