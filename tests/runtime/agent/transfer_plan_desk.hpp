// Carries out TransferPlan's effects in tests. Memory and connections come at once, and effects
// are recorded.
#pragma once

#include "troupe/runtime/agent/transfer_plan.hpp"

#include <gtest/gtest.h>
#include <set>
#include <vector>

namespace troupe::agent::test {

using namespace std::chrono_literals;
using Plan = TransferPlan;

inline constexpr NodeId kOne{0, 1}, kTwo{0, 2};
inline constexpr std::uint64_t kMiB = 1 << 20;
inline const Time kStart = Time{} + 1h;

inline ObjectId object(std::uint64_t n) {
  return {7, n};
}

/// Carries out a plan's effects: grants memory and connections at once, and records what it is
/// told.
struct Desk {
  Plan plan;
  Time now = kStart;
  std::vector<Plan::Ask> asks;
  std::vector<Plan::Offer> offers;
  std::vector<Plan::Close> closes;
  std::vector<Plan::Complete> completes;
  std::vector<Plan::Failed> failures;
  std::set<PullId> memory;
  bool full = false;
  std::uint64_t most = ~std::uint64_t{0};  ///< the most bytes that it grants at once

  explicit Desk(PlanOptions options = {}) : plan(options) {}

  void pull(NodeId node, std::uint64_t n, std::uint64_t bytes, Priority how = Priority::get) {
    plan.pull(node, object(n), bytes, how, now);
    settle();
  }
  void settle() {
    for (auto actions = plan.take_actions(); !actions.empty(); actions = plan.take_actions())
      for (Plan::Action& action : actions) {
        if (auto* reserve = std::get_if<Plan::Reserve>(&action)) {
          if (full || reserve->bytes > most) {
            plan.no_memory(reserve->pull, Error(Code::out_of_memory, "full"), now);
          } else {
            memory.insert(reserve->pull);
            plan.reserved(reserve->pull, now);
          }
        } else if (auto* discard = std::get_if<Plan::Discard>(&action)) {
          EXPECT_EQ(memory.erase(discard->pull), 1u);
        } else if (auto* complete = std::get_if<Plan::Complete>(&action)) {
          EXPECT_EQ(memory.erase(complete->pull), 1u);
          completes.push_back(*complete);
        } else if (auto* ask = std::get_if<Plan::Ask>(&action)) {
          asks.push_back(*ask);
        } else if (auto* offer = std::get_if<Plan::Offer>(&action)) {
          offers.push_back(*offer);
        } else if (auto* close = std::get_if<Plan::Close>(&action)) {
          closes.push_back(*close);
        } else {
          failures.push_back(std::get<Plan::Failed>(action));
        }
      }
    EXPECT_EQ(plan.check(), "");
  }
  void receive(const Plan::Ask& ask) {
    plan.received(ask.node, ask.connection, ask.pull, now);
    settle();
  }
  void end(NodeId node, ConnectionId connection) {
    plan.connection_ended(node, connection, Error(Code::unavailable, "cut"), now);
    settle();
  }
  void wait(Duration time) {
    now += time;
    plan.on_tick(now);
    settle();
  }
};

}  // namespace troupe::agent::test
