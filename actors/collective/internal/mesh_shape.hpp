/// The check of a mesh's shape.
#pragma once

#include "troupe/actors/collective/mesh.hpp"

namespace troupe::collective::internal {

/// Throws InvalidArgument when the product of the sizes is not the number of ranks.
void check(const MeshShape& shape, int ranks);

}  // namespace troupe::collective::internal
