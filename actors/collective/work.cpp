#include "troupe/actors/collective/work.hpp"

#include "troupe/actors/collective/internal/flight.hpp"
#include "troupe/kernels/device/device.hpp"

#include <exception>
#include <utility>

namespace troupe::collective {

Work::Work() noexcept = default;

Work::Work(std::shared_ptr<internal::Flight> flight) noexcept
    : flight_(std::move(flight)), exceptions_(std::uncaught_exceptions()) {}

Work::Work(Work&& other) noexcept
    : flight_(std::exchange(other.flight_, nullptr)), exceptions_(other.exceptions_) {}

Work& Work::operator=(Work&& other) noexcept {
  if (this == &other) return *this;
  finish();
  flight_ = std::exchange(other.flight_, nullptr);
  exceptions_ = other.exceptions_;
  return *this;
}

Work::~Work() {
  finish();
}

void Work::finish() noexcept {
  if (is_done()) return;
  if (std::uncaught_exceptions() > exceptions_)
    if (const auto carrier = flight_->carrier.lock())
      carrier->abort(*flight_, "an exception passed by one of its operations");
  flight_->wait(Time::max());
}

void Work::wait() {
  if (!flight_) return;
  flight_->wait(Time::max());
  if (flight_->error()) raise(*flight_->error());
}

void Work::wait(Time deadline) {
  if (!is_done())
    if (const auto carrier = flight_->carrier.lock()) carrier->lower(*flight_, deadline);
  wait();
}

void Work::wait(kernels::Device& device) {
  if (!flight_ || flight_->of_device() == nullptr || is_done()) return wait();
  device.wait(device.compute(), done());
  flight_->left_to_device.store(true, std::memory_order_release);
  flight_.reset();
}

bool Work::is_done() const noexcept {
  return !flight_ || flight_->has_happened();
}

kernels::Event Work::done() const {
  return kernels::Event(flight_);
}

}  // namespace troupe::collective
