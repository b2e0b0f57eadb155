// A device for tests that is as far from the host as a GPU. Its queues run beside the host, on
// threads of their own, and a host thread that touches its memory gets SIGSEGV. The operations
// are the CPU's.
//
//     HostDevice gpu;
//     Engine engine(model, layout, mesh, gpu.device(), optimizer);
//     EXPECT_EQ(gpu.strays(), "");                 // no kernel was given memory of the host
//
// It shows host reads of device memory, missing waits between queues and the host, and memory of
// the host in kernels. It does not show anything of CUDA itself.
#pragma once

#include "tests/device/fake_stream.hpp"
#include "troupe/kernels/denormals/denormals.hpp"
#include "troupe/kernels/device/device.hpp"
#include "troupe/kernels/device/internal/device_state.hpp"
#include "troupe/kernels/device/table.hpp"
#include "troupe/runtime/base/error.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace troupe::kernels {

struct HostDeviceOptions {
  /// The pause of a queue before each operation. It makes a missing wait show.
  Duration delay = std::chrono::microseconds(20);
  /// is_device_memory() returns true for all memory. It is for tests that have only memory of the
  /// host.
  bool takes_all = false;
  std::size_t bytes = std::size_t{256} << 20;  ///< address space; no piece is given out twice
};

/// Two mappings of one piece of memory: the device's ("far"), which no one may access, and the
/// host's ("near"). Their addresses have the same lower 32 bits. A 32-bit number beside padding
/// may look like an address of the device when it is read as a pointer. Its translation to the
/// host's address changes the upper half only, so the number keeps its value.
class TwoFaces {
 public:
  explicit TwoFaces(std::size_t bytes) : bytes_(bytes) {
    fd_ = ::memfd_create("host-device", MFD_CLOEXEC);
    if (fd_ < 0 || ::ftruncate(fd_, static_cast<off_t>(bytes)) != 0) std::abort();
    far_ = map(nullptr, PROT_NONE, 0);
    if (far_ == nullptr) std::abort();
    for (std::uintptr_t i = 1; near_ == nullptr && i <= kPlaces; ++i)
      near_ = map(far_ - (i << 32), PROT_READ | PROT_WRITE, MAP_FIXED_NOREPLACE);
    if (near_ == nullptr) std::abort();
  }
  TwoFaces(const TwoFaces&) = delete;
  TwoFaces& operator=(const TwoFaces&) = delete;
  ~TwoFaces() {
    ::munmap(far_, bytes_);
    ::munmap(near_, bytes_);
    ::close(fd_);
  }
  /// Returns zeroed memory; null when there is no room.
  char* take(std::size_t bytes) noexcept {
    const std::size_t size = (bytes + 4095) / 4096 * 4096, first = taken_.fetch_add(size);
    return first + size <= bytes_ ? far_ + first : nullptr;
  }
  /// Makes the pages zero, so a late reader reads zeros.
  void release(const void* memory, std::size_t bytes) noexcept {
    const auto* at = static_cast<const char*>(memory);
    const auto offset = static_cast<off_t>(is_far(memory) ? at - far_ : at - near_);
    static_cast<void>(::fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset,
                                  static_cast<off_t>((bytes + 4095) / 4096 * 4096)));
  }
  bool is_far(const void* memory) const noexcept { return is_in(memory, far_); }
  bool is_near(const void* memory) const noexcept { return is_in(memory, near_); }
  char* near(const void* memory) const noexcept {
    return near_ + (static_cast<const char*>(memory) - far_);
  }

 private:
  static constexpr std::uintptr_t kPlaces = 1024;  // places tried for the host's mapping
  /// Returns null when the place is taken.
  char* map(char* place, int protection, int flags) const noexcept {
    void* base = ::mmap(place, bytes_, protection, MAP_SHARED | flags, fd_, 0);
    if (base == MAP_FAILED) return nullptr;
    if (place == nullptr || base == place) return static_cast<char*>(base);
    ::munmap(base, bytes_);
    return nullptr;
  }
  bool is_in(const void* memory, const char* base) const noexcept {
    const auto at = reinterpret_cast<std::uintptr_t>(memory);
    const auto first = reinterpret_cast<std::uintptr_t>(base);
    return at >= first && at < first + bytes_;
  }
  int fd_ = -1;
  std::size_t bytes_;
  char* far_ = nullptr;
  char* near_ = nullptr;
  std::atomic<std::size_t> taken_{0};
};

/// State that a HostDevice and its queues share.
struct HostDeviceShared {
  explicit HostDeviceShared(const HostDeviceOptions& how) : options(how), memory(how.bytes) {}
  HostDeviceOptions options;
  TwoFaces memory;
  std::mutex mutex;
  std::string strays;  // names of kernels that were given memory of the host
  std::atomic<int> host_waits{0};

  void* reach(const void* memory_of) const noexcept {
    return memory.is_far(memory_of) ? memory.near(memory_of) : const_cast<void*>(memory_of);
  }
};

class HostEvent final : public EventState {
 public:
  bool has_happened() const noexcept override { return happened_.load(std::memory_order_acquire); }
  bool wait(Time until) const noexcept override {
    std::unique_lock lock(mutex_);
    while (!has_happened()) {
      const Duration left = until - steady_now();
      if (left <= Duration::zero()) return false;
      changed_.wait_for(lock, std::min<Duration>(left, std::chrono::hours(1)));
    }
    return true;
  }
  const EventState* of_device() const noexcept override { return this; }
  void happen() {
    {
      const std::lock_guard lock(mutex_);
      happened_.store(true, std::memory_order_release);
    }
    changed_.notify_all();
  }

 private:
  std::atomic<bool> happened_{false};
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
};

/// A thread that runs one operation after the other.
class HostQueue final : public Queue {
 public:
  explicit HostQueue(std::shared_ptr<HostDeviceShared> shared)
      : shared_(std::move(shared)), cpu_(cpu_device()), thread_([this] { work(); }) {
    stream_.self = this;
    stream_.enqueue = [](FakeStream* self, void (*f)(void*), void* arg) {
      static_cast<Stream*>(self)->self->enqueue([f, arg] { f(arg); });
    };
    stream_.reach = [](FakeStream* self, void* memory) {
      return static_cast<Stream*>(self)->self->shared_->reach(memory);
    };
  }
  HostQueue(const HostQueue&) = delete;
  HostQueue& operator=(const HostQueue&) = delete;
  ~HostQueue() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  void enqueue(std::function<void()> what) {
    {
      const std::lock_guard lock(mutex_);
      todo_.push_back(std::move(what));
    }
    changed_.notify_all();
  }
  void synchronize() override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return todo_.empty(); });
  }
  void* scratch(std::size_t) override { std::abort(); }  // kernels use the CPU queue's
  void parallel(std::int64_t, std::int64_t,
                const std::function<void(std::int64_t, std::int64_t)>&) override {
    std::abort();  // the device's queue divides no work of the host
  }
  int threads() const noexcept override { return 1; }
  void* native() const noexcept override { return &stream_; }

  template <class O>
  void run(const char* name, void (*operation)(Queue&, const O&), const O& o) {
    O copy = o;
    if constexpr (std::is_same_v<O, Dropout>) copy.samples = nullptr;
    if constexpr (std::is_same_v<O, ChunkSquares>) copy.out = nullptr;
    to_near(name, copy);
    // These members are memory of the host (operations.hpp): Dropout's is read during the call,
    // and ChunkSquares' is written at the end.
    if constexpr (std::is_same_v<O, Dropout>) return run_dropout(operation, copy, o.samples);
    if constexpr (std::is_same_v<O, ChunkSquares>) copy.out = o.out;
    enqueue([this, operation, copy] { operation(cpu_.compute(), copy); });
    if constexpr (std::is_same_v<O, ChunkSquares>)
      if (!shared_->memory.is_near(o.out)) synchronize();
  }

 private:
  struct Stream : FakeStream {
    HostQueue* self;
  };
  void run_dropout(void (*operation)(Queue&, const Dropout&), Dropout o,
                   const std::int64_t* samples) {
    std::shared_ptr<std::vector<std::int64_t>> staged;
    if (samples != nullptr)
      staged = std::make_shared<std::vector<std::int64_t>>(
          samples, samples + (o.rows + o.time - 1) / o.time);
    enqueue([this, operation, o, staged]() mutable {
      if (staged) o.samples = staged->data();
      operation(cpu_.compute(), o);
    });
  }
  /// Replaces the device's pointers by the host's.
  template <class O>
  void to_near(const char* name, O& copy) {
    static_assert(std::is_trivially_copyable_v<O>);
#if __has_builtin(__builtin_clear_padding)
    constexpr bool finds_strays = true;
    __builtin_clear_padding(&copy);
#else
    constexpr bool finds_strays = false;  // padding may look like an address
#endif
    auto* bytes = reinterpret_cast<unsigned char*>(&copy);
    for (std::size_t at = 0; at + sizeof(void*) <= sizeof(O); at += sizeof(void*)) {
      std::uintptr_t word = 0;
      std::memcpy(&word, bytes + at, sizeof word);
      auto* memory = reinterpret_cast<void*>(word);
      if (shared_->memory.is_far(memory)) {
        word = reinterpret_cast<std::uintptr_t>(shared_->reach(memory));
        std::memcpy(bytes + at, &word, sizeof word);
      } else if (finds_strays && looks_like_memory(word) && !shared_->memory.is_near(memory)) {
        const std::lock_guard lock(shared_->mutex);
        if (shared_->strays.find(name) == std::string::npos)
          shared_->strays += std::string(name) + " ";
      }
    }
  }
  /// Returns whether the word looks like an address of the heap, the stack or a mapping.
  static bool looks_like_memory(std::uintptr_t word) noexcept {
    return (word >> 40 >= 0x55 && word >> 40 <= 0x56) || word >> 40 == 0x7f;
  }
  void work() {
    const FlushDenormals flush;
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return stopping_ || !todo_.empty(); });
      if (todo_.empty()) return;
      lock.unlock();
      if (shared_->options.delay > Duration::zero())
        std::this_thread::sleep_for(shared_->options.delay);
      todo_.front()();
      lock.lock();
      todo_.pop_front();
      changed_.notify_all();
    }
  }

  std::shared_ptr<HostDeviceShared> shared_;
  Device cpu_;
  mutable Stream stream_{};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> todo_;  // a deque: references stay valid while others are added
  bool stopping_ = false;
  std::thread thread_;
};

class HostDeviceState final : public DeviceState {
 public:
  explicit HostDeviceState(std::shared_ptr<HostDeviceShared> shared) : shared_(std::move(shared)) {}
  std::string name() const override { return "a device of the tests"; }
  bool is_cpu() const noexcept override { return false; }
  const Kernels& kernels() const noexcept override {
    static constexpr Kernels table{
#define TROUPE_HOST_ENTRY(name, Type)                                  \
  .name = [](Queue& queue, const Type& o) {                            \
    static const Device cpu = cpu_device();                            \
    dynamic_cast<HostQueue&>(queue).run(#name, cpu.kernels().name, o); \
  },
        TROUPE_CUDA_OPERATIONS(TROUPE_HOST_ENTRY)
#undef TROUPE_HOST_ENTRY
    };
    return table;
  }
  Queue& compute() noexcept override { return compute_; }
  Queue& copies() noexcept override { return copies_; }
  void* take(std::size_t bytes, Where where) override {
    if (where == Where::host) return std::calloc(1, (bytes + 255) / 256 * 256);
    char* memory = shared_->memory.take(bytes);
    return memory == nullptr || where == Where::device ? memory : shared_->memory.near(memory);
  }
  void release(void* memory, std::size_t bytes, Where where) noexcept override {
    // As cudaFree does, waits for what is under way.
    compute_.synchronize();
    copies_.synchronize();
    if (where == Where::host)
      std::free(memory);
    else
      shared_->memory.release(memory, bytes);
  }
  void copy(Queue& queue, void* to, const void* from, std::size_t bytes) override {
    if (bytes == 0) return;
    auto& own = dynamic_cast<HostQueue&>(queue);
    if (is_far_or_pinned(from)) {
      own.enqueue([this, to, from, bytes] {
        std::memmove(shared_->reach(to), shared_->reach(from), bytes);
      });
    } else {  // the driver does not know this memory: it is read before the call returns
      auto staged = std::make_shared<std::string>(static_cast<const char*>(from), bytes);
      own.enqueue(
          [this, to, staged] { std::memcpy(shared_->reach(to), staged->data(), staged->size()); });
    }
    if (!is_far_or_pinned(to)) queue.synchronize();
  }
  Event record(Queue& queue) override {
    auto event = std::make_shared<HostEvent>();
    dynamic_cast<HostQueue&>(queue).enqueue([event] { event->happen(); });
    return Event(event);
  }
  void wait(Queue& queue, const Event& event) override {
    const auto* own = dynamic_cast<const HostEvent*>(event.of_device());
    if (own != nullptr)
      dynamic_cast<HostQueue&>(queue).enqueue([event, own] { own->wait(Time::max()); });
    else if (!event.has_happened())
      host_waits(event);
  }
  std::unique_ptr<Queue> make_queue() override { return std::make_unique<HostQueue>(shared_); }
  bool is_device_memory(const void* memory) const noexcept override {
    return shared_->options.takes_all || shared_->memory.is_far(memory);
  }

 private:
  bool is_far_or_pinned(const void* memory) const noexcept {
    return shared_->memory.is_far(memory) || shared_->memory.is_near(memory);
  }
  void host_waits(const Event& event) {
    ++shared_->host_waits;
    event.wait(Time::max());
  }

  std::shared_ptr<HostDeviceShared> shared_;
  HostQueue compute_{shared_}, copies_{shared_};
};

class HostDevice {
 public:
  explicit HostDevice(const HostDeviceOptions& options = {})
      : shared_(std::make_shared<HostDeviceShared>(options)),
        device_(std::make_shared<HostDeviceState>(shared_)) {}
  Device& device() noexcept { return device_; }
  /// Returns the names of kernels that were given memory of the host, which a GPU cannot see.
  std::string strays() const {
    const std::lock_guard lock(shared_->mutex);
    return shared_->strays;
  }
  /// Returns how often the host waited because a queue could not wait itself.
  int host_waits() const noexcept { return shared_->host_waits; }
  /// Returns memory of the device as the host sees it. The caller makes sure that all queues are
  /// idle.
  template <class T>
  T* near(T* memory) const noexcept {
    return static_cast<T*>(shared_->reach(memory));
  }

 private:
  std::shared_ptr<HostDeviceShared> shared_;
  Device device_;
};

}  // namespace troupe::kernels
