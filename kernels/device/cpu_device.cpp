#include "troupe/kernels/device/device.hpp"
#include "troupe/kernels/device/internal/cpu_table.hpp"
#include "troupe/kernels/device/internal/device_state.hpp"
#include "troupe/kernels/device/internal/thread_pool.hpp"
#include "troupe/kernels/gemm/blas.hpp"
#include "troupe/kernels/internal/simd.hpp"
#include "troupe/runtime/base/error.hpp"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

namespace troupe::kernels {
namespace {

constexpr int kMostThreads = 256;

#if defined(TROUPE_SANITIZED)
constexpr std::size_t kPages = static_cast<std::size_t>(-1);  // sanitizers check the heap only
#else
constexpr std::size_t kPages = std::size_t{1} << 20;  // from this size on memory comes from mmap
#endif

void* take_zeroed(std::size_t bytes) noexcept {
  if (bytes >= kPages) {
    void* pages =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) return nullptr;
    ::madvise(pages, bytes, MADV_HUGEPAGE);
    return pages;
  }
  constexpr std::size_t kAlignment = 256;
  void* memory = std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  if (memory != nullptr) std::memset(memory, 0, bytes);
  return memory;
}

void give_back(void* memory, std::size_t bytes) noexcept {
  if (bytes >= kPages)
    ::munmap(memory, bytes);
  else
    std::free(memory);
}

/// A queue whose work is done when a call returns.
class CpuQueue final : public Queue {
 public:
  explicit CpuQueue(internal::ThreadPool& pool) : pool_(pool) {}
  CpuQueue(const CpuQueue&) = delete;
  CpuQueue& operator=(const CpuQueue&) = delete;
  ~CpuQueue() override {
    if (scratch_ != nullptr) give_back(scratch_, bytes_);
  }

  void synchronize() override {}
  void* scratch(std::size_t bytes) override;
  void parallel(std::int64_t n, std::int64_t grain,
                const std::function<void(std::int64_t, std::int64_t)>& part) override {
    pool_.run(n, grain, part);
  }
  int threads() const noexcept override { return pool_.threads(); }

 private:
  internal::ThreadPool& pool_;
  void* scratch_ = nullptr;
  std::size_t bytes_ = 0;
};

void* CpuQueue::scratch(std::size_t bytes) {
  if (bytes <= bytes_) return scratch_;
  void* memory = take_zeroed(bytes);
  if (memory == nullptr)
    throw OutOfMemory(Code::out_of_memory,
                      "no room for " + std::to_string(bytes) + " bytes of a queue's scratch");
  if (scratch_ != nullptr) give_back(scratch_, bytes_);
  scratch_ = memory;
  bytes_ = bytes;
  return scratch_;
}

class CpuDevice final : public DeviceState {
 public:
  explicit CpuDevice(int threads) : pool_(threads) {}

  std::string name() const override {
    return "cpu, " + std::to_string(pool_.threads()) +
           (pool_.threads() == 1 ? " thread, " : " threads, ") + blas_description();
  }
  bool is_cpu() const noexcept override { return true; }
  const Kernels& kernels() const noexcept override { return internal::cpu_kernels(); }
  Queue& compute() noexcept override { return compute_; }
  Queue& copies() noexcept override { return copies_; }
  void* take(std::size_t bytes, Where) noexcept override { return take_zeroed(bytes); }
  void release(void* memory, std::size_t bytes, Where) noexcept override {
    give_back(memory, bytes);
  }
  void copy(Queue& queue, void* to, const void* from, std::size_t bytes) override;
  Event record(Queue&) override { return {}; }
  void wait(Queue&, const Event& event) override { event.wait(Time::max()); }
  std::unique_ptr<Queue> make_queue() override { return std::make_unique<CpuQueue>(pool_); }
  bool is_device_memory(const void*) const noexcept override { return false; }

 private:
  internal::ThreadPool pool_;
  CpuQueue compute_{pool_}, copies_{pool_};
};

void CpuDevice::copy(Queue& queue, void* to, const void* from, std::size_t bytes) {
  constexpr std::int64_t kGrain = 1 << 18;
  if (bytes == 0 || to == from) return;
  queue.parallel(
      static_cast<std::int64_t>(bytes), kGrain, [=](std::int64_t first, std::int64_t end) {
        std::memcpy(static_cast<char*>(to) + first, static_cast<const char*>(from) + first,
                    static_cast<std::size_t>(end - first));
      });
}

}  // namespace

Device cpu_device(const CpuOptions& options) {
  if (options.threads < 1 || options.threads > kMostThreads)
    throw InvalidArgument(Code::invalid_argument, "a device computes with 1 to 256 threads, not " +
                                                      std::to_string(options.threads));
  return Device(std::make_shared<CpuDevice>(options.threads));
}

}  // namespace troupe::kernels
