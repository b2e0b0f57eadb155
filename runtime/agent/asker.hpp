/// Who asks this node, and gets the answer.
#pragma once

#include "troupe/runtime/base/ids.hpp"

#include <cstdint>

namespace troupe::agent {

/// A process of this node, or the agent of another one that asks for one of its processes.
struct Asker {
  ProcessIndex process;
  NodeId node;  ///< zero: `process`
  std::uint64_t request = 0;

  bool is(ProcessIndex one) const { return !node && process == one; }
  bool is(NodeId one) const { return node == one; }
};

}  // namespace troupe::agent
