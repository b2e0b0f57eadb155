/// Bytes that lie in the record itself when they are few, so that small values cost no memory of
/// their own.
///
///     SmallBuffer<40> bytes;
///     bytes = payload.subspan(16, 4);
///     BlobView view = bytes;
#pragma once

#include "troupe/runtime/base/units.hpp"

#include <cstring>
#include <utility>

namespace troupe::client {

/// Aligned to 16 either way. Stays where it is: a view of it is good as long as it.
template <std::size_t inside>
class SmallBuffer {
 public:
  SmallBuffer() noexcept {}
  SmallBuffer(const SmallBuffer&) = delete;
  SmallBuffer& operator=(const SmallBuffer&) = delete;
  ~SmallBuffer() {
    if (size_ > inside) delete large();
  }
  SmallBuffer& operator=(BlobView bytes) {
    if (bytes.size() > inside) return *this = Blob(bytes.begin(), bytes.end());
    if (size_ > inside) delete large();
    if (!bytes.empty()) std::memcpy(inside_, bytes.data(), bytes.size());
    size_ = bytes.size();
    return *this;
  }
  SmallBuffer& operator=(Blob&& bytes) {
    if (bytes.size() <= inside) return *this = BlobView(bytes);
    Blob* memory = size_ > inside ? large() : new Blob;
    *memory = std::move(bytes);
    std::memcpy(inside_, static_cast<const void*>(&memory), kPointer);
    size_ = memory->size();
    return *this;
  }
  std::size_t size() const noexcept { return size_; }
  operator BlobView() const noexcept {
    return size_ > inside ? BlobView(*large()) : BlobView(inside_, size_);
  }

 private:
  static constexpr std::size_t kPointer = sizeof(void*);
  static_assert(inside >= kPointer);
  Blob* large() const noexcept {
    Blob* memory = nullptr;
    std::memcpy(static_cast<void*>(&memory), inside_, kPointer);
    return memory;
  }
  /// The bytes; of more than fit, where they are.
  alignas(16) std::byte inside_[inside];
  std::size_t size_ = 0;
};

}  // namespace troupe::client
