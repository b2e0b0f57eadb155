#include "tests/gpu/mesh.hpp"

#include "tests/gpu/program.hpp"
#include "troupe/actors/collective/local/local.hpp"
#include "troupe/actors/collective/nccl/nccl.hpp"
#include "troupe/actors/collective/shm/shm.hpp"

#include <charconv>
#include <future>
#include <sstream>
#include <utility>
#include <vector>

namespace troupe::gpu {
namespace {

void set_timeouts(collective::Mesh& mesh, Duration timeout) {
  for (collective::Communicator* group :
       {mesh.world.get(), mesh.dp.get(), mesh.tp.get(), mesh.pp.get(), mesh.tied.get()})
    if (group != nullptr) group->set_timeout(timeout);
}

std::unique_ptr<collective::Communicator> join_processes(Duration timeout) {
  if (variable("WORLD_SIZE", 1) == 1)
    return collective::join_shm_group(collective::create_shm_group({.size = 1}), 0, 1, timeout);
  // Only the world group is used: join_mesh() splits it for the wanted layout.
  auto world = std::move(collective::Mesh::from_environment({.dp = 0}, timeout).world);
  world->set_timeout(timeout);
  return world;
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

int on_ranks(int threads, Duration timeout, const Body& body) {
  if (threads == 0) return body(join_processes(timeout));
  auto groups = collective::local_group(threads, {.timeout = timeout});
  std::vector<std::future<int>> ends;
  for (auto& group : groups)
    ends.push_back(std::async(std::launch::async, [&] { return body(std::move(group)); }));
  for (const std::future<int>& end : ends) end.wait();
  int code = kPassed;
  for (std::future<int>& end : ends)
    if (const int one = end.get(); code == kPassed) code = one;
  return code;
}

collective::Mesh join_mesh(const train::Layout& layout, const kernels::Device& device,
                           std::unique_ptr<collective::Communicator> host) {
  const collective::MeshShape shape{.dp = layout.dp, .tp = layout.tp, .pp = layout.pp};
  if (host->size() != shape.ranks())
    Arguments::refuse("--mesh is of " + std::to_string(shape.ranks()) + " ranks, and " +
                      std::to_string(host->size()) + " were started");
  if (shape.ranks() == 1) return collective::make_mesh(nullptr, shape);
  const Duration timeout = host->timeout();
  collective::Mesh mesh =
      collective::make_mesh(collective::join_device_group(std::move(host), device), shape);
  set_timeouts(mesh, timeout);
  return mesh;
}

}  // namespace troupe::gpu
