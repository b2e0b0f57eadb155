#include "troupe/objectstore/internal/shared_memory.hpp"

#include "troupe/runtime/base/memory_file.hpp"
#include "troupe/runtime/base/standard_descriptors.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <cerrno>
#include <cstring>
#include <string>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace troupe::objectstore::internal {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;

}  // namespace

Mapping::~Mapping() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

Error memory_error(const char* what, std::uint64_t bytes, int error) {
  return Error(Code::out_of_memory, "cannot " + std::string(what) + " of " + std::to_string(bytes) +
                                        " bytes of shared memory: " + std::strerror(error) + "; " +
                                        memory_remedy(error));
}

Result<Fd> make_memory(const char* name, std::uint64_t bytes) {
  Fd fd = make_fd(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL));
  if (!fd && errno == EINVAL) fd = make_fd(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd || !resize_memory(fd.get(), bytes)) return memory_error("create a segment", bytes, errno);
  return fd;
}

Result<Mapping> map_memory(int fd, std::uint64_t bytes, Access access, void* at) {
  const int protection = access == Access::write ? PROT_READ | PROT_WRITE : PROT_READ;
  void* data = mmap(at, bytes, protection, MAP_SHARED | (at != nullptr ? MAP_FIXED : 0), fd, 0);
  if (data == MAP_FAILED) return memory_error("map a segment", bytes, errno);
  madvise(data, bytes, MADV_DONTFORK);
  madvise(data, bytes, MADV_DONTDUMP);
  return Mapping(data, bytes);
}

void ask_for_large_pages(const Mapping& mapping) noexcept {
  constexpr std::uint64_t kLarge = 2u << 20;
  if (mapping.bytes() >= kLarge) madvise(mapping.data(), mapping.bytes(), MADV_HUGEPAGE);
}

Result<Mapping> map_zeroes(std::uint64_t bytes) {
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) return memory_error("map a table", bytes, errno);
  return Mapping(data, bytes);
}

void forget_in_place(const Mapping& mapping) noexcept {
  [[maybe_unused]] const void* same =
      mmap(mapping.data(), mapping.bytes(), PROT_READ,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

void populate(std::byte* data, std::uint64_t bytes) noexcept {
  madvise(data, bytes, MADV_POPULATE_WRITE);  // before Linux 5.14 the first use of a page does it
}

Result<void> seal_memory(int fd) {
  if (fcntl(fd, F_ADD_SEALS, kSeals) != 0)
    return Error(Code::internal,
                 std::string("cannot seal shared memory (Linux 5.1 or newer is needed): ") +
                     std::strerror(errno));
  return {};
}

Result<void> check_size(int fd, std::uint64_t bytes, const char* what) {
  struct stat info{};
  if (fstat(fd, &info) != 0 || fcntl(fd, F_GET_SEALS) < 0)
    return Error(Code::invalid_argument, std::string(what) + ": not a memfd");
  if (static_cast<std::uint64_t>(info.st_size) != bytes)
    return Error(Code::invalid_argument, std::string(what) + ": " + std::to_string(info.st_size) +
                                             " bytes, not " + std::to_string(bytes));
  return {};
}

Result<void> check_sealed(int fd, std::uint64_t bytes, const char* what) {
  if (Result<void> size = check_size(fd, bytes, what); !size) return size;
  if ((fcntl(fd, F_GET_SEALS) & kSeals) != kSeals)
    return Error(Code::invalid_argument, std::string(what) + ": not sealed by its agent");
  return {};
}

Result<Fd> duplicate(int fd) {
  Fd copy = make_fd(fcntl(fd, F_DUPFD_CLOEXEC, 3));
  if (!copy) return memory_error("pass a descriptor", 0, errno);
  return copy;
}

}  // namespace troupe::objectstore::internal
