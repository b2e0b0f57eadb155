/// Makes, maps, seals and checks anonymous shared memory (memfd). It has no name, so nothing of it
/// remains after kill -9 of the processes that hold it.
///
///     Result<Fd> fd = make_memory("troupe-extent", 64 << 20);
///     Result<Mapping> writer = map_memory(fd->get(), 64 << 20, Access::write);
///     seal_memory(fd->get());            // nobody can write it anew, resize it or unseal it
#pragma once

#include "troupe/runtime/base/fd.hpp"
#include "troupe/runtime/base/result.hpp"

#include <cstddef>
#include <cstdint>

namespace troupe::objectstore::internal {

enum class Access { read, write };

/// Owns one mapping.
class Mapping {
 public:
  Mapping() noexcept = default;
  Mapping(void* data, std::uint64_t bytes) noexcept : data_(data), bytes_(bytes) {}
  Mapping(Mapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Mapping();
  std::byte* data() const noexcept { return static_cast<std::byte*>(data_); }
  std::uint64_t bytes() const noexcept { return bytes_; }
  explicit operator bool() const noexcept { return data_ != nullptr; }
  /// Gives up ownership; the memory stays mapped.
  void release() noexcept { data_ = nullptr; }

 private:
  void* data_ = nullptr;
  std::uint64_t bytes_ = 0;
};

/// Returns a new memfd of `bytes`, all zero, sealable, not inherited by exec. No page is allocated
/// yet.
Result<Fd> make_memory(const char* name, std::uint64_t bytes);
/// Maps all of `fd`, shared, not inherited by fork, left out of core dumps. With `at`, the new
/// mapping replaces the one at that address in one step, so that no moment has a hole there.
Result<Mapping> map_memory(int fd, std::uint64_t bytes, Access access, void* at = nullptr);
/// Asks for large pages. The kernel gives them where
/// /sys/kernel/mm/transparent_hugepage/shmem_enabled is `advise`; elsewhere the call has no effect.
void ask_for_large_pages(const Mapping& mapping) noexcept;
/// Maps private zero pages, which cost no memory until they are touched.
Result<Mapping> map_zeroes(std::uint64_t bytes);
/// Replaces a shared mapping in place by read-only zero pages: its memory is freed, and its
/// addresses stay valid.
void forget_in_place(const Mapping& mapping) noexcept;
/// Allocates and maps the pages of [data, data + bytes) for writing; a hint that may do nothing.
void populate(std::byte* data, std::uint64_t bytes) noexcept;

/// Adds F_SEAL_SHRINK | GROW | FUTURE_WRITE | SEAL. Writable mappings that exist stay writable. No
/// process can make another one or change the size, not through /proc/*/fd either.
Result<void> seal_memory(int fd);
/// Returns an error unless fd is a memfd of exactly `bytes` with the seals of seal_memory(). Only
/// such memory may be read: if a process could shrink it, the reader would get SIGBUS.
Result<void> check_sealed(int fd, std::uint64_t bytes, const char* what);
/// Returns an error unless fd is a memfd of exactly `bytes`.
Result<void> check_size(int fd, std::uint64_t bytes, const char* what);
Result<Fd> duplicate(int fd);

/// Returns out_of_memory with the text of the errno and a remedy.
Error memory_error(const char* what, std::uint64_t bytes, int error);

}  // namespace troupe::objectstore::internal
