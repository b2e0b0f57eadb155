#include "troupe/actors/collective/shm/shm.hpp"

#include "troupe/actors/collective/internal/rank.hpp"
#include "troupe/runtime/base/memory_file.hpp"
#include "troupe/runtime/base/standard_descriptors.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <numeric>

namespace troupe::collective {
namespace {

[[noreturn]] void reject(const std::string& why) {
  throw InvalidArgument(Code::invalid_argument, why);
}

bool in_range(std::uint64_t size, std::uint64_t slot, std::uint64_t splits) {
  return size >= 1 && size <= internal::kMaxSize && slot >= internal::kMinSlot &&
         slot <= internal::kMaxSlot && splits <= internal::kMaxSplits;
}

/// Reads the header through the descriptor and checks it against the file before anything is
/// mapped: a process could shrink memory without seals, and a read of the mapping would be SIGBUS.
internal::Shape check_memory(const Fd& memory, int rank, std::uint64_t generation) {
  struct stat status{};
  alignas(internal::Header) std::byte raw[sizeof(internal::Header)];
  if (::fstat(memory.get(), &status) != 0 ||
      ::pread(memory.get(), raw, sizeof raw, 0) != static_cast<ssize_t>(sizeof raw))
    reject("the descriptor is not a group's memory");
  const int seals = ::fcntl(memory.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0)
    reject("the group's memory is not sealed against shrinking");
  const auto* header = reinterpret_cast<const internal::Header*>(raw);
  const auto bytes = static_cast<std::uint64_t>(status.st_size);
  const internal::Shape shape{static_cast<int>(header->size), header->slot_bytes, header->splits};
  if (header->magic != internal::Header::kMagic || header->version != internal::Header::kVersion ||
      !in_range(header->size, header->slot_bytes, header->splits) ||
      header->slot_bytes != internal::Arena::round_up_to_page(header->slot_bytes) ||
      internal::Arena::bytes(shape) != bytes)
    reject("the descriptor is not the memory of a group of this version");
  if (header->generation != generation)
    reject("the group has generation " + std::to_string(header->generation) + ", this rank " +
           std::to_string(generation) + ": it belongs to an older or newer group");
  if (rank < 0 || rank >= static_cast<int>(header->size))
    reject("rank " + std::to_string(rank) + " is not in a group of " +
           std::to_string(header->size));
  return shape;
}

}  // namespace

Fd create_shm_group(const ShmOptions& options) {
  if (options.size < 1 || options.splits < 0 ||
      !in_range(static_cast<std::uint64_t>(options.size), options.slot.count,
                static_cast<std::uint64_t>(options.splits)))
    reject("a group has 1 to 1024 ranks, slots of 4 KiB to 1 GiB and 0 to 64 splits");
  const internal::Shape shape{options.size, internal::Arena::round_up_to_page(options.slot.count),
                              static_cast<std::uint32_t>(options.splits)};
  const std::uint64_t bytes = internal::Arena::bytes(shape);
  Fd memory = make_fd(::memfd_create("troupe-group", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory || !resize_memory(memory.get(), bytes) ||
      ::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    throw NoSpace(Code::no_space, "cannot make shared memory of " + std::to_string(bytes) +
                                      " bytes for a group: " + std::strerror(errno) + "; " +
                                      memory_remedy(errno));
  void* base = ::mmap(nullptr, sizeof(internal::Header), PROT_READ | PROT_WRITE, MAP_SHARED,
                      memory.get(), 0);
  if (base == MAP_FAILED)
    throw NoSpace(Code::no_space,
                  std::string("cannot map a group's memory: ") + std::strerror(errno));
  internal::Arena::format(base, shape, options.generation);
  ::munmap(base, sizeof(internal::Header));
  return memory;
}

std::shared_ptr<internal::Arena> internal::open_shm_arena(const Fd& memory, int rank,
                                                          std::uint64_t generation) {
  return Arena::of_memfd(memory, check_memory(memory, rank, generation));
}

std::unique_ptr<Communicator> join_shm_group(const Fd& memory, int rank, std::uint64_t generation,
                                             Duration timeout, Progress progress) {
  std::shared_ptr<internal::Arena> arena = internal::open_shm_arena(memory, rank, generation);
  internal::Seats seats;
  seats.members.resize(static_cast<std::size_t>(arena->size()));
  std::iota(seats.members.begin(), seats.members.end(), 0);
  internal::ArenaCommunicator::How how;
  how.timeout = timeout;
  how.watch_processes = true;
  how.progress = progress;
  return std::make_unique<internal::ArenaCommunicator>(std::move(arena), std::move(seats), rank,
                                                       how);
}

}  // namespace troupe::collective
