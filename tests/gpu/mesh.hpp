// The ranks of a program and their mesh: processes that `ranks` has started, or threads of one.
// Memory of a CPU goes over shared memory, that of a device over NCCL.
#pragma once

#include "troupe/actors/collective/mesh.hpp"
#include "troupe/kernels/device/device.hpp"
#include "troupe/train/layout.hpp"

#include <functional>
#include <memory>
#include <string>

namespace troupe::gpu {

/// Of "dp=2,tp=1,pp=1"; what is left out is 1. Refuses other texts.
collective::MeshShape mesh_shape(const std::string& text);

/// Calls the body with the group of all ranks, which is no device's: with that of the processes that
/// a launcher has started, one that is alone being a group, too; or, for `threads` > 0, on so many
/// threads. Result: the body's, of the first rank that is not 0. Throws what the first rank throws.
using Body = std::function<int(std::unique_ptr<collective::Communicator> host)>;
int on_ranks(int threads, Duration timeout, const Body& body);

/// The mesh for the memory of a device. Refuses a layout of another number of ranks. Each operation
/// has the timeout of `host`.
collective::Mesh join_mesh(const train::Layout& layout, const kernels::Device& device,
                           std::unique_ptr<collective::Communicator> host);

}  // namespace troupe::gpu
