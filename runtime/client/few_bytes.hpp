/// Bytes that lie in the record itself when they are few, so that small values cost no memory of
/// their own.
///
///     FewBytes<32> bytes;
///     bytes = payload.subspan(16, 4);
///     BlobView view = bytes;
#pragma once

#include "troupe/runtime/base/units.hpp"

#include <cstring>
#include <utility>

namespace troupe::client {

/// Aligned to 16 either way. Stays where it is: a view of it is good as long as it.
template <std::size_t inside>
class FewBytes {
 public:
  FewBytes() noexcept = default;
  FewBytes(const FewBytes&) = delete;
  FewBytes& operator=(const FewBytes&) = delete;
  FewBytes& operator=(BlobView bytes) {
    if (bytes.size() > inside)
      large_.assign(bytes.begin(), bytes.end());
    else if (!bytes.empty())
      std::memcpy(inside_, bytes.data(), bytes.size());
    size_ = bytes.size();
    return *this;
  }
  FewBytes& operator=(Blob&& bytes) {
    if (bytes.size() <= inside) return *this = BlobView(bytes);
    size_ = bytes.size();
    large_ = std::move(bytes);
    return *this;
  }
  std::size_t size() const noexcept { return size_; }
  operator BlobView() const noexcept {
    return size_ > inside ? BlobView(large_) : BlobView(inside_, size_);
  }

 private:
  alignas(16) std::byte inside_[inside];
  std::size_t size_ = 0;
  Blob large_;
};

}  // namespace troupe::client
