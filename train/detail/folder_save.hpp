/// FolderSave: what a loop gives to a checkpoint in a folder beside the staged state.
#pragma once

#include "troupe/runtime/base/units.hpp"
#include "troupe/train/checkpoint/folder/document.hpp"

#include <optional>

namespace troupe::train::internal {

struct FolderSave {
  CheckpointDocument document;  ///< without files and without the engine's numbers
  std::optional<Blob> parts;    ///< of rank 0: the parts that are no engine
};

}  // namespace troupe::train::internal
