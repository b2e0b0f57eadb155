/// MappedFile: a regular file in memory, read-only.
#pragma once

#include "troupe/runtime/base/result.hpp"
#include "troupe/runtime/base/units.hpp"

#include <cstddef>
#include <string>
#include <utility>

namespace troupe::train {

/// A file that becomes shorter while it is mapped ends the process that reads it.
class TROUPE_API MappedFile {
 public:
  MappedFile() noexcept = default;
  MappedFile(MappedFile&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  MappedFile& operator=(MappedFile&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~MappedFile();

  /// Errors: unavailable, and invalid_argument for a file that is not regular.
  static Result<MappedFile> open(const std::string& path);
  BlobView bytes() const noexcept { return {static_cast<const std::byte*>(data_), size_}; }

 private:
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace troupe::train
