/// Files that only grow, each up to a length that its owner has recorded.
///
///     files.restore(lengths);                 // cuts what is longer
///     files.append("progress.csv", row);      // in memory
///     Result<void> done = files.flush();      // on a failure nothing has been appended
#pragma once

#include "troupe/runtime/base/result.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

namespace troupe::tune::internal {

class GrowingFiles {
 public:
  using PathOf = std::function<std::string(const std::string& file)>;

  explicit GrowingFiles(PathOf path_of) : path_of_(std::move(path_of)) {}

  /// Forgets what is not flushed, and cuts the files to these lengths. Returns InvalidArgument for
  /// a file that is missing or shorter; with `may_lack` a missing one is only never written again.
  /// OutOfDisk and Unavailable are the disk's.
  Result<void> restore(std::map<std::string, std::uint64_t> lengths, bool may_lack);
  void append(const std::string& file, std::string_view bytes);
  /// Deletes a file with the next flush.
  void remove(const std::string& file);
  /// Writes all that was appended, makes missing folders, and deletes. Errors are those of
  /// restore(); the lengths are the former ones then.
  Result<void> flush();
  const std::map<std::string, std::uint64_t>& lengths() const noexcept { return lengths_; }

 private:
  Result<void> write(const std::string& file, std::uint64_t at, std::string_view bytes);

  PathOf path_of_;
  std::map<std::string, std::uint64_t> lengths_;
  std::map<std::string, std::string> pending_;
  std::set<std::string> removed_;
  std::set<std::string> lacking_;  ///< deleted by somebody else
  bool may_lack_ = false;
};

}  // namespace troupe::tune::internal
