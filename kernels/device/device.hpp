/// Device: memory, queues of work, and the operations of operations.hpp. The CPU is one kind of
/// device, CUDA (cuda.hpp) another.
///
///     Device device = cpu_device({.threads = 2});
///     Memory x = device.allocate(4 * n);
///     device.kernels().fill(device.compute(), {.n = n, .out = x.data(), .factor = 1});
///     device.compute().synchronize();
///
/// Only one thread at a time may use a device and its queues. Memory may be passed to any thread.
#pragma once

#include "troupe/kernels/device/operations.hpp"

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

namespace troupe::kernels {

/// Where memory lies. On a CPU device all three are the same memory, counted separately.
enum class Where : std::uint8_t { device, pinned, host };

/// The memory that a device has allocated.
struct Allocated {
  std::int64_t device = 0, pinned = 0, host = 0;  ///< bytes that are allocated now
  std::int64_t peak_device = 0;
};

/// Owned memory of a device: 256-byte aligned, and zero when allocated. It keeps the device alive.
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

/// A sequence of work that takes effect in order; on CUDA devices a stream.
class TROUPE_API Queue {
 public:
  virtual ~Queue();
  /// Blocks until all enqueued work has taken effect.
  virtual void synchronize() = 0;
  /// Returns scratch memory of this queue, 64-byte aligned and valid until the next call on the
  /// queue.
  virtual void* scratch(std::size_t bytes) = 0;
  /// Divides [0, n) into parts of at least `grain`, calls part(first, end) for each on the queue's
  /// threads, and returns when all are done. CPU only.
  virtual void parallel(std::int64_t n, std::int64_t grain,
                        const std::function<void(std::int64_t, std::int64_t)>& part) = 0;
  virtual int threads() const noexcept = 0;
  /// Returns the cudaStream_t behind the queue, for libraries such as NCCL; null on the CPU.
  virtual void* native() const noexcept { return nullptr; }
};

/// A handle of a device; copies share it.
class TROUPE_API Device {
 public:
  explicit Device(std::shared_ptr<class DeviceState> state) noexcept : state_(std::move(state)) {}

  /// Returns a description such as "cpu, 2 threads, oneDNN (libdnnl.so.2)".
  std::string name() const;
  bool is_cpu() const noexcept;
  const Kernels& kernels() const noexcept;
  Queue& compute() noexcept;
  Queue& copies() noexcept;
  /// Allocates zeroed memory. Throws OutOfMemory when there is no room; the message says how much
  /// is allocated already.
  Memory allocate(std::size_t bytes, Where where = Where::device);
  Allocated allocated() const noexcept;
  /// Copies between any two places (device, pinned or host), in the queue's order.
  void copy(Queue& queue, void* to, const void* from, std::size_t bytes);
  /// Returns an event that happens when all work enqueued so far has taken effect.
  Event record(Queue& queue);
  /// Makes work that is enqueued later wait for the event.
  void wait(Queue& queue, const Event& event);
  /// Makes another queue, for work beside compute() and copies(). Destroy it before the device.
  std::unique_ptr<Queue> make_queue();
  /// Whether this is memory of a device, which the host cannot read. Any thread may call it.
  bool is_device_memory(const void* memory) const;
  /// Makes platform libraries that the calling thread calls (such as NCCL) use this device.
  void make_current();

 private:
  std::shared_ptr<class DeviceState> state_;
};

struct CpuOptions {
  /// Threads that compute together, including the caller; 1: only the caller. Idle helpers spin
  /// shortly and then sleep.
  int threads = 1;
};
/// Makes a CPU device. Throws InvalidArgument unless 1 <= threads <= 256.
TROUPE_API Device cpu_device(const CpuOptions& options = {});

}  // namespace troupe::kernels
