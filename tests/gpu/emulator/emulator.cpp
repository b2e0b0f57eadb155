#include "emulator.hpp"

#include <ucontext.h>

#include <cstdio>
#include <cstdlib>
#include <numeric>

namespace emulator {

Index thread, block, threads, blocks;

namespace {

constexpr unsigned kWarp = 32;
constexpr std::size_t kStack = std::size_t{128} << 10;
constexpr long kMostRounds = 10'000'000;

struct Fiber {
  ucontext_t context{};
  std::vector<char> stack = std::vector<char>(kStack);
  Index index;
  bool done = false;
};

/// A barrier at which `expected` fibers wait for each other.
struct Gate {
  unsigned expected = 0, arrived = 0;
  long round = 0;
};

struct Block {
  ucontext_t scheduler{};
  std::vector<std::unique_ptr<Fiber>> fibers;
  std::size_t current = 0;
  const std::function<void()>* body = nullptr;
  Gate all;
  std::array<Gate, 32> warps;
  std::array<std::array<double, kWarp>, 32> given{};
};
Block state;

unsigned linear() {
  return thread.x + thread.y * threads.x;
}

void leave() {
  swapcontext(&state.fibers[state.current]->context, &state.scheduler);
}

void meet(Gate& gate) {
  if (++gate.arrived == gate.expected) {
    gate.arrived = 0;
    ++gate.round;
    return;
  }
  for (const long round = gate.round; gate.round == round;) leave();
}

void run_fiber() {
  (*state.body)();
  state.fibers[state.current]->done = true;
  leave();
}

void begin_block(dim3 team, unsigned n) {
  state.all = {n};
  for (unsigned w = 0; w < state.warps.size(); ++w)
    state.warps[w] = {n > w * kWarp ? std::min(kWarp, n - w * kWarp) : 0};
  while (state.fibers.size() < n) state.fibers.push_back(std::make_unique<Fiber>());
  for (unsigned i = 0; i < n; ++i) {
    Fiber& fiber = *state.fibers[i];
    fiber.done = false;
    fiber.index = {i % team.x, i / team.x, 0};
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.data();
    fiber.context.uc_stack.ss_size = fiber.stack.size();
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, run_fiber, 0);
  }
}

/// Runs each fiber that has not ended once; returns how many ended in this round.
unsigned run_round(unsigned n) {
  unsigned done = 0;
  for (unsigned i = 0; i < n; ++i) {
    Fiber& fiber = *state.fibers[i];
    if (fiber.done) continue;
    state.current = i;
    thread = fiber.index;
    swapcontext(&state.scheduler, &fiber.context);
    done += fiber.done;
  }
  return done;
}

void run_block(dim3 team) {
  const unsigned n = team.x * team.y;
  begin_block(team, n);
  long rounds = 0;
  for (unsigned left = n; left > 0; left -= run_round(n))
    if (++rounds > kMostRounds) {
      std::fprintf(stderr, "emulator: the threads of a block wait for each other for ever\n");
      std::abort();
    }
}

void run_apart(dim3 team) {
  for (unsigned y = 0; y < team.y; ++y)
    for (unsigned x = 0; x < team.x; ++x) {
      thread = {x, y, 0};
      (*state.body)();
    }
}

}  // namespace

void launch(dim3 grid, dim3 team, bool meet, const std::function<void()>& body) {
  threads = {team.x, team.y, 1};
  blocks = {grid.x, grid.y, 1};
  state.body = &body;
  for (unsigned y = 0; y < grid.y; ++y)
    for (unsigned x = 0; x < grid.x; ++x) {
      block = {x, y, 0};
      meet ? run_block(team) : run_apart(team);
    }
}

void meet_block() {
  meet(state.all);
}
unsigned lane() {
  return linear() % kWarp;
}
double shuffle(double value, unsigned from) {
  const unsigned warp = linear() / kWarp;
  state.given[warp][lane()] = value;
  meet(state.warps[warp]);
  const double result = state.given[warp][from];
  meet(state.warps[warp]);  // all lanes have read before one writes its next value
  return result;
}

}  // namespace emulator

int cub::DeviceRadixSort::SortPairs(void* memory, size_t& bytes, const int32_t* keys,
                                    int32_t* sorted_keys, const int32_t* values,
                                    int32_t* sorted_values, int n, int, int bits, cudaStream_t) {
  if (memory == nullptr) {
    bytes = 64;
    return 0;
  }
  const uint32_t mask = (uint32_t{1} << bits) - 1;
  std::vector<int> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return (keys[a] & mask) < (keys[b] & mask); });
  for (std::size_t i = 0; i < order.size(); ++i) {
    sorted_keys[i] = keys[order[i]];
    sorted_values[i] = values[order[i]];
  }
  return 0;
}

// The runtime. Memory of the device is memory of the host, and every operation has ended when its
// call returns.
extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
const char* cudaGetErrorString(cudaError_t) {
  return "an error of the emulator";
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  std::strcpy(properties->name, "emulator");
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int) {
  return cudaSuccess;
}
cudaError_t cudaGetLastError() {
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** memory, size_t bytes) {
  *memory = std::aligned_alloc(256, (bytes + 256) / 256 * 256);
  std::memset(*memory, 0x7F, bytes);  // memory that is never written reads as 3.4e38
  return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  std::free(memory);
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned) {
  return cudaMalloc(memory, bytes);
}
cudaError_t cudaFreeHost(void* memory) {
  return cudaFree(memory);
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* known, const void*) {
  *known = {};  // all memory is the host's
  return cudaSuccess;
}
cudaError_t cudaMemset(void* memory, int value, size_t bytes) {
  std::memset(memory, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t) {
  std::memmove(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = nullptr;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t) {
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) {
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) {
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = nullptr;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) {
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t) {
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t) {
  return cudaSuccess;
}

// The driver: the loader calls it before it opens the plug-in.
__attribute__((visibility("default"))) int cuInit(unsigned) {
  return 0;
}
__attribute__((visibility("default"))) int cuDeviceGetCount(int* count) {
  *count = 1;
  return 0;
}

}  // extern "C"
