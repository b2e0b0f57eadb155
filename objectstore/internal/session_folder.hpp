/// The folder of one cluster inside a shared folder, for SharedCopies: `FOLDER/troupe-CLUSTER`,
/// with a folder for each of its nodes. It also has a file on which each node holds a shared lock
/// while it lives. A process that gets the exclusive lock knows that the cluster is gone, however
/// it ended.
#pragma once

#include "troupe/runtime/base/fd.hpp"
#include "troupe/runtime/base/ids.hpp"
#include "troupe/runtime/base/result.hpp"

#include <set>
#include <string>

namespace troupe::objectstore::internal {

class SessionFolder {
 public:
  /// Makes the folders that are missing and takes the shared lock. Error: invalid_argument with the
  /// folder and the reason. Waits up to a second while another process removes an old folder.
  static Result<SessionFolder> join(const std::string& folder, ClusterId cluster, NodeId node);

  /// Returns the folder of this node, for its files.
  int own() const noexcept { return own_.get(); }
  /// Opens the folder of another node. On failure the descriptor is empty and errno has the reason:
  /// ENOENT when that node has nothing here.
  Fd of(NodeId node) const;
  const std::string& path() const noexcept { return path_; }
  /// Looks at one other cluster's folder that is not in `looked_at`, and removes it if its last
  /// node is gone. Returns false if there is none left to look at.
  bool sweep_one(std::set<std::string>& looked_at) const;
  /// Releases the lock. The last node removes everything.
  void leave();

 private:
  std::string parent_, path_;
  Fd session_, own_, lock_;
};

}  // namespace troupe::objectstore::internal
