#include "troupe/objectstore/objectstore.hpp"

#include <cstdint>
#include <span>
#include <utility>

using namespace troupe;
using objectstore::Allocation;
using objectstore::Location;
using objectstore::Opened;

void use(BlobView bytes);

void example(std::uint64_t bytes, objectstore::Client::UnpinReport report) {
  // EXAMPLE troupe/objectstore/objectstore.hpp
}
