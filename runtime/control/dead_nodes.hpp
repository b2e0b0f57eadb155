/// The nodes that have died or left, for people: what each was, when it went and why. A plain state
/// machine. Membership fences the dead; nothing depends on the records here.
///
///     DeadNodes dead = DeadNodes::recover(store).value();
///     dead.add({description, epoch, "its process is gone", unix_ns, false}, batch);
///     for (const DeadNode& node : dead.list(unix_ns)) …         // the newest first
#pragma once

#include "troupe/runtime/control/membership.hpp"
#include "troupe/runtime/control/store.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace troupe::control {

struct DeadNode {
  NodeDescription description;  ///< without its key
  Epoch epoch = 0;
  std::string why;
  std::int64_t died_unix_ns = 0;
  bool left = false;  ///< it has said that it goes
};

class DeadNodes {
 public:
  static constexpr std::size_t kMost = 256;
  static constexpr std::size_t kMaxWhy = 1024;  ///< bytes
  static constexpr std::int64_t kKeptNs = 24LL * 3600 * 1'000'000'000;

  /// Reads the records of earlier controls. Errors: invalid_argument when one cannot be read.
  static Result<DeadNodes> recover(Store& store);
  /// Keeps the node, and drops records that are too old or too many.
  void add(DeadNode node, Batch& writes);
  /// Returns the nodes that have died less than kKeptNs ago, the newest first.
  std::vector<DeadNode> list(std::int64_t now_unix_ns) const;

 private:
  std::map<Epoch, DeadNode> nodes_;
};

}  // namespace troupe::control
