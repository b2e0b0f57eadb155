/// The kinds of fault, how often a schedule injects them, and how many took effect.
///
///     FaultPlan plan = FaultPlan::random(random, {.kill = true});   // a mix for each seed
#pragma once

#include "troupe/runtime/base/random.hpp"
#include "troupe/runtime/base/units.hpp"

#include <array>
#include <cstdint>
#include <string_view>

namespace troupe::sim {

enum class Fault : std::uint8_t {
  drop,               ///< one message vanishes
  duplicate,          ///< one message arrives twice
  reorder,            ///< a later message overtakes this one
  delay_spike,        ///< one message takes up to a hundred times as long
  slow_route,         ///< everything between two nodes is slow for a while
  connection_drop,    ///< a connection closes and all that is in flight on it is lost
  connection_flap,    ///< the same, many times in a row
  partition_one_way,  ///< A hears B, B does not hear A
  partition_two_way,  ///< two sides hear nothing from each other
  partition_rolling,  ///< one node after the other is cut off
  isolate,            ///< one node is cut off from all
  stall,              ///< a process stands still for less than a second
  pause,              ///< SIGSTOP, SIGCONT some seconds later
  kill,               ///< SIGKILL; peers see closed sockets; files stay
  crash,              ///< the machine dies silently; unsynced writes are lost
  kill_many,          ///< several processes at one instant
  restart_fast,       ///< a killed process runs again before its peers can notice
  clock_jump,         ///< the wall clock jumps by up to an hour, either way
  lost_unsynced,      ///< a crash in which the disk lost unsynced writes
  torn_write,         ///< a crash that leaves part of an unsynced write
  bit_flip,           ///< a stored bit changes
  disk_full,          ///< writes fail with no space for a while
  slow_disk,          ///< syncs take long for a while
  buggify,            ///< a TROUPE_BUGGIFY point in product code fired
  count_,
};
inline constexpr std::size_t fault_kinds = static_cast<std::size_t>(Fault::count_);

constexpr std::string_view name_of(Fault fault) noexcept {
  constexpr std::string_view names[fault_kinds] = {"drop",
                                                   "duplicate",
                                                   "reorder",
                                                   "delay_spike",
                                                   "slow_route",
                                                   "connection_drop",
                                                   "connection_flap",
                                                   "partition_one_way",
                                                   "partition_two_way",
                                                   "partition_rolling",
                                                   "isolate",
                                                   "stall",
                                                   "pause",
                                                   "kill",
                                                   "crash",
                                                   "kill_many",
                                                   "restart_fast",
                                                   "clock_jump",
                                                   "lost_unsynced",
                                                   "torn_write",
                                                   "bit_flip",
                                                   "disk_full",
                                                   "slow_disk",
                                                   "buggify"};
  return names[static_cast<std::size_t>(fault)];
}

/// Counts how often each kind took effect. A partition that no message met counts zero.
struct FaultCounts {
  std::array<std::uint64_t, fault_kinds> count{};

  void hit(Fault fault, std::uint64_t times = 1) noexcept {
    count[static_cast<std::size_t>(fault)] += times;
  }
  std::uint64_t operator[](Fault fault) const noexcept {
    return count[static_cast<std::size_t>(fault)];
  }
  std::uint64_t total() const noexcept {
    std::uint64_t sum = 0;
    for (std::uint64_t n : count) sum += n;
    return sum;
  }
  FaultCounts& operator+=(const FaultCounts& other) noexcept {
    for (std::size_t i = 0; i < fault_kinds; ++i) count[i] += other.count[i];
    return *this;
  }
};

/// The families of faults that a scenario can survive. All other kinds have a rate of zero.
struct FaultsAllowed {
  bool messages = true;     ///< drop, duplicate, reorder (datagram delivery only), delay
  bool connections = true;  ///< connection_drop, connection_flap
  bool partitions = true;
  bool pauses = true;
  bool kills = true;
  bool clocks = true;
  bool disks = false;      ///< for nodes with a Disk
  bool bit_flips = false;  ///< for stores that must detect flipped bits
  bool buggify = true;
};

/// The rates of faults in one schedule.
struct FaultPlan {
  Duration delay{std::chrono::microseconds(200)};   ///< shortest travel time of a message
  Duration jitter{std::chrono::microseconds(300)};  ///< longest random addition to `delay`
  double drop = 0, duplicate = 0, reorder = 0, delay_spike = 0;  ///< per message
  double buggify = 0;  ///< share of the TROUPE_BUGGIFY points that are live
  Duration between_events{std::chrono::seconds(2)};  ///< mean time between the larger faults
  std::array<double, fault_kinds> weight{};          ///< relative frequency of the larger faults
  Duration longest_pause{std::chrono::seconds(20)};
  Duration longest_partition{std::chrono::seconds(20)};
  Duration longest_down{std::chrono::seconds(15)};  ///< from a kill to its restart

  /// Returns a plan without faults: messages have ordinary delays.
  static FaultPlan calm() { return {}; }
  /// Returns a random mix of the allowed kinds. Each schedule has only some of them, since that
  /// finds more bugs than always having all (swarm testing, Groce et al. 2012).
  static FaultPlan random(Random& random, const FaultsAllowed& allowed);
};

inline FaultPlan FaultPlan::random(Random& random, const FaultsAllowed& allowed) {
  FaultPlan plan;
  auto rate = [&](double most) { return random.chance(0.6) ? random.uniform() * most : 0.0; };
  auto weigh = [&](bool allow, std::initializer_list<Fault> kinds) {
    for (Fault kind : kinds) {
      const double w = rate(1.0);
      if (allow) plan.weight[static_cast<std::size_t>(kind)] = w;
    }
  };
  plan.delay = std::chrono::microseconds(20 + random.below(2000));
  plan.jitter = std::chrono::microseconds(random.below(5000));
  const double drop = rate(0.1), duplicate = rate(0.1), reorder = rate(0.2), spike = rate(0.05);
  if (allowed.messages) {
    plan.drop = drop;
    plan.duplicate = duplicate;
    plan.reorder = reorder;
    plan.delay_spike = spike;
  }
  plan.buggify = allowed.buggify ? rate(0.5) : 0;
  plan.between_events = std::chrono::milliseconds(100 + random.below(4000));
  weigh(allowed.messages, {Fault::slow_route});
  weigh(allowed.connections, {Fault::connection_drop, Fault::connection_flap});
  weigh(allowed.partitions, {Fault::partition_one_way, Fault::partition_two_way,
                             Fault::partition_rolling, Fault::isolate});
  weigh(allowed.pauses, {Fault::stall, Fault::pause});
  weigh(allowed.kills, {Fault::kill, Fault::crash, Fault::kill_many, Fault::restart_fast});
  weigh(allowed.clocks, {Fault::clock_jump});
  weigh(allowed.disks, {Fault::disk_full, Fault::slow_disk});
  weigh(allowed.bit_flips, {Fault::bit_flip});
  return plan;
}

}  // namespace troupe::sim
