#include "train/reduction_floor.hpp"

#include "tools.hpp"

#include <sys/mman.h>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <new>
#include <thread>
#include <utility>

namespace troupe::bench {
namespace {

constexpr std::size_t kPiece = 64 * 1024;  // elements: 256 KiB

/// Spins, since each side has its own CPU, and yields after a while in case it has not. Throws
/// when the other side does not reach `least` within kBound.
void wait_for(const std::atomic<std::uint64_t>& number, std::uint64_t least) {
  const auto has_come = [&] { return number.load(std::memory_order_acquire) >= least; };
  for (int spins = 0; spins < 1000; ++spins)
    if (has_come()) return;
  for (const Stopwatch watch; !has_come(); std::this_thread::yield())
    expect(watch.seconds() < std::chrono::duration<double>(kBound).count(),
           "the other side of the reduction");
}

int cpu_of_side(int side) {
  return possible(Placement::two_cpus) ? cpu_of(Placement::two_cpus, side)
                                       : cpu_of(Placement::one_cpu, side);
}

}  // namespace

struct ReductionFloor::Shared {
  struct alignas(64) Number {
    std::atomic<std::uint64_t> value{0};
  };
  Number written[2];    ///< number of pieces written by each side
  Number asked, begun;  ///< number of sums asked of the other side; begun by it
  float pieces[2][2][kPiece];
};

ReductionFloor::ReductionFloor(std::int64_t elements) : slab_(static_cast<std::size_t>(elements)) {
  void* memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  expect(memory != MAP_FAILED, "memory that two processes share");
  shared_ = new (memory) Shared;
  other_ = std::make_unique<Other>(cpu_of_side(1), [this] { serve(); });
}

ReductionFloor::~ReductionFloor() {
  other_.reset();
  munmap(shared_, sizeof(Shared));
}

/// A place is written again two pieces later. The other side has read it by then, since it reads
/// a piece before it writes the next one.
void ReductionFloor::add(int side, std::uint64_t& met) {
  for (std::size_t first = 0; first < slab_.size(); first += kPiece, ++met) {
    const std::size_t count = std::min(kPiece, slab_.size() - first), place = met % 2;
    float* const own = slab_.data() + first;
    std::memcpy(shared_->pieces[side][place], own, count * sizeof(float));
    shared_->written[side].value.store(met + 1, std::memory_order_release);
    wait_for(shared_->written[1 - side].value, met + 1);
    const float* const theirs = shared_->pieces[1 - side][place];
    for (std::size_t i = 0; i < count; ++i) own[i] += theirs[i];
  }
}

void ReductionFloor::serve() {
  std::uint64_t met = 0;
  for (std::uint64_t sum = 1;; ++sum) {
    std::fill(slab_.begin(), slab_.end(), 2.0f);
    wait_for(shared_->asked.value, sum);
    shared_->begun.value.store(sum, std::memory_order_release);
    add(1, met);
  }
}

double ReductionFloor::measure(int times) {
  const Pinned here(cpu_of_side(0));
  std::vector<double> seconds;
  for (int i = 0; i < times; ++i) {
    std::fill(slab_.begin(), slab_.end(), 1.0f);
    wait_for(shared_->begun.value, shared_->asked.value.fetch_add(1) + 1);
    const Stopwatch watch;
    add(0, met_);
    seconds.push_back(watch.seconds());
    expect(slab_.front() == 3 && slab_.back() == 3, "the sum of both slabs");
  }
  return middle(std::move(seconds));
}

}  // namespace troupe::bench
