/// Operations that were asked for and have not ended, and the thread that carries them out.
#pragma once

#include "troupe/actors/collective/internal/operation.hpp"

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

namespace troupe::collective::internal {

class FlightQueue;

/// One operation, shared by who waits for it and who carries it out.
struct Flight final : kernels::EventState {
  Operation operation;
  std::atomic<Time::rep> limit{Time::max().time_since_epoch().count()};
  std::shared_ptr<FlightQueue> queue;  ///< none: it ends before anybody sees it

  bool has_happened() const noexcept override;
  bool wait(Time until) const noexcept override;
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
class FlightQueue {
 public:
  FlightQueue(std::function<void(Flight&)> carry_out, std::function<void(std::string_view)> abort);
  FlightQueue(const FlightQueue&) = delete;
  FlightQueue& operator=(const FlightQueue&) = delete;
  ~FlightQueue();
  /// Waits while kMost operations wait.
  void submit(std::shared_ptr<Flight> flight);
  /// This operation and those before it end by then, if need be in an error.
  void lower(const Flight& last, Time to);
  void abort(std::string_view reason) noexcept;
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
  std::thread thread_;
};

}  // namespace troupe::collective::internal
