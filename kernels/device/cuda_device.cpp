// Devices behind the CUDA plug-in. Compiled only: nothing here has run on a device so far.
#include "troupe/kernels/device/cuda.hpp"
#include "troupe/kernels/device/internal/device_state.hpp"
#include "troupe/runtime/base/error.hpp"

#include <array>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace troupe::kernels {
namespace {

void check(int error, const char* what) {
  if (error != 0)
    throw Error(Code::internal,
                std::string("CUDA cannot ") + what + ": " + cuda_table()->error_text(error));
}

/// A stream. Its destructor waits for the work that it has enqueued.
class CudaQueue final : public Queue {
 public:
  explicit CudaQueue(int device) {
    check(cuda_table()->create(device, &context_), "open a stream");
  }
  CudaQueue(const CudaQueue&) = delete;
  CudaQueue& operator=(const CudaQueue&) = delete;
  ~CudaQueue() override { cuda_table()->destroy(context_); }

  void synchronize() override { check(cuda_table()->synchronize(context_), "finish its work"); }
  void* scratch(std::size_t bytes) override {
    void* memory = nullptr;
    check(cuda_table()->scratch(context_, bytes, &memory), "allocate scratch");
    return memory;
  }
  void parallel(std::int64_t, std::int64_t,
                const std::function<void(std::int64_t, std::int64_t)>&) override {
    TROUPE_ASSERT(false, "only the CPU's queues divide work of the host");
  }
  int threads() const noexcept override { return 1; }
  void* native() const noexcept override { return cuda_table()->stream(context_); }
  troupe_cuda_context* context() const noexcept { return context_; }

 private:
  troupe_cuda_context* context_ = nullptr;
};

troupe_cuda_context* context_of(Queue& queue) {
  auto* own = dynamic_cast<CudaQueue*>(&queue);
  TROUPE_ASSERT(own != nullptr, "a CUDA operation needs a queue of its device");
  return own->context();
}

class CudaEvent final : public EventState {
 public:
  explicit CudaEvent(void* event) : event_(event) {}
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  ~CudaEvent() override { cuda_table()->forget(event_); }
  /// Also true after a fault of the device; the queue's next call then reports the fault.
  bool has_happened() const noexcept override {
    int yes = 0;
    return cuda_table()->has_happened(event_, &yes) != 0 || yes != 0;
  }
  bool wait(Time until) const noexcept override {
    while (!has_happened()) {
      if (steady_now() >= until) return has_happened();
      std::this_thread::yield();
    }
    return true;
  }
  const EventState* of_device() const noexcept override { return this; }
  void* event() const noexcept { return event_; }

 private:
  void* event_;
};

const Kernels& cuda_kernels() noexcept {
  static constexpr Kernels kTable{
#define TROUPE_CUDA_ENTRY(name, Type)                        \
  .name = [](Queue& queue, const Type& o) {                  \
    check(cuda_table()->name(context_of(queue), &o), #name); \
  },
      TROUPE_CUDA_OPERATIONS(TROUPE_CUDA_ENTRY)
#undef TROUPE_CUDA_ENTRY
  };
  return kTable;
}

class CudaDevice final : public DeviceState {
 public:
  explicit CudaDevice(int index) : index_(index) {}

  std::string name() const override {
    std::array<char, 256> name{};
    check(cuda_table()->device_name(index_, name.data(), name.size()), "name its device");
    return "cuda " + std::to_string(index_) + ", " + name.data();
  }
  bool is_cpu() const noexcept override { return false; }
  const Kernels& kernels() const noexcept override { return cuda_kernels(); }
  Queue& compute() noexcept override { return compute_; }
  Queue& copies() noexcept override { return copies_; }
  void* take(std::size_t bytes, Where where) override;
  void release(void* memory, std::size_t bytes, Where where) noexcept override;
  void copy(Queue& queue, void* to, const void* from, std::size_t bytes) override {
    check(cuda_table()->copy(context_of(queue), to, from, bytes), "copy");
  }
  Event record(Queue& queue) override {
    void* event = nullptr;
    check(cuda_table()->record(context_of(queue), &event), "record an event");
    return Event(std::make_shared<CudaEvent>(event));
  }
  void wait(Queue& queue, const Event& event) override;
  std::unique_ptr<Queue> make_queue() override { return std::make_unique<CudaQueue>(index_); }
  bool is_device_memory(const void* memory) const override {
    int yes = 0;
    check(cuda_table()->is_device_memory(memory, &yes), "say where memory lies");
    return yes != 0;
  }
  void make_current() override { check(cuda_table()->make_current(index_), "use its device"); }

 private:
  int index_;
  CudaQueue compute_{index_}, copies_{index_};
};

void* CudaDevice::take(std::size_t bytes, Where where) {
  constexpr int kNoMemory = 2;  // cudaErrorMemoryAllocation
  void* memory = nullptr;
  if (where != Where::host) {
    const int error = cuda_table()->allocate(index_, &memory, bytes, where == Where::pinned);
    if (error == kNoMemory) return nullptr;
    check(error, "allocate");
    return memory;
  }
  constexpr std::size_t kAlignment = 256;
  memory = std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  if (memory != nullptr) std::memset(memory, 0, bytes);
  return memory;
}

void CudaDevice::release(void* memory, std::size_t, Where where) noexcept {
  if (where == Where::host)
    std::free(memory);
  else
    cuda_table()->release(index_, memory, where == Where::pinned);
}

void CudaDevice::wait(Queue& queue, const Event& event) {
  if (const auto* own = dynamic_cast<const CudaEvent*>(event.of_device()))
    check(cuda_table()->wait(context_of(queue), own->event()), "wait for an event");
  else
    event.wait(Time::max());
}

}  // namespace

Device cuda_device(int index) {
  const troupe_cuda_table* table = cuda_table();
  if (table == nullptr)
    throw Unavailable(Code::unavailable, "there is no CUDA device: " + cuda_status());
  const int devices = table->device_count();
  if (index < 0 || index >= devices)
    throw InvalidArgument(Code::invalid_argument, "there is no CUDA device " +
                                                      std::to_string(index) + ": there are " +
                                                      std::to_string(devices) + ", from 0 on");
  return Device(std::make_shared<CudaDevice>(index));
}

}  // namespace troupe::kernels
