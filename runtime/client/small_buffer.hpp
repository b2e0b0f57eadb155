/// Bytes that lie in the record itself when they are few, so that a small value needs no
/// allocation.
///
///     SmallBuffer<40> bytes;
///     bytes = payload.subspan(16, 4);
///     BlobView view = bytes;
#pragma once

#include "troupe/runtime/base/units.hpp"

#include <cstring>
#include <utility>

namespace troupe::client {

/// Aligned to 16 bytes in both cases. Never moves: a view of it is valid as long as the buffer.
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
  /// The bytes, or a pointer to a Blob with more bytes than fit.
  alignas(16) std::byte inside_[inside];
  std::size_t size_ = 0;
};

}  // namespace troupe::client
