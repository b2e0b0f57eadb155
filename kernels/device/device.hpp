/// Devices: memory, queues of work, and the functions of operations.hpp on them.
///
///     Device device = cpu_device({.threads = 2});
///     Memory x = device.allocate(4 * n);
///     device.kernels().fill(device.compute(), {.n = n, .out = x.data(), .factor = 1});
///     device.compute().synchronize();
///
/// A device and its queues are for one thread at a time; memory may be handed to any thread.
#pragma once

#include "troupe/kernels/device/operations.hpp"

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

namespace troupe::kernels {

/// Where memory lies. On the CPU the three are the same memory, counted apart.
enum class Where : std::uint8_t { device, pinned, host };

struct Allocated {
  std::int64_t device = 0, pinned = 0, host = 0;  ///< bytes that are allocated now
  std::int64_t peak_device = 0;
};

/// Owned memory, 256-byte aligned, zero at first.
class TROUPE_API Memory {
 public:
  Memory() = default;
  Memory(Memory&&) noexcept;
  Memory& operator=(Memory&&) noexcept;
  ~Memory();
  void* data() const noexcept { return data_; }
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  friend class Device;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
  Where where_ = Where::device;
  std::shared_ptr<class DeviceState> state_;
};

/// Work that takes effect in order.
class TROUPE_API Queue {
 public:
  virtual ~Queue();
  /// Returns when all that was enqueued has taken effect.
  virtual void synchronize() = 0;
  /// Scratch of this queue, 64-byte aligned, good until the next call on the queue.
  virtual void* scratch(std::size_t bytes) = 0;
  /// Calls part(first, end) for parts of [0, n) of at least `grain` on the queue's threads, and
  /// returns when all are done. CPU only.
  virtual void parallel(std::int64_t n, std::int64_t grain,
                        const std::function<void(std::int64_t, std::int64_t)>& part) = 0;
  virtual int threads() const noexcept = 0;
  /// The stream (cudaStream_t) behind it, for libraries of its platform; null on the CPU.
  virtual void* native() const noexcept { return nullptr; }
};

class TROUPE_API Device {
 public:
  explicit Device(std::shared_ptr<class DeviceState> state) noexcept : state_(std::move(state)) {}

  /// "cpu, 2 threads, oneDNN (libdnnl.so.2)".
  std::string name() const;
  bool is_cpu() const noexcept;
  const Kernels& kernels() const noexcept;
  Queue& compute() noexcept;
  Queue& copies() noexcept;
  /// Throws OutOfMemory, with what is allocated already, when the device has no room.
  Memory allocate(std::size_t bytes, Where where = Where::device);
  Allocated allocated() const noexcept;
  /// Copies between any two places, in the queue's order.
  void copy(Queue& queue, void* to, const void* from, std::size_t bytes);
  /// When all that is enqueued now has taken effect; and: what is enqueued later waits for it.
  Event record(Queue& queue);
  void wait(Queue& queue, const Event& event);
  /// Another queue, for work beside compute() and copies(). It must go before the device does.
  std::unique_ptr<Queue> make_queue();
  /// Whether it is memory of a device, which the host cannot read. From any thread.
  bool is_device_memory(const void* memory) const;
  /// Libraries of the platform that this thread calls use this device from now on.
  void make_current();

 private:
  std::shared_ptr<class DeviceState> state_;
};

struct CpuOptions {
  /// That compute together, the caller counted in; the others wait for work without using a CPU
  /// after a short spin. 1: none but the caller.
  int threads = 1;
};
/// Throws InvalidArgument unless 1 <= threads <= 256.
TROUPE_API Device cpu_device(const CpuOptions& options = {});

}  // namespace troupe::kernels
