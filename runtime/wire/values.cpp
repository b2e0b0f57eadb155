#include "troupe/runtime/wire/values.hpp"

#include "troupe/runtime/base/error.hpp"
#include "troupe/runtime/base/size_text.hpp"

namespace troupe::wire {
namespace {

constexpr Bytes kDefaultLimit{64 << 20};

}  // namespace

void append_inline(Value& value, BlobView bytes, Blob& payload) {
  payload.resize((payload.size() + 15) & ~std::size_t{15});
  value.payload_offset = static_cast<std::uint32_t>(payload.size());
  value.payload_size = static_cast<std::uint32_t>(bytes.size());
  payload.insert(payload.end(), bytes.begin(), bytes.end());
}

Bytes lineage_limit(bool may_throw) {
  try {
    return size_from_environment("TROUPE_LINEAGE").value_or(kDefaultLimit);
  } catch (const InvalidArgument&) {
    if (may_throw) throw;
    return kDefaultLimit;
  }
}

}  // namespace troupe::wire
