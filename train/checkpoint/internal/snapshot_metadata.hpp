/// The metadata of a snapshot's file.
#pragma once

#include "troupe/train/checkpoint/safetensors.hpp"
#include "troupe/train/checkpoint/snapshot.hpp"

namespace troupe::train::internal {

/// Returns what read_snapshot() needs beside the tensors.
Metadata metadata_of(const SnapshotView& snapshot);

}  // namespace troupe::train::internal
