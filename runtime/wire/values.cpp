#include "troupe/runtime/wire/values.hpp"

namespace troupe::wire {

void append_inline(Value& value, BlobView bytes, Blob& payload) {
  payload.resize((payload.size() + 15) & ~std::size_t{15});
  value.payload_offset = static_cast<std::uint32_t>(payload.size());
  value.payload_size = static_cast<std::uint32_t>(bytes.size());
  payload.insert(payload.end(), bytes.begin(), bytes.end());
}

Bytes lineage_limit(const Environment& environment) {
  return environment.size("TROUPE_LINEAGE").value_or(kDefaultLineage);
}

}  // namespace troupe::wire
