/// Makes a checkpoint of the files that the ranks have written. The driver alone calls these.
#pragma once

#include "troupe/train/checkpoint/folder/document.hpp"
#include "troupe/train/checkpoint/folder/run_lock.hpp"

#include <string>
#include <vector>

namespace troupe::train {

/// Completes FOLDER/.step-….ID.tmp and renames it to FOLDER/step-…. Opens each file, numbers the
/// files without gaps, writes the index of the weights and `document` with all files, syncs,
/// checks the lock, and moves a folder of that name aside. `document` gets the files. Blocks.
/// Throws an Error that names the file; the rename has then not taken place.
TROUPE_API void commit_checkpoint(const std::string& folder, const std::string& id,
                                  const RunLock& lock, CheckpointDocument& document,
                                  std::vector<SavedFile> files);
/// Removes the folder into which a gang of that id wrote a step. Errors are ignored.
TROUPE_API void remove_writing(const std::string& folder, const std::string& id, long step);
/// Removes all folders into which gangs were writing. Errors are ignored.
TROUPE_API void remove_all_writing(const std::string& folder);
/// Removes the checkpoint of a step. A crash leaves it whole or without its document, and
/// therefore incomplete. Errors are ignored.
TROUPE_API void remove_checkpoint(const std::string& folder, long step);

}  // namespace troupe::train
