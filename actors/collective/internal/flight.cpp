#include "troupe/actors/collective/internal/flight.hpp"

#include "troupe/kernels/denormals/denormals.hpp"

#include <algorithm>
#include <chrono>

namespace troupe::collective::internal {

bool Flight::has_happened() const noexcept {
  return over_.load(std::memory_order_acquire);
}

Carrier::~Carrier() = default;

bool Carrier::await(const Flight& flight, Time until) noexcept {
  return flight.park(until);
}

bool Flight::wait(Time until) const noexcept {
  if (has_happened()) return true;
  const std::shared_ptr<Carrier> who = carrier.lock();
  return who ? who->await(*this, until) : park(until);
}

bool Flight::park(Time until) const noexcept {
  std::unique_lock lock(mutex_);
  while (!has_happened()) {
    const Duration left = until - steady_now();
    if (left <= Duration::zero()) return false;
    changed_.wait_for(lock, std::min<Duration>(left, std::chrono::hours(1)));
  }
  return true;
}

void Flight::settle(std::optional<Error> how) {
  {
    const std::lock_guard lock(mutex_);
    error_ = std::move(how);
    over_.store(true, std::memory_order_release);
  }
  changed_.notify_all();
}

void Flight::lower(Time to) noexcept {
  const Time::rep wanted = to.time_since_epoch().count();
  Time::rep seen = limit.load(std::memory_order_relaxed);
  while (wanted < seen && !limit.compare_exchange_weak(seen, wanted, std::memory_order_acq_rel)) {
  }
}

FlightQueue::FlightQueue(std::function<void(Flight&)> carry_out,
                         std::function<void(std::string_view)> abort)
    : carry_out_(std::move(carry_out)), abort_(std::move(abort)) {
  thread_ = SignalMaskedThread("collective", [this] { work(); });
}

FlightQueue::~FlightQueue() {
  stop();
}

void FlightQueue::submit(std::shared_ptr<Flight> flight) {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return flights_.size() < kMost; });
    flights_.push_back(std::move(flight));
  }
  changed_.notify_all();
}

void FlightQueue::lower(const Flight& last, Time to) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(flights_.begin(), flights_.end(),
                                  [&](const auto& flight) { return flight.get() == &last; });
  if (found == flights_.end()) return;
  for (auto flight = flights_.begin(); flight <= found; ++flight) (*flight)->lower(to);
}

void FlightQueue::abort(const Flight&, std::string_view reason) noexcept {
  const std::lock_guard lock(mutex_);
  if (!stopping_) abort_(reason);
}

void FlightQueue::stop() noexcept {
  {
    const std::lock_guard lock(mutex_);
    const bool busy = std::any_of(flights_.begin(), flights_.end(),
                                  [](const auto& flight) { return !flight->has_happened(); });
    if (busy && !stopping_) abort_("it left with operations under way");
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void FlightQueue::work() {
  const kernels::FlushDenormals flush;
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !flights_.empty(); });
    if (flights_.empty()) return;
    const std::shared_ptr<Flight> flight = flights_.front();
    lock.unlock();
    carry_out_(*flight);
    lock.lock();
    flights_.pop_front();
    changed_.notify_all();
  }
}

}  // namespace troupe::collective::internal
