#include "troupe/actors/collective/internal/assembly.hpp"
#include "troupe/actors/collective/internal/mesh_shape.hpp"
#include "troupe/actors/collective/mesh.hpp"
#include "troupe/actors/collective/nccl/nccl.hpp"
#include "troupe/actors/collective/shm/shm.hpp"

#include <utility>

namespace troupe::collective {
namespace {

/// Returns the shape with a `dp` of 0 replaced.
MeshShape complete(MeshShape shape, int ranks) noexcept {
  const std::int64_t others = std::int64_t{shape.tp} * shape.pp;
  if (shape.dp == 0 && others > 0) shape.dp = static_cast<int>(ranks / others);
  return shape;
}

/// Returns the group of all ranks that the launcher started, or null for one rank. Completes the
/// shape.
std::unique_ptr<Communicator> join_world(MeshShape& shape, Duration timeout) {
  if (timeout <= Duration::zero())
    throw InvalidArgument(Code::invalid_argument, "the timeout of a rendezvous must be positive");
  const internal::Launch launch = internal::read_launch(Environment());
  shape = complete(shape, launch.world);
  internal::check(shape, launch.world);
  if (launch.world == 1) return nullptr;
  const Fd memory = internal::assemble(launch, shape, timeout);
  return join_shm_group(memory, launch.rank, /*generation=*/1);
}

}  // namespace

Mesh Mesh::from_environment(const MeshShape& shape, Duration timeout) {
  MeshShape whole = shape;
  std::unique_ptr<Communicator> world = join_world(whole, timeout);
  return make_mesh(std::move(world), whole);
}

Mesh Mesh::from_environment(const kernels::Device& device, const MeshShape& shape,
                            Duration timeout) {
  MeshShape whole = shape;
  std::unique_ptr<Communicator> world = join_world(whole, timeout);
  return make_mesh(join_device_group(std::move(world), device), whole);
}

}  // namespace troupe::collective
