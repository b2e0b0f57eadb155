/// Operations that were asked for and have not ended, and the thread that carries them out.
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

/// Who carries out operations that have not ended when their call returns. From any thread.
class Carrier {
 public:
  virtual ~Carrier();
  /// This operation and those before it end by then, if need be in an error.
  virtual void lower(const Flight& last, Time to) = 0;
  /// Ends the group of an operation.
  virtual void abort(const Flight& flight, std::string_view reason) noexcept = 0;
  /// Waits at most until then for the operation's end; whether it has ended.
  virtual bool await(const Flight& flight, Time until) noexcept;
};

/// One operation, shared by who waits for it and who carries it out.
struct Flight final : kernels::EventState {
  Operation operation;
  std::atomic<Time::rep> limit{Time::max().time_since_epoch().count()};
  /// Set before anybody else sees it; none: it has ended by then, as the carrier has ended all that
  /// it carries when it goes.
  std::weak_ptr<Carrier> carrier;
  kernels::Event on_device;  ///< as `carrier`: happens when the device has done it
  /// A device waits for it and nobody else: its Work is done.
  std::atomic<bool> left_to_device = false;

  bool has_happened() const noexcept override;
  bool wait(Time until) const noexcept override;
  const kernels::EventState* of_device() const noexcept override { return on_device.of_device(); }
  /// wait() for carriers that settle it from another thread.
  bool park(Time until) const noexcept;
  /// It has ended. Once.
  void settle(std::optional<Error> how);
  /// Precondition: it has ended.
  const std::optional<Error>& error() const noexcept { return error_; }
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
  /// Waits while kMost operations wait.
  void submit(std::shared_ptr<Flight> flight);
  void lower(const Flight& last, Time to) override;
  void abort(const Flight& flight, std::string_view reason) noexcept override;
  /// What has not ended ends the group. When it returns, nothing is carried out any more.
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
