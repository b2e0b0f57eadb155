#include "troupe/objectstore/objectstore.hpp"

#include <span>
#include <utility>

using namespace troupe;
using objectstore::Allocation;
using objectstore::Location;
using objectstore::Opened;

void use(BlobView bytes);

void example(Bytes bytes, objectstore::Client::UnpinReport report) {
  // EXAMPLE troupe/objectstore/objectstore.hpp
}
