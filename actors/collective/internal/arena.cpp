#include "troupe/actors/collective/internal/arena.hpp"

#include "troupe/actors/collective/internal/parking.hpp"

#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <new>

namespace troupe::collective::internal {
namespace {

constexpr std::uint64_t kPage = 4096;
std::uint64_t round_up(std::uint64_t n, std::uint64_t to) noexcept {
  return (n + to - 1) / to * to;
}

std::uint64_t verdicts_offset(int size) noexcept {
  return sizeof(Header) + sizeof(RankLine) * static_cast<std::uint64_t>(size);
}

std::uint64_t slots_offset(int size) noexcept {
  return round_up(verdicts_offset(size) + sizeof(Verdict) * static_cast<std::uint64_t>(size),
                  kPage);
}

void* map(int fd, std::uint64_t bytes) {
  const int flags = fd < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED;
  void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
  if (base == MAP_FAILED)
    throw OutOfMemory(Code::out_of_memory, "cannot map " + std::to_string(bytes) +
                                               " bytes for a group: " + std::strerror(errno));
  return base;
}

}  // namespace

std::uint64_t Arena::bytes(int size, std::uint64_t slot_bytes) noexcept {
  return slots_offset(size) + 2 * static_cast<std::uint64_t>(size) * round_up(slot_bytes, kPage);
}

void Arena::format(void* base, int size, std::uint64_t slot_bytes, std::uint64_t generation) {
  auto* header = new (base) Header{};
  header->magic = Header::kMagic;
  header->version = Header::kVersion;
  header->size = static_cast<std::uint32_t>(size);
  header->generation = generation;
  header->slot_bytes = round_up(slot_bytes, kPage);
  for (int i = 0; i < size; ++i)
    new (static_cast<std::byte*>(base) + sizeof(Header) +
         sizeof(RankLine) * static_cast<std::size_t>(i)) RankLine{};
}

Arena::Arena(void* base, int size, std::uint64_t slot_bytes) noexcept
    : base_(base), size_(size), slot_bytes_(round_up(slot_bytes, kPage)) {}

Arena::~Arena() {
  ::munmap(base_, bytes(size_, slot_bytes_));
}

std::shared_ptr<Arena> Arena::anonymous(int size, std::uint64_t slot_bytes) {
  void* base = map(-1, bytes(size, slot_bytes));
  format(base, size, slot_bytes, 0);
  return std::make_shared<Arena>(base, size, slot_bytes);
}

std::shared_ptr<Arena> Arena::of_memfd(const Fd& memory, int size, std::uint64_t slot_bytes) {
  return std::make_shared<Arena>(map(memory.get(), bytes(size, slot_bytes)), size, slot_bytes);
}

RankLine& Arena::line(int rank) noexcept {
  auto* lines = reinterpret_cast<RankLine*>(static_cast<std::byte*>(base_) + sizeof(Header));
  return lines[rank];
}

Verdict& Arena::verdict(int rank) noexcept {
  auto* verdicts =
      reinterpret_cast<Verdict*>(static_cast<std::byte*>(base_) + verdicts_offset(size_));
  return verdicts[rank];
}

std::byte* Arena::slot(int rank, std::uint32_t phase) noexcept {
  const std::uint64_t index = 2 * static_cast<std::uint64_t>(rank) + phase % 2;
  return static_cast<std::byte*>(base_) + slots_offset(size_) + index * slot_bytes_;
}

}  // namespace troupe::collective::internal
