#include "tests/gpu/mesh.hpp"

#include "tests/gpu/program.hpp"
#include "troupe/actors/collective/shm/shm.hpp"

#include <charconv>
#include <cstdlib>
#include <sstream>
#include <stdexcept>
#include <utility>

namespace troupe::gpu {
namespace {

void set_timeouts(collective::Mesh& mesh, Duration timeout) {
  for (collective::Communicator* group :
       {mesh.world.get(), mesh.dp.get(), mesh.tp.get(), mesh.pp.get(), mesh.tied.get()})
    if (group != nullptr) group->set_timeout(timeout);
}

}  // namespace

collective::MeshShape mesh_shape(const std::string& text) {
  collective::MeshShape shape;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    int* size = part.starts_with("dp=")   ? &shape.dp
                : part.starts_with("tp=") ? &shape.tp
                : part.starts_with("pp=") ? &shape.pp
                                          : nullptr;
    const char* end = part.data() + part.size();
    if (size == nullptr || std::from_chars(part.data() + 3, end, *size).ptr != end || *size < 1)
      Arguments::refuse("--mesh is '" + text + "', and may be like dp=2,tp=1,pp=1");
  }
  return shape;
}

std::unique_ptr<collective::Communicator> join_host_group(Duration timeout) {
  if (variable("WORLD_SIZE", 1) == 1)
    return collective::join_shm_group(collective::create_shm_group({.size = 1}), 0, 1, timeout);
  // Its mesh is of no use here: the world is divided by who asks for it.
  return std::move(collective::Mesh::from_environment({.dp = 0}, timeout).world);
}

std::unique_ptr<collective::Communicator> join_device_group(
    std::unique_ptr<collective::Communicator> host, kernels::Device& device) {
  if (device.is_cpu()) return host;
  throw std::runtime_error("no back end of Communicator reaches the memory of this device");
}

collective::Mesh join_mesh(const train::Layout& layout, kernels::Device& device, Duration timeout) {
  const collective::MeshShape shape{.dp = layout.dp, .tp = layout.tp, .pp = layout.pp};
  const int world = variable("WORLD_SIZE", 1);
  if (world != shape.ranks())
    Arguments::refuse("--mesh is of " + std::to_string(shape.ranks()) + " ranks, and " +
                      std::to_string(world) + " were started");
  if (world == 1) return collective::make_mesh(nullptr, shape);
  collective::Mesh mesh =
      collective::make_mesh(join_device_group(join_host_group(timeout), device), shape);
  set_timeouts(mesh, timeout);
  return mesh;
}

}  // namespace troupe::gpu
