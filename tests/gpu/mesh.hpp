// The mesh of a rank that `ranks` has started: over shared memory for a CPU, over NCCL for a GPU.
#pragma once

#include "troupe/actors/collective/mesh.hpp"
#include "troupe/kernels/device/device.hpp"
#include "troupe/train/layout.hpp"

#include <memory>
#include <string>

namespace troupe::gpu {

/// Of "dp=2,tp=1,pp=1"; what is left out is 1. Refuses other texts.
collective::MeshShape mesh_shape(const std::string& text);

/// All ranks that were started, over shared memory; one that is alone is a group, too.
std::unique_ptr<collective::Communicator> join_host_group(Duration timeout);

/// The group that moves memory of the device: the host's for a CPU.
std::unique_ptr<collective::Communicator> join_device_group(
    std::unique_ptr<collective::Communicator> host, kernels::Device& device);

/// Meets the other ranks. Without launcher's variables it is the only one. Each operation has this
/// timeout.
collective::Mesh join_mesh(const train::Layout& layout, kernels::Device& device, Duration timeout);

}  // namespace troupe::gpu
