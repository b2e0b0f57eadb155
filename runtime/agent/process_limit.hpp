/// The number of workers that a node can have. Two limits bound it: the processes that its object
/// store serves, and the descriptors that its agent can keep open.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

namespace troupe::agent {

struct ProcessLimit {
  std::uint32_t workers = 0;
  std::string why;  ///< names the limit, as part of a sentence
};

/// `store`: processes of the object store; `files`: descriptors that the agent may have.
inline ProcessLimit process_limit(std::uint32_t store, std::uint64_t files) {
  constexpr std::uint32_t kOthers = 16;      // the agent, drivers
  constexpr std::uint64_t kOwnFiles = 64;    // of the agent itself
  constexpr std::uint64_t kFilesOfEach = 6;  // socket, doorbell, tables, extents, and in transit
  const std::uint64_t by_files =
      files > kOwnFiles ? std::max<std::uint64_t>((files - kOwnFiles) / kFilesOfEach, 1) : 1;
  const std::uint32_t by_store = store > kOthers ? store - kOthers : 1;
  if (by_store <= by_files)
    return {by_store, "its object store serves " + std::to_string(store) + " processes"};
  return {static_cast<std::uint32_t>(by_files),
          "its agent may have " + std::to_string(files) + " files open (ulimit -n)"};
}

/// Returns how many of `workers` processes no actor takes, so that tasks run on a node full of
/// actors. `at_once`: the number of tasks that run at a time.
inline std::uint32_t kept_for_tasks(std::uint32_t workers, std::uint32_t at_once) {
  constexpr std::uint32_t kBlocked = 2;  // wait for other tasks
  return std::min(at_once + kBlocked, workers / 4);
}

}  // namespace troupe::agent
