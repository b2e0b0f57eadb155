/// What a gang's ranks and its supervisor tell each other about the run's folder.
#pragma once

#include "troupe/train/checkpoint/folder/document.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace troupe::train::internal {

struct RunSetup {
  std::string folder;               ///< empty: checkpoints are objects
  std::string driver;               ///< id in the folder's lock file
  std::string gang;                 ///< id of the folders into which the gang writes
  long every = 0;                   ///< wants_checkpoint() every so many steps; 0: never
  std::vector<std::string> starts;  ///< paths of complete checkpoints, the newest first
};

struct FolderEvent {
  enum class Kind : std::uint8_t {
    written,   ///< this rank's share of a checkpoint was written, or failed
    left_out,  ///< from rank 0: all ranks leave out a checkpoint
    started,   ///< from rank 0: the loop begins after `step`
    unseen,    ///< this rank does not see the folder; `error` says why
  };
  Kind kind = Kind::written;
  long step = 0;
  std::vector<SavedFile> files;
  std::string error;                 ///< why the share was not written; empty: it was
  std::string document;              ///< from rank 0: text_of() the document, without files
  std::vector<std::string> skipped;  ///< started: why newer checkpoints were skipped
};

}  // namespace troupe::train::internal
