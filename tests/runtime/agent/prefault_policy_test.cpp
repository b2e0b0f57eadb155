// Tests when memory is touched ahead of its use: the cost is CPU time of the processes that run
// then.
#include "troupe/runtime/agent/prefault_policy.hpp"

#include <gtest/gtest.h>

namespace troupe::agent {
namespace {

using namespace std::chrono_literals;

/// An agent with some CPUs, of which other processes constantly use a part.
struct Agent {
  PrefaultPolicy prefault;
  int cpus = 1;
  double use = 0;
  std::uint64_t left = std::uint64_t{64} << 20;  ///< bytes to prepare
  Time now{1s};
  Duration used{};
  int pieces = 0, looks = 0;
  Bytes last{};

  void pass(Duration time) {
    now += time;
    used += Duration(static_cast<Duration::rep>(use * static_cast<double>(time.count())));
  }
  /// Runs from timer to timer for `span`; returns the bytes that were prepared.
  std::uint64_t prepare_for(Duration span) {
    const std::uint64_t before = left;
    const Time end = now + span;
    while (prefault.next_deadline() < end) {
      pass(std::max(prefault.next_deadline() - now, Duration(0)));
      if (!prefault.due(now)) break;
      ++looks;
      last = prefault.look(now, used, cpus);
      if (last.count == 0) continue;
      ++pieces;
      left -= std::min(left, last.count);
      now += 350us * (last.count >> 10) / 1024;  // no other process has the CPU meanwhile
      prefault.prepared(left != 0, now);
    }
    pass(std::max(end - now, Duration(0)));
    return before - left;
  }
};

TEST(PrefaultPolicy, OnAnIdleNodeAllIsPreparedSoonInPiecesThatGrow) {
  Agent agent;
  EXPECT_EQ(agent.prepare_for(100ms), 64u << 20);
  EXPECT_EQ(agent.pieces, 4 + 16);  // 256 KiB to 2 MiB, then 4 MiB each
  EXPECT_EQ(agent.prefault.next_deadline(), Time::max());
}

TEST(PrefaultPolicy, NothingIsPreparedWhileLessThanThreeQuartersOfACpuAreLeft) {
  for (const int cpus : {1, 2, 8}) {
    Agent agent;
    agent.cpus = cpus;
    agent.use = cpus - 0.7;
    EXPECT_EQ(agent.prepare_for(1s), 0u) << cpus << " CPUs";
    EXPECT_LE(agent.looks, 52) << "each look costs a system call a process";
    agent.use = cpus - 0.8;
    EXPECT_EQ(agent.prepare_for(1s), 64u << 20) << cpus << " CPUs";
  }
}

TEST(PrefaultPolicy, WhoTakesTurnsWithAnotherNodeIsSeenAfterAPause) {
  Agent agent;
  agent.use = 1;
  EXPECT_EQ(agent.prepare_for(100ms), 0u);
  for (int turn = 0; turn < 25; ++turn) {  // half of the CPU, in turns that a short look misses
    agent.use = turn % 2;
    EXPECT_EQ(agent.prepare_for(4ms), 0u) << "turn " << turn;
  }
}

TEST(PrefaultPolicy, AMessageWaitsForOneSmallPieceAtMost) {
  Agent agent;
  for (int i = 0; i < 100; ++i) {
    agent.prefault.disturbed(agent.now);
    EXPECT_EQ(agent.prepare_for(1ms), 0u) << "somebody was here a moment ago";
    agent.pass(1ms);
  }
  agent.prepare_for(12ms);
  EXPECT_GT(agent.last.count, PrefaultPolicy::kFirst.count);
  agent.prefault.disturbed(agent.now);
  agent.prepare_for(2500us);
  EXPECT_EQ(agent.last.count, PrefaultPolicy::kFirst.count);
}

TEST(PrefaultPolicy, AMessageDoesNotMakeItLookAgainAtProgramsThatUseTheCpu) {
  Agent agent;
  agent.use = 1;
  agent.prepare_for(5ms);
  const int looks = agent.looks;
  for (int i = 0; i < 5; ++i) {
    agent.prefault.disturbed(agent.now);
    agent.prepare_for(3ms);
  }
  EXPECT_EQ(agent.looks, looks);
}

TEST(PrefaultPolicy, WhatWasTakenIsPreparedAgain) {
  Agent agent;
  EXPECT_EQ(agent.prepare_for(1s), 64u << 20);
  EXPECT_EQ(agent.prepare_for(1s), 0u);
  agent.left = 8 << 20;
  agent.prefault.taken(agent.now);
  EXPECT_EQ(agent.prefault.next_deadline(), agent.now + PrefaultPolicy::kPause);
  EXPECT_EQ(agent.prepare_for(1s), 8u << 20);
}

}  // namespace
}  // namespace troupe::agent
