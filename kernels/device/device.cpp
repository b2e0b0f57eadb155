#include "troupe/kernels/device/device.hpp"

#include "troupe/kernels/device/internal/device_state.hpp"
#include "troupe/runtime/base/error.hpp"

#include <utility>

namespace troupe::kernels {

Queue::~Queue() = default;
DeviceState::~DeviceState() = default;

Allocated DeviceState::allocated() const noexcept {
  return {device_.load(std::memory_order_relaxed), pinned_.load(std::memory_order_relaxed),
          host_.load(std::memory_order_relaxed), peak_.load(std::memory_order_relaxed)};
}

void DeviceState::count(std::int64_t bytes, Where where) noexcept {
  std::atomic<std::int64_t>& counter = where == Where::device   ? device_
                                       : where == Where::pinned ? pinned_
                                                                : host_;
  const std::int64_t now = counter.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  if (where != Where::device) return;
  std::int64_t peak = peak_.load(std::memory_order_relaxed);
  while (now > peak && !peak_.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
  }
}

Memory::Memory(Memory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      where_(other.where_),
      state_(std::move(other.state_)) {}

Memory& Memory::operator=(Memory&& other) noexcept {
  Memory taken(std::move(other));  // its destructor releases what this object held before
  std::swap(data_, taken.data_);
  std::swap(bytes_, taken.bytes_);
  std::swap(where_, taken.where_);
  state_.swap(taken.state_);
  return *this;
}

Memory::~Memory() {
  if (data_ == nullptr) return;
  state_->release(data_, bytes_, where_);
  state_->count(-static_cast<std::int64_t>(bytes_), where_);
}

std::string Device::name() const {
  return state_->name();
}
bool Device::is_cpu() const noexcept {
  return state_->is_cpu();
}
const Kernels& Device::kernels() const noexcept {
  return state_->kernels();
}
Queue& Device::compute() noexcept {
  return state_->compute();
}
Queue& Device::copies() noexcept {
  return state_->copies();
}
Allocated Device::allocated() const noexcept {
  return state_->allocated();
}

Memory Device::allocate(std::size_t bytes, Where where) {
  Memory memory;
  if (bytes == 0) return memory;
  memory.data_ = state_->take(bytes, where);
  if (memory.data_ == nullptr) {
    const Allocated now = allocated();
    throw OutOfMemory(Code::out_of_memory,
                      name() + " has no room for " + std::to_string(bytes) +
                          " bytes; allocated already: " + std::to_string(now.device) +
                          " of the device, " + std::to_string(now.pinned) + " pinned, " +
                          std::to_string(now.host) + " of the host");
  }
  memory.bytes_ = bytes;
  memory.where_ = where;
  memory.state_ = state_;
  state_->count(static_cast<std::int64_t>(bytes), where);
  return memory;
}

void Device::copy(Queue& queue, void* to, const void* from, std::size_t bytes) {
  state_->copy(queue, to, from, bytes);
}
Event Device::record(Queue& queue) {
  return state_->record(queue);
}
void Device::wait(Queue& queue, const Event& event) {
  state_->wait(queue, event);
}
std::unique_ptr<Queue> Device::make_queue() {
  return state_->make_queue();
}
bool Device::is_device_memory(const void* memory) const {
  return memory != nullptr && state_->is_device_memory(memory);
}
void Device::make_current() {
  state_->make_current();
}

}  // namespace troupe::kernels
