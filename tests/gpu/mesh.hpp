// The ranks of a program and their mesh. Ranks are processes that `ranks` has started, or threads
// of one process. A CPU's groups use shared memory; a device's groups use NCCL.
#pragma once

#include "troupe/actors/collective/mesh.hpp"
#include "troupe/kernels/device/device.hpp"
#include "troupe/train/layout.hpp"

#include <functional>
#include <memory>
#include <string>

namespace troupe::gpu {

/// Parses "dp=2,tp=1,pp=1"; a size that is left out is 1. Ends the program for other texts.
collective::MeshShape mesh_shape(const std::string& text);

/// Calls the body with the group of all ranks on the host, not on a device. With `threads` > 0
/// the ranks are so many threads. Otherwise they are the processes that a launcher has started; a
/// single process is a group, too. Returns the first rank's result that is not 0. Throws what the
/// first rank throws.
using Body = std::function<int(std::unique_ptr<collective::Communicator> host)>;
int on_ranks(int threads, Duration timeout, const Body& body);

/// Makes the mesh for the memory of a device. Refuses a layout for another number of ranks. Each
/// operation has the timeout of `host`.
collective::Mesh join_mesh(const train::Layout& layout, const kernels::Device& device,
                           std::unique_ptr<collective::Communicator> host);

}  // namespace troupe::gpu
