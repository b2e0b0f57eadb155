/// Anonymous shared memory (memfd): made, mapped, sealed, checked. Nothing remains of it after
/// kill -9 of its holders.
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

/// A new memfd of `bytes`, all zero, sealable, not inherited by exec. No page is allocated yet.
Result<Fd> make_memory(const char* name, std::uint64_t bytes);
/// Maps all of it, shared, not inherited by fork, left out of core dumps. Over `at` when given:
/// then whatever was mapped there is replaced in one step.
Result<Mapping> map_memory(int fd, std::uint64_t bytes, Access access, void* at = nullptr);
/// Where the machine gives large pages to shared memory that asks for them (`advise` in
/// /sys/kernel/mm/transparent_hugepage/shmem_enabled), this mapping does; else nothing happens.
void ask_for_large_pages(const Mapping& mapping) noexcept;
/// Private zero pages without cost until touched.
Result<Mapping> map_zeroes(std::uint64_t bytes);
/// Replaces a shared mapping in place by read-only zero pages: its memory is given back, its
/// addresses stay valid.
void forget_in_place(const Mapping& mapping) noexcept;
/// Allocates and maps the pages of [data, data + bytes) for writing; a hint that may do nothing.
void populate(std::byte* data, std::uint64_t bytes) noexcept;

/// F_SEAL_SHRINK | GROW | FUTURE_WRITE | SEAL: writable mappings that exist stay writable, no
/// process can make another one or change the size, through /proc/*/fd neither.
Result<void> seal_memory(int fd);
/// Error unless fd is a memfd of exactly `bytes` sealed by seal_memory(): only such memory may be
/// read, as nobody can shrink it under the reader (SIGBUS).
Result<void> check_sealed(int fd, std::uint64_t bytes, const char* what);
/// Error unless fd is a memfd of exactly `bytes`.
Result<void> check_size(int fd, std::uint64_t bytes, const char* what);
Result<Fd> duplicate(int fd);

/// out_of_memory with the sentence of errno and what to do about it.
Error memory_error(const char* what, std::uint64_t bytes, int error);

}  // namespace troupe::objectstore::internal
