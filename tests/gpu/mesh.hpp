// The mesh of a rank that `ranks` has started: over shared memory for a CPU, over NCCL for a GPU.
#pragma once

#include "troupe/actors/collective/mesh.hpp"
#include "troupe/kernels/device/device.hpp"
#include "troupe/train/layout.hpp"

#include <string>

namespace troupe::gpu {

/// Of "dp=2,tp=1,pp=1"; what is left out is 1. Refuses other texts.
collective::MeshShape mesh_shape(const std::string& text);

/// Meets the other ranks. Without launcher's variables it is the only one. Each operation has this
/// timeout.
collective::Mesh join_mesh(const train::Layout& layout, kernels::Device& device, Duration timeout);

}  // namespace troupe::gpu
