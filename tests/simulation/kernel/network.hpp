/// The virtual network. It decides for each message when the message arrives, or that it is lost.
///
///     Network::Fate fate = network.route(from, to, now, faulting);
///     if (!fate.lost) schedule(fate.at);
#pragma once

#include "tests/simulation/kernel/faults.hpp"
#include "troupe/runtime/base/clock.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace troupe::sim {

using NodeIndex = std::uint32_t;
using RouteKey = std::uint64_t;

constexpr RouteKey route_key(NodeIndex from, NodeIndex to) noexcept {
  return (static_cast<RouteKey>(from) << 32) | to;
}

enum class Delivery : std::uint8_t { datagram, reliable };

/// A cut of the network. A message from a member of `inside` to a non-member is lost. So is one
/// in the other direction, unless the cut is one-way.
struct Cut {
  std::vector<bool> inside;
  bool one_way = false;
  bool inbound = false;  ///< one-way cuts only: the opposite direction is lost
  Fault kind = Fault::partition_two_way;
  bool met = false;          ///< whether a message was lost to this cut
  std::uint64_t number = 0;  ///< set by the network

  bool blocks(NodeIndex from, NodeIndex to) const noexcept {
    if (inside[from] == inside[to]) return false;
    return !one_way || inside[from] != inbound;
  }
};

/// Routes, connections and cuts.
class Network {
 public:
  struct Fate {
    bool lost = false;
    bool twice = false;
    Time at{}, again{};
    std::uint64_t connection = 0;
  };

  Network(std::size_t nodes, Delivery delivery, const FaultPlan& plan, Random random,
          FaultCounts& counts)
      : delivery_(delivery),
        plan_(plan),
        random_(random),
        counts_(counts),
        nodes_(nodes),
        routes_(nodes * nodes),
        connections_(nodes * nodes) {}

  /// Decides the fate of one message and counts the faults that strike it.
  Fate route(NodeIndex from, NodeIndex to, Time now, bool faulting) {
    Fate fate;
    Route& route = route_of(from, to);
    Connection& connection = connection_of(from, to);
    fate.connection = connection.number;
    const bool datagram = delivery_ == Delivery::datagram;
    if (datagram && (connection.down || (faulting && hit(plan_.drop, Fault::drop)))) {
      if (connection.down) count_once(connection.counted, connection.kind);
      fate.lost = true;
      return fate;
    }
    Duration delay = one_delay();
    if (faulting && hit(plan_.delay_spike, Fault::delay_spike)) delay *= 1 + random_.below(100);
    if (now < route.slow_until) {
      delay += route.slow_by;
      count_once(route.slow_counted, Fault::slow_route);
    }
    fate.at = now + delay;
    if (datagram && faulting && hit(plan_.reorder, Fault::reorder)) {
      fate.at += one_delay() * random_.below(20);  // later messages may overtake this one
    } else {
      fate.at = std::max({fate.at, route.last_arrival, connection.stalled_until});
      route.last_arrival = fate.at;
    }
    fate.twice = datagram && faulting && hit(plan_.duplicate, Fault::duplicate);
    if (fate.twice) fate.again = fate.at + one_delay() * random_.below(20);
    return fate;
  }

  bool blocked(NodeIndex from, NodeIndex to) {
    for (Cut& cut : cuts_) {
      if (!cut.blocks(from, to)) continue;
      if (!cut.met) counts_.hit(cut.kind);
      cut.met = true;
      return true;
    }
    return false;
  }
  bool would_block(NodeIndex from, NodeIndex to) const {
    for (const Cut& cut : cuts_)
      if (cut.blocks(from, to)) return true;
    return false;
  }
  std::uint64_t add(Cut cut) {
    cut.number = ++cut_numbers_;
    cuts_.push_back(std::move(cut));
    return cut_numbers_;
  }
  void remove(std::uint64_t number) {
    cuts_.erase(std::remove_if(cuts_.begin(), cuts_.end(),
                               [&](const Cut& cut) { return cut.number == number; }),
                cuts_.end());
  }
  bool has_cuts() const noexcept { return !cuts_.empty(); }
  void heal() {
    cuts_.clear();
    for (Route& route : routes_) route.slow_until = Time{};
    // A connection that was dropped while one side was dead is opened by neither side.
    for (Connection& connection : connections_) connection.down = false;
  }

  /// Closes the connection. Under datagram delivery the messages in flight on it are lost.
  void close(NodeIndex a, NodeIndex b, Fault kind, Time until) {
    Connection& connection = connection_of(a, b);
    ++connection.number;
    connection.down = delivery_ == Delivery::datagram;
    connection.kind = kind;
    connection.counted = false;
    connection.stalled_until = until;
  }
  void open(NodeIndex a, NodeIndex b) { connection_of(a, b).down = false; }
  bool is_open(NodeIndex a, NodeIndex b) { return !connection_of(a, b).down; }
  /// Returns whether the connection that a message was sent on still stands. Counts the fault if
  /// not.
  bool survived(NodeIndex from, NodeIndex to, std::uint64_t number) {
    Connection& connection = connection_of(from, to);
    if (delivery_ == Delivery::reliable || connection.number == number) return true;
    count_once(connection.counted, connection.kind);
    return false;
  }
  void slow_down(NodeIndex a, NodeIndex b, Time until, Duration by) {
    for (Route* route : {&route_of(a, b), &route_of(b, a)}) {
      route->slow_until = until;
      route->slow_by = by;
      route->slow_counted = false;
    }
  }

  enum class Life : std::uint8_t { known, restarted, outdated };
  /// Reliable delivery only: compares the life that sent a message with the newest life of `from`
  /// that `node` has seen, and records a newer one.
  Life life_of(NodeIndex node, NodeIndex from, std::uint32_t life) {
    std::uint32_t& seen = route_of(from, node).life_seen;
    if (seen > life + 1) return Life::outdated;
    const bool restarted = seen != 0 && seen != life + 1;
    seen = life + 1;
    return restarted ? Life::restarted : Life::known;
  }
  void forget_lives_seen_by(NodeIndex node) {
    for (NodeIndex i = 0; i < nodes_; ++i) route_of(i, node).life_seen = 0;
  }

 private:
  struct Route {
    Time last_arrival{}, slow_until{};
    Duration slow_by{};
    bool slow_counted = false;
    std::uint32_t life_seen = 0;  // incarnation + 1
  };
  struct Connection {
    std::uint64_t number = 0;
    bool down = false;
    bool counted = false;
    Fault kind = Fault::connection_drop;
    Time stalled_until{};
  };
  Route& route_of(NodeIndex from, NodeIndex to) { return routes_[from * nodes_ + to]; }
  Connection& connection_of(NodeIndex a, NodeIndex b) {
    return connections_[std::min(a, b) * nodes_ + std::max(a, b)];
  }
  Duration one_delay() {
    const auto jitter = static_cast<std::uint64_t>(plan_.jitter.count());
    return plan_.delay +
           Duration(jitter == 0 ? 0 : static_cast<Duration::rep>(random_.below(jitter)));
  }
  void count_once(bool& counted, Fault kind) {
    if (!counted) counts_.hit(kind);
    counted = true;
  }
  bool hit(double probability, Fault kind) {
    if (probability <= 0 || !random_.chance(probability)) return false;
    counts_.hit(kind);
    return true;
  }

  Delivery delivery_;
  FaultPlan plan_;
  Random random_;
  FaultCounts& counts_;
  std::size_t nodes_;
  std::vector<Route> routes_;            ///< one for each ordered pair of nodes
  std::vector<Connection> connections_;  ///< one for each pair; (1, 0) and (0, 1) share it
  std::vector<Cut> cuts_;
  std::uint64_t cut_numbers_ = 0;
};

}  // namespace troupe::sim
