/// The interface behind Device, which each kind of device implements: the CPU, and devices of the
/// CUDA plug-in.
#pragma once

#include "troupe/kernels/device/device.hpp"

#include <atomic>

namespace troupe::kernels {

class DeviceState {
 public:
  DeviceState() = default;
  DeviceState(const DeviceState&) = delete;
  DeviceState& operator=(const DeviceState&) = delete;
  virtual ~DeviceState();

  virtual std::string name() const = 0;
  virtual bool is_cpu() const noexcept = 0;
  virtual const Kernels& kernels() const noexcept = 0;
  virtual Queue& compute() noexcept = 0;
  virtual Queue& copies() noexcept = 0;
  /// Allocates zeroed, 256-byte aligned memory. Returns null when there is no room, and throws for
  /// other errors of the device. Any thread may call it, and release().
  virtual void* take(std::size_t bytes, Where where) = 0;
  virtual void release(void* memory, std::size_t bytes, Where where) noexcept = 0;
  virtual void copy(Queue& queue, void* to, const void* from, std::size_t bytes) = 0;
  virtual Event record(Queue& queue) = 0;
  virtual void wait(Queue& queue, const Event& event) = 0;
  virtual std::unique_ptr<Queue> make_queue() = 0;
  virtual bool is_device_memory(const void* memory) const = 0;
  virtual void make_current() {}

  Allocated allocated() const noexcept;
  /// Counts bytes that were allocated or, if negative, released.
  void count(std::int64_t bytes, Where where) noexcept;

 private:
  std::atomic<std::int64_t> device_{0}, pinned_{0}, host_{0}, peak_{0};
};

}  // namespace troupe::kernels
