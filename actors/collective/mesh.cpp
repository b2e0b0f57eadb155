#include "troupe/actors/collective/mesh.hpp"

#include "troupe/actors/collective/internal/mesh_shape.hpp"

#include <string>
#include <utility>

namespace troupe::collective {
namespace {

std::string text_of(const MeshShape& shape) {
  return "dp=" + std::to_string(shape.dp) + " tp=" + std::to_string(shape.tp) +
         " pp=" + std::to_string(shape.pp);
}

/// Returns whether this rank is in the first or last stage of the pipeline.
bool is_end(const Mesh& mesh) noexcept {
  return mesh.pp_rank == 0 || mesh.pp_rank == mesh.shape.pp - 1;
}

}  // namespace

namespace internal {

void check(const MeshShape& shape, int ranks) {
  const auto is_size = [&](int n) { return n >= 1 && n <= ranks; };
  const bool fits = is_size(shape.dp) && is_size(shape.tp) && is_size(shape.pp) &&
                    std::int64_t{shape.dp} * shape.tp * shape.pp == ranks;
  if (!fits)
    throw InvalidArgument(Code::invalid_argument, "the mesh " + text_of(shape) +
                                                      " does not divide " + std::to_string(ranks) +
                                                      " ranks: choose sizes whose product is " +
                                                      std::to_string(ranks));
}

}  // namespace internal

Mesh make_mesh(std::unique_ptr<Communicator> world, const MeshShape& shape) {
  internal::check(shape, world ? world->size() : 1);
  const int rank = world ? world->rank() : 0;
  Mesh mesh;
  mesh.shape = shape;
  mesh.tp_rank = rank % shape.tp;
  mesh.dp_rank = rank / shape.tp % shape.dp;
  mesh.pp_rank = rank / (shape.tp * shape.dp);
  if (shape.ranks() == 1) return mesh;
  // The color of a split is the place on the two other axes. Every rank makes the same calls.
  const int row = mesh.pp_rank * shape.dp + mesh.dp_rank;
  const int column = mesh.dp_rank * shape.tp + mesh.tp_rank;
  const int slice = mesh.pp_rank * shape.tp + mesh.tp_rank;
  if (shape.dp > 1) mesh.dp = world->split(slice, mesh.dp_rank, Progress::thread);
  if (shape.tp > 1) mesh.tp = world->split(row, mesh.tp_rank);
  if (shape.pp > 1) mesh.pp = world->split(column, mesh.pp_rank);
  if (shape.pp > 1) mesh.tied = world->split(is_end(mesh) ? column : -1, mesh.pp_rank);
  mesh.world = std::move(world);
  return mesh;
}

}  // namespace troupe::collective
