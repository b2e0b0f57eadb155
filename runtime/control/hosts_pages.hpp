/// Puts the pages of each node's NodeHosts together. An actor that is missing in the list counts as
/// dead, so a list counts only when all of its pages have come. A plain state machine.
///
///     switch (pages.add(message)) {                  // message.node is the sender
///       case HostsPages::State::whole: return on_hosts(message);  // now with all actors
///       case HostsPages::State::too_long: return drop(message.node);
///       case HostsPages::State::open: return;        // the next page follows, or one was lost
///     }
///
/// Page 0 begins a list anew. Any other page that is not the next one of its list drops the list.
/// Memory per node is bounded.
#pragma once

#include "troupe/runtime/control/directory.hpp"

#include <cstddef>
#include <cstdint>
#include <map>

namespace troupe::control {

struct HostsPagesOptions {
  /// How many actors a node's NodeHosts may list.
  std::size_t max_hosted = 1u << 20;
  /// How many bytes the specs of these actors may take until the last page has come.
  std::size_t max_hosted_bytes = 1u << 30;
};

class HostsPages {
 public:
  enum class State : std::uint8_t { open, whole, too_long };

  explicit HostsPages(const HostsPagesOptions& options = {}) : options_(options) {}
  /// Takes the next page of message.node. Makes it the whole list when it is the last one.
  State add(NodeHosts& page);
  /// Drops the pages of a node: its connection began anew, or it is dead.
  void forget(NodeId node) { lists_.erase(node); }

 private:
  struct List {
    NodeHosts so_far;  ///< its `page` is the next one
    std::size_t bytes = 0;
  };
  HostsPagesOptions options_;
  std::map<NodeId, List> lists_;
};

}  // namespace troupe::control
