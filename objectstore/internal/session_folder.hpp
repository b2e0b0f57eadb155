/// What one cluster has in a shared folder: `FOLDER/troupe-CLUSTER` with a folder for each of its
/// nodes, and a file that each of them holds a lock of while it lives. So anybody can tell which
/// clusters are gone, whatever ended them.
#pragma once

#include "troupe/runtime/base/fd.hpp"
#include "troupe/runtime/base/ids.hpp"
#include "troupe/runtime/base/result.hpp"

#include <set>
#include <string>

namespace troupe::objectstore::internal {

class SessionFolder {
 public:
  /// Makes what is missing and takes its part of the lock. Error: invalid_argument with the folder
  /// and what is wrong with it.
  static Result<SessionFolder> join(const std::string& folder, ClusterId cluster, NodeId node);

  /// This node's, for its files.
  int own() const noexcept { return own_.get(); }
  /// Another node's; none and ENOENT in errno when that has nothing here, or another reason.
  Fd of(NodeId node) const;
  const std::string& path() const noexcept { return path_; }
  /// Removes what one cluster has left in the folder whose last node is gone, and that is not yet
  /// among those that were looked at. False: there is none.
  bool sweep_one(std::set<std::string>& looked_at) const;
  /// Lets go of the lock. The last one removes everything.
  void leave();

 private:
  std::string parent_, path_;
  Fd session_, own_, lock_;
};

}  // namespace troupe::objectstore::internal
