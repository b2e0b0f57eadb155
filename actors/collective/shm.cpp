#include "troupe/actors/collective/shm.hpp"

#include "troupe/actors/collective/internal/arena.hpp"
#include "troupe/runtime/base/standard_descriptors.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

namespace troupe::collective {
namespace {

[[noreturn]] void reject(const std::string& why) {
  throw InvalidArgument(Code::invalid_argument, why);
}

bool in_range(std::uint64_t size, std::uint64_t slot) {
  return size >= 1 && size <= internal::kMaxSize && slot >= internal::kMinSlot &&
         slot <= internal::kMaxSlot;
}

struct Shape {
  int size;
  std::uint64_t slot_bytes;
};

/// Reads the header through the descriptor and checks it against the file, before anything is
/// mapped.
Shape check_memory(const Fd& memory, int rank, std::uint64_t generation) {
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
  if (header->magic != internal::Header::kMagic || header->version != internal::Header::kVersion ||
      !in_range(header->size, header->slot_bytes) ||
      internal::Arena::bytes(static_cast<int>(header->size), header->slot_bytes) != bytes)
    reject("the descriptor is not the memory of a group of this version");
  if (header->generation != generation)
    reject("the group has generation " + std::to_string(header->generation) + ", this rank " +
           std::to_string(generation) + ": it belongs to an older or newer group");
  if (rank < 0 || rank >= static_cast<int>(header->size))
    reject("rank " + std::to_string(rank) + " is not in a group of " +
           std::to_string(header->size));
  return {static_cast<int>(header->size), header->slot_bytes};
}

}  // namespace

Fd create_shm_group(const ShmOptions& options) {
  if (options.size < 1 || !in_range(static_cast<std::uint64_t>(options.size), options.slot.count))
    reject("a group has 1 to 1024 ranks and slots of 4 KiB to 1 GiB");
  const std::uint64_t bytes = internal::Arena::bytes(options.size, options.slot.count);
  Fd memory = make_fd(::memfd_create("troupe-group", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory || ::ftruncate(memory.get(), static_cast<off_t>(bytes)) != 0 ||
      ::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    throw NoSpace(Code::no_space, "cannot make shared memory of " + std::to_string(bytes) +
                                      " bytes for a group: " + std::strerror(errno));
  void* base = ::mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED,
                      memory.get(), 0);
  if (base == MAP_FAILED)
    throw NoSpace(Code::no_space,
                  std::string("cannot map a group's memory: ") + std::strerror(errno));
  internal::Arena::format(base, options.size, options.slot.count, options.generation);
  ::munmap(base, static_cast<std::size_t>(bytes));
  return memory;
}

std::unique_ptr<Communicator> join_shm_group(const Fd& memory, int rank, std::uint64_t generation,
                                             Duration timeout) {
  const Shape shape = check_memory(memory, rank, generation);
  return std::make_unique<internal::ArenaCommunicator>(
      internal::Arena::of_memfd(memory, shape.size, shape.slot_bytes), rank, timeout, true);
}

}  // namespace troupe::collective
