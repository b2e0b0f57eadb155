/// The part of CUDA that the plug-in's kernels need, on the host. Blocks run one after another;
/// the threads of a block are fibers that meet at __syncthreads and at shuffles. It is slow, and
/// it does not show races between blocks or the hardware's floating-point arithmetic. run.py says
/// how it is used.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <vector>

namespace emulator {

struct Index {
  unsigned x = 0, y = 0, z = 0;
};
extern Index thread, block, threads, blocks;

/// Runs `body` once for each thread of a grid. `meet` says that the threads of a block wait for
/// each other.
void launch(dim3 grid, dim3 team, bool meet, const std::function<void()>& body);
/// Waits for all threads of the block.
void meet_block();
/// Gives `value` to the other lanes of the warp, and returns the value of lane `from`.
double shuffle(double value, unsigned from);
unsigned lane();

}  // namespace emulator

#define threadIdx emulator::thread
#define blockIdx emulator::block
#define blockDim emulator::threads
#define gridDim emulator::blocks
#undef __shared__
#define __shared__ static  // blocks run one after another

inline void __syncthreads() {
  emulator::meet_block();
}
template <class T>
T __shfl_xor_sync(unsigned, T value, unsigned mask) {
  return static_cast<T>(emulator::shuffle(static_cast<double>(value), emulator::lane() ^ mask));
}
template <class T>
T __shfl_sync(unsigned, T value, int from) {
  return static_cast<T>(emulator::shuffle(static_cast<double>(value), static_cast<unsigned>(from)));
}
inline float __fmul_rn(float a, float b) {
  return a * b;
}
inline float __fadd_rn(float a, float b) {
  return a + b;
}
inline float __fsub_rn(float a, float b) {
  return a - b;
}
inline float __fdiv_rn(float a, float b) {
  return a / b;
}
inline float __fsqrt_rn(float a) {
  return std::sqrt(a);
}
inline uint32_t __umulhi(uint32_t a, uint32_t b) {
  return static_cast<uint32_t>((uint64_t{a} * b) >> 32);
}
using std::sqrt;

namespace cub {
/// Sorts by the low bits of the keys; the sort is stable.
struct DeviceRadixSort {
  static int SortPairs(void* memory, size_t& bytes, const int32_t* keys, int32_t* sorted_keys,
                       const int32_t* values, int32_t* sorted_values, int n, int, int bits,
                       cudaStream_t);
};
}  // namespace cub
