/// Saves: puts the shares of a checkpoint together that a gang's ranks have written. A plain state
/// machine.
///
///     Saves saves(2);
///     saves.heard(0, written);                 // nothing yet
///     if (auto ended = saves.heard(1, written)) ended->error.empty() ? commit : clean up;
#pragma once

#include "troupe/train/detail/run_setup.hpp"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace troupe::train::internal {

class Saves {
 public:
  /// A save of which all ranks have told.
  struct Ended {
    long step = 0;
    std::string error;      ///< the first rank's error; empty: every rank has written its share
    bool left_out = false;  ///< no rank has begun to write it
    std::vector<SavedFile> files;
    std::string document;
  };

  explicit Saves(int ranks) : ranks_(ranks) {}
  /// Takes a `written` or `left_out` event of a rank. Returns the save that it ends.
  std::optional<Ended> heard(int rank, const FolderEvent& event);

 private:
  struct Open {
    std::set<int> ranks;
    Ended so_far;
  };
  int ranks_;
  std::map<long, Open> open_;
};

}  // namespace troupe::train::internal
