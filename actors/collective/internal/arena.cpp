#include "troupe/actors/collective/internal/arena.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

namespace troupe::collective::internal {
namespace {

constexpr std::uint64_t kPage = 4096;

std::uint64_t ranks_of(const Shape& s) noexcept {
  return static_cast<std::uint64_t>(s.size);
}
std::uint64_t lanes_of(const Shape& s) noexcept {
  return std::uint64_t{1} + s.splits;
}
/// Returns the size of a ring. Groups of many ranks have smaller ones, since the number of pairs
/// grows with the square.
std::uint64_t fifo_bytes_of(const Shape& s) noexcept {
  return s.size <= 64 ? std::uint64_t{1} << 16 : std::uint64_t{1} << 12;
}

// The control part of a lane: lines, counters of rings, verdicts.
std::uint64_t fifos_in_lane(const Shape& s) noexcept {
  return sizeof(RankLine) * ranks_of(s);
}
std::uint64_t verdicts_in_lane(const Shape& s) noexcept {
  return fifos_in_lane(s) + sizeof(Fifo) * ranks_of(s) * ranks_of(s);
}
std::uint64_t lane_bytes(const Shape& s) noexcept {
  return Arena::round_up_to_page(verdicts_in_lane(s) + sizeof(Verdict) * ranks_of(s));
}
// The calls of all ranks come first, then the control parts of all lanes, all slots, all rings.
std::uint64_t lane_offset(const Shape& s, std::uint64_t lane) noexcept {
  return kPage + Arena::round_up_to_page(sizeof(RankCalls) * ranks_of(s)) + lane_bytes(s) * lane;
}
std::uint64_t slots_offset(const Shape& s, std::uint64_t lane) noexcept {
  return lane_offset(s, lanes_of(s)) + 2 * ranks_of(s) * s.slot_bytes * lane;
}
std::uint64_t rings_offset(const Shape& s, std::uint64_t lane) noexcept {
  return slots_offset(s, lanes_of(s)) + ranks_of(s) * ranks_of(s) * fifo_bytes_of(s) * lane;
}
std::uint64_t pair_of(const Shape& s, int from, int to) noexcept {
  return static_cast<std::uint64_t>(from) * ranks_of(s) + static_cast<std::uint64_t>(to);
}

void* map(int fd, std::uint64_t bytes) {
  // MAP_NORESERVE: most pages are never touched, so the kernel should not account for them in
  // advance.
  const int flags = MAP_SHARED | MAP_NORESERVE | (fd < 0 ? MAP_ANONYMOUS : 0);
  void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
  if (base == MAP_FAILED)
    throw OutOfMemory(Code::out_of_memory, "cannot map " + std::to_string(bytes) +
                                               " bytes for a group: " + std::strerror(errno));
  return base;
}

}  // namespace

std::uint64_t Arena::round_up_to_page(std::uint64_t n) noexcept {
  return (n + kPage - 1) / kPage * kPage;
}

std::uint64_t Arena::bytes(const Shape& shape) noexcept {
  return rings_offset(shape, lanes_of(shape));
}

void Arena::format(void* base, const Shape& shape, std::uint64_t generation) {
  auto* header = new (base) Header{};
  header->magic = Header::kMagic;
  header->version = Header::kVersion;
  header->size = static_cast<std::uint32_t>(shape.size);
  header->generation = generation;
  header->slot_bytes = shape.slot_bytes;
  header->splits = shape.splits;
}

Arena::Arena(void* base, const Shape& shape) noexcept : base_(base), shape_(shape) {}

Arena::~Arena() {
  ::munmap(base_, bytes(shape_));
}

std::shared_ptr<Arena> Arena::anonymous(const Shape& shape) {
  void* base = map(-1, bytes(shape));
  format(base, shape, 0);
  return std::make_shared<Arena>(base, shape);
}

std::shared_ptr<Arena> Arena::of_memfd(const Fd& memory, const Shape& shape) {
  return std::make_shared<Arena>(map(memory.get(), bytes(shape)), shape);
}

RankLine& Arena::line(std::uint32_t lane, int rank) noexcept {
  return reinterpret_cast<RankLine*>(at(lane_offset(shape_, lane)))[rank];
}

Verdict& Arena::verdict(std::uint32_t lane, int rank) noexcept {
  return reinterpret_cast<Verdict*>(at(lane_offset(shape_, lane) + verdicts_in_lane(shape_)))[rank];
}

RankCalls& Arena::calls(int rank) noexcept {
  return reinterpret_cast<RankCalls*>(at(kPage))[rank];
}

std::byte* Arena::slot(std::uint32_t lane, int rank, std::uint32_t phase) noexcept {
  const std::uint64_t index = 2 * static_cast<std::uint64_t>(rank) + phase % 2;
  return at(slots_offset(shape_, lane) + index * shape_.slot_bytes);
}

Fifo& Arena::fifo(std::uint32_t lane, int from, int to) noexcept {
  return reinterpret_cast<Fifo*>(
      at(lane_offset(shape_, lane) + fifos_in_lane(shape_)))[pair_of(shape_, from, to)];
}

std::byte* Arena::fifo_data(std::uint32_t lane, int from, int to) noexcept {
  return at(rings_offset(shape_, lane) + pair_of(shape_, from, to) * fifo_bytes_of(shape_));
}

std::uint32_t Arena::fifo_bytes() const noexcept {
  return static_cast<std::uint32_t>(fifo_bytes_of(shape_));
}

std::uint32_t Arena::take_lane() noexcept {
  std::atomic<std::uint32_t>& taken = header().lanes_taken;
  std::uint32_t seen = taken.load(std::memory_order_relaxed);
  do {
    if (seen >= shape_.splits) return 0;
  } while (!taken.compare_exchange_weak(seen, seen + 1, std::memory_order_acq_rel));
  return seen + 1;
}

std::uint32_t Arena::lanes() noexcept {
  return 1 + std::min(header().lanes_taken.load(std::memory_order_acquire), shape_.splits);
}

}  // namespace troupe::collective::internal
