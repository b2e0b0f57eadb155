// Proves the simulator itself: the same seed gives the same run, also in another process; each
// kind of fault does what it says; a planted violation is found; and healing ends every fault.
#include "tests/simulation/kernel/flat_map.hpp"
#include "tests/simulation/kernel/seeds.hpp"

#include <gtest/gtest.h>

namespace troupe::sim {
namespace {

using namespace std::chrono_literals;

/// Keeps a synced and an unsynced counter, which show what a crash takes.
struct CounterDisk : Disk {
  std::uint64_t synced = 0, unsynced = 0;
  bool full = false;
  bool inject(Fault fault, Random& random) override {
    if (fault == Fault::lost_unsynced || fault == Fault::torn_write) {
      const bool lost = unsynced > 0;
      if (fault == Fault::torn_write) synced += random.below(unsynced + 1);
      unsynced = 0;
      return lost;
    }
    if (fault == Fault::disk_full) full = true;
    return fault == Fault::disk_full;
  }
  void on_process_death() override { synced += std::exchange(unsynced, 0); }
  void heal() override { full = false; }
};

/// A node that asks a random peer at every tick and counts the answers.
struct Pinger : Node<std::uint64_t> {
  std::uint64_t* answered;
  explicit Pinger(std::uint64_t* count) : answered(count) {}
  void on_start(Env<std::uint64_t>& env) override { env.set_timer(1, env.now() + 10ms); }
  void on_timer(Env<std::uint64_t>& env, std::uint64_t) override {
    const auto n = env.node_count();
    const auto peer = static_cast<NodeIndex>((env.self() + 1 + env.random().below(n - 1)) % n);
    env.send(peer, 2 * env.random().below(1000));
    env.count_call();
    if (auto* disk = dynamic_cast<CounterDisk*>(env.disk())) {
      ++disk->unsynced;
      if (env.random().chance(0.3)) disk->synced += std::exchange(disk->unsynced, 0);
    }
    env.set_timer(1, env.now() + 10ms + Duration(env.random().below(20'000'000)));
  }
  void on_message(Env<std::uint64_t>& env, NodeIndex from, std::uint64_t m) override {
    if (m % 2 == 0) {
      env.send(from, m + 1);
    } else {
      ++*answered;
    }
  }
};

Report ping(std::uint64_t seed, Delivery delivery = Delivery::datagram) {
  Random random(seed);
  std::uint64_t answered = 0;
  WorldOptions options{.seed = seed, .nodes = 3 + random.below(3), .delivery = delivery};
  options.plan = FaultPlan::random(random, {.disks = true});
  World<std::uint64_t> world(options,
                             [&](NodeIndex) { return std::make_unique<Pinger>(&answered); });
  for (NodeIndex i = 0; i < options.nodes; ++i)
    world.attach_disk(i, std::make_shared<CounterDisk>());
  std::uint64_t at_heal = 0;
  world.at(10s, [&] { at_heal = answered; });
  return world.run(
      {.faults_for = 10s, .liveness_within = 60s, .done = [&] { return answered > at_heal + 20; }});
}

TEST(Kernel, SameSeedSameTraceAlsoInAnotherProcess) {
  const Summary summary =
      run_seeds("Kernel.SameSeedSameTraceAlsoInAnotherProcess", 200, [](std::uint64_t s) {
        return ping(s, s % 2 == 0 ? Delivery::datagram : Delivery::reliable);
      });
  ASSERT_TRUE(summary.ok()) << summary.text();
  std::puts(summary.text().c_str());
  EXPECT_GE(summary.counted, summary.seeds / 2);
  for (Fault fault : {Fault::drop,
                      Fault::duplicate,
                      Fault::reorder,
                      Fault::delay_spike,
                      Fault::slow_route,
                      Fault::connection_drop,
                      Fault::connection_flap,
                      Fault::partition_one_way,
                      Fault::partition_two_way,
                      Fault::partition_rolling,
                      Fault::isolate,
                      Fault::stall,
                      Fault::pause,
                      Fault::kill,
                      Fault::crash,
                      Fault::kill_many,
                      Fault::restart_fast,
                      Fault::clock_jump,
                      Fault::lost_unsynced,
                      Fault::torn_write,
                      Fault::disk_full})
    EXPECT_GT(summary.faults[fault], 0u) << name_of(fault);
}

TEST(Kernel, AnotherSeedAnotherTrace) {
  EXPECT_NE(ping(1).trace, ping(2).trace);
}

TEST(Kernel, TraceDependsOnOrder) {
  EXPECT_NE(Trace().mix(1).mix(2).value(), Trace().mix(2).mix(1).value());
  EXPECT_NE(Trace().mix("ab").mix("c").value(), Trace().mix("a").mix("bc").value());
}

TEST(Kernel, AQuietScheduleDoesNotCount) {
  Report report{.calls = 1000, .nodes = 5};
  EXPECT_FALSE(report.counts());
  report.faults.hit(Fault::drop, 5);
  EXPECT_TRUE(report.counts());
}

constexpr std::uint64_t kCountsSleep = 50;

/// A node that records everything that it receives.
struct Recorder : Node<std::uint64_t> {
  std::vector<std::string>* log;
  explicit Recorder(std::vector<std::string>* l) : log(l) {}
  void on_message(Env<std::uint64_t>&, NodeIndex from, std::uint64_t m) override {
    log->push_back(std::to_string(from) + ":" + std::to_string(m));
  }
  void on_timer(Env<std::uint64_t>&, std::uint64_t id) override {
    log->push_back("timer " + std::to_string(id));
  }
  void on_connection(Env<std::uint64_t>&, NodeIndex peer, bool up) override {
    log->push_back(std::to_string(peer) + (up ? " up" : " down"));
  }
  void on_peer_restarted(Env<std::uint64_t>&, NodeIndex peer) override {
    log->push_back(std::to_string(peer) + " restarted");
  }
  bool goes_on(std::uint64_t timer) const override { return timer >= 100; }
  bool counts_sleep(std::uint64_t timer) const override { return timer == kCountsSleep; }
};

struct Script {
  std::vector<std::string> log[3];
  World<std::uint64_t> world;
  explicit Script(Delivery delivery)
      : world({.seed = 1, .nodes = 3, .delivery = delivery},
              [this](NodeIndex i) { return std::make_unique<Recorder>(&log[i]); }) {}
  void send(Duration when, NodeIndex from, NodeIndex to, std::uint64_t m) {
    world.at(when,
             [=, this] { world.with(from, [&](Env<std::uint64_t>& env) { env.send(to, m); }); });
  }
  Report run(Duration length) {
    return world.run({.faults_for = length, .liveness_within = 1s, .done = [] { return true; }});
  }
  Cut alone(NodeIndex i) {
    Cut cut;
    cut.inside.assign(3, false);
    cut.inside[i] = true;
    return cut;
  }
};
using Log = std::vector<std::string>;

TEST(Kernel, ReliableDeliveryHoldsMessagesThroughACut) {
  Script s(Delivery::reliable);
  s.world.at(0s, [&] { s.world.cut(s.alone(1), 5s); });
  for (std::uint64_t i = 1; i <= 3; ++i) s.send(i * 1s, 0, 1, i);
  s.send(6s, 0, 1, 4);
  s.run(10s);
  EXPECT_EQ(s.log[1], (Log{"0:1", "0:2", "0:3", "0:4"}));
}

TEST(Kernel, DatagramDeliveryLosesWhatMeetsACutAndOneWayIsOneWay) {
  Script s(Delivery::datagram);
  s.world.at(0s, [&] {
    Cut cut = s.alone(1);
    cut.one_way = true;  // messages from node 1 are lost
    s.world.cut(cut, 5s);
  });
  s.send(1s, 0, 1, 1);
  s.send(1s, 1, 0, 2);
  s.send(6s, 1, 0, 3);
  s.run(10s);
  EXPECT_EQ(s.log[1], (Log{"0:1"}));
  EXPECT_EQ(s.log[0], (Log{"1:3"}));
}

TEST(Kernel, AClosedConnectionLosesWhatIsInFlight) {
  Script s(Delivery::datagram);
  s.send(1s, 0, 1, 1);
  s.world.at(1s, [&] { s.world.drop_connection(0, 1, 1s); });
  s.send(1500ms, 0, 1, 2);
  s.send(3s, 0, 1, 3);
  s.run(10s);
  EXPECT_EQ(s.log[1], (Log{"0 down", "0 up", "0:3"}));
}

TEST(Kernel, AConnectionDroppedWhileASideWasDeadOpensWhenItStartsAlsoWhenTheyNeverSpoke) {
  Script s(Delivery::datagram);
  s.world.at(1s, [&] { s.world.kill(1); });
  s.world.at(1s, [&] { s.world.drop_connection(0, 1, 1ms); });
  s.send(20s, 0, 1, 1);
  s.run(30s);
  EXPECT_EQ(s.log[1], (Log{"0:1"}));
}

TEST(Kernel, APausedProcessGetsEverythingLate) {
  Script s(Delivery::reliable);
  s.world.at(0s, [&] {
    s.world.with(1, [](Env<std::uint64_t>& env) { env.set_timer(7, env.now() + 2s); });
    s.world.pause(1, 5s);
  });
  s.send(1s, 0, 1, 1);
  s.world.at(4s, [&] { EXPECT_TRUE(s.log[1].empty()); });
  s.run(10s);
  EXPECT_EQ(s.log[1], (Log{"0:1", "timer 7"}));
}

TEST(Kernel, AMachineThatSleepsDoesNotNoticeByItsClock) {
  Script s(Delivery::reliable);
  Duration awake{}, up{};
  const auto clocks = [&] { return std::pair(s.world.clock_of(1), s.world.up_time_of(1)); };
  s.world.at(0s, [&] {
    s.world.with(1, [](Env<std::uint64_t>& env) {
      env.set_timer(7, env.now() + 2s);
      env.set_timer(kCountsSleep, env.now() + 3s);
    });
    const auto before = clocks();
    s.world.at(1s, [&] {
      EXPECT_TRUE(s.world.sleep(1, 5s));
      EXPECT_FALSE(s.world.sleep(1, 1s)) << "it sleeps already";
    });
    s.world.at(4s, [&, before] {
      EXPECT_EQ(s.world.clock_of(1), before.first + 1s);
      EXPECT_TRUE(s.log[1].empty());
    });
    s.world.at(6500ms, [&, before] {
      awake = clocks().first - before.first;
      up = clocks().second - before.second;
      EXPECT_EQ(s.log[1], (Log{"0:1", "timer " + std::to_string(kCountsSleep)}));
    });
  });
  s.send(2s, 0, 1, 1);
  s.run(10s);
  EXPECT_EQ(awake, 1500ms);
  EXPECT_EQ(up, 6500ms);
  EXPECT_EQ(s.log[1].back(), "timer 7") << "a second was left";
}

TEST(Kernel, WhatIsBesideAProcessThatStandsStillAloneGoesOn) {
  Script s(Delivery::reliable);
  s.world.at(0s, [&] {
    s.world.with(1, [](Env<std::uint64_t>& env) {
      for (const std::uint64_t timer : {7, 100, 101})
        env.set_timer(timer, env.now() + (timer == 101 ? 6s : 2s));
    });
    EXPECT_TRUE(s.world.stop_alone(1, 5s));
    EXPECT_FALSE(s.world.stop_alone(1, 1s)) << "it stands still already";
  });
  s.send(1s, 0, 1, 1);
  s.world.at(4s, [&] {
    EXPECT_TRUE(s.world.stopped_alone(1));
    EXPECT_EQ(s.log[1], (Log{"timer 100"}));
    EXPECT_FALSE(s.world.with(1, [](Env<std::uint64_t>&) {}));
    EXPECT_TRUE(s.world.beside(1, [](Env<std::uint64_t>&) {}));
  });
  s.run(10s);
  EXPECT_FALSE(s.world.stopped_alone(1));
  EXPECT_EQ(s.log[1], (Log{"timer 100", "0:1", "timer 7", "timer 101"}));
}

TEST(Kernel, ARestartedPeerIsAnnouncedAndItsPastIsGone) {
  Script s(Delivery::reliable);
  s.send(1s, 0, 1, 1);
  s.send(1s, 1, 0, 1);
  s.world.at(2s, [&] { s.world.crash(0); });
  s.send(3s, 1, 0, 2);  // lost: the process is dead
  s.world.at(20s, [&] { EXPECT_TRUE(s.world.alive(0)); });
  s.send(21s, 0, 1, 3);
  s.run(30s);
  EXPECT_EQ(s.log[1], (Log{"0:1", "0 up", "0 restarted", "0:3"}));
  EXPECT_EQ(s.log[0], (Log{"1:1"}));
}

TEST(Kernel, TimersAreReplacedAndCancelled) {
  Script s(Delivery::reliable);
  s.world.at(0s, [&] {
    s.world.with(0, [](Env<std::uint64_t>& env) {
      env.set_timer(1, env.now() + 1s);
      env.set_timer(1, env.now() + 2s);
      env.set_timer(2, env.now() + 1s);
      env.cancel_timer(2);
    });
  });
  s.world.at(1500ms, [&] { EXPECT_TRUE(s.log[0].empty()); });
  s.run(5s);
  EXPECT_EQ(s.log[0], (Log{"timer 1"}));
}

TEST(Kernel, AnEarlierTimerStaysWhereOneIsSetByATime) {
  Script s(Delivery::reliable);
  s.world.at(0s, [&] {
    s.world.with(0, [](Env<std::uint64_t>& env) {
      env.set_timer_by(1, env.now() + 3s);
      env.set_timer_by(1, env.now() + 1s);
      env.set_timer_by(1, env.now() + 2s);
    });
  });
  s.world.at(1500ms, [&] { EXPECT_EQ(s.log[0], (Log{"timer 1"})); });
  s.run(5s);
  EXPECT_EQ(s.log[0], (Log{"timer 1"}));
}

TEST(Kernel, TimersOfADeadProcessGoWithIt) {
  Script s(Delivery::reliable);
  for (const bool paused : {false, true}) {
    const Duration begin = paused ? Duration(40s) : Duration(0s);
    s.world.at(begin, [&] {
      s.world.with(0, [](Env<std::uint64_t>& env) { env.set_timer(1, env.now() + 2s); });
    });
    if (paused) s.world.at(begin + 1s, [&] { s.world.pause(0, 10s); });
    s.world.at(begin + (paused ? 3s : 1s), [&] { s.world.kill(0); });
  }
  s.run(80s);
  EXPECT_EQ(s.log[0], (Log{}));
}

TEST(Kernel, FailuresOfSafetyAndLivenessAreReported) {
  {
    Script safe(Delivery::reliable);
    safe.world.at(1s, [&] { safe.world.check(false, "two leaders"); });
    EXPECT_EQ(safe.run(5s).violation, "two leaders");
  }
  Script live(Delivery::reliable);
  const Report report =
      live.world.run({.faults_for = 1s, .liveness_within = 5s, .done = [] { return false; }});
  EXPECT_EQ(report.violation.substr(0, 8), "liveness");
  EXPECT_LE(report.virtual_time, 10s);
}

TEST(KernelDeathTest, AnAbortPrintsTheSeed) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(
      {
        ScheduleScope scope(4711, 0);
        TROUPE_ASSERT(1 == 2, "planted");
      },
      "4711");
}

TEST(Kernel, BuggifyAndMutantsAreOffOutsideASchedule) {
  EXPECT_FALSE(TROUPE_BUGGIFY("kernel.example", 1.0));
  EXPECT_FALSE(TROUPE_MUTANT("kernel.example"));
  ScheduleScope scope(1, 1.0);
  MutantScope mutant("kernel.example");
  EXPECT_TRUE(TROUPE_BUGGIFY("kernel.example", 1.0));
  EXPECT_TRUE(TROUPE_MUTANT("kernel.example"));
  EXPECT_FALSE(TROUPE_MUTANT("kernel.other"));
  EXPECT_TRUE(mutant.reached());
}

TEST(Kernel, AFlatMapHoldsWhatAMapHoldsInItsOrder) {
  Random random(7);
  FlatMap<std::uint64_t, std::uint64_t> flat;
  std::map<std::uint64_t, std::uint64_t> map;
  for (std::uint64_t step = 0; step < 5000; ++step) {
    const std::uint64_t key = random.below(40);
    switch (random.below(3)) {
      case 0:
        EXPECT_EQ(flat.try_emplace(key, step).second, map.try_emplace(key, step).second);
        break;
      case 1: flat[key] = map[key] = step; break;
      default: flat.erase(key), map.erase(key);
    }
    EXPECT_EQ(flat.find(key) != flat.end(), map.count(key) != 0);
    ASSERT_TRUE(std::equal(flat.begin(), flat.end(), map.begin(), map.end(), [](auto& a, auto& b) {
      return a.first == b.first && a.second == b.second;
    }));
  }
}

TEST(Kernel, WhatIsDueComesInOrderHoweverItWasMovedAndTakenOut) {
  Random random(11);
  EventHeap heap;
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::uint32_t> map;  // time, number -> slot
  std::map<std::uint32_t, std::pair<std::uint64_t, std::uint64_t>> places;
  std::uint64_t coming = 0;
  const auto set = [&](std::uint32_t slot) {
    const std::uint64_t at = random.below(50);
    const bool waits = places.count(slot) != 0;
    if (waits) map.erase(places[slot]);
    places[slot] = {at, ++coming};
    map[places[slot]] = slot;
    waits ? heap.move(slot, Time(Duration(at))) : heap.push(Time(Duration(at)), slot);
    EXPECT_EQ(heap.at(slot), Time(Duration(at)));
  };
  for (int step = 0; step < 20'000; ++step) {
    const auto slot = static_cast<std::uint32_t>(random.below(60));
    switch (random.below(4)) {
      case 0:
      case 1: set(slot); break;
      case 2:
        if (places.count(slot) == 0) break;
        heap.erase(slot);
        map.erase(places[slot]);
        places.erase(slot);
        break;
      default:
        if (map.empty()) break;
        EXPECT_EQ(heap.next(), Time(Duration(map.begin()->first.first)));
        ASSERT_EQ(heap.pop(), map.begin()->second);
        places.erase(map.begin()->second);
        map.erase(map.begin());
    }
    ASSERT_EQ(heap.empty(), map.empty());
  }
}

TEST(Kernel, AThousandNodesAtOneHeartbeatASecond) {
  struct Beat : Node<std::uint64_t> {
    std::uint64_t* beats;
    explicit Beat(std::uint64_t* b) : beats(b) {}
    void on_start(Env<std::uint64_t>& env) override { on_timer(env, 1); }
    void on_timer(Env<std::uint64_t>& env, std::uint64_t) override {
      if (env.self() != 0) env.send(0, 1);
      env.set_timer(1, env.now() + 1s);
    }
    void on_message(Env<std::uint64_t>&, NodeIndex, std::uint64_t) override { ++*beats; }
  };
  std::uint64_t beats = 0;
  World<std::uint64_t> world({.seed = 3, .nodes = 1000, .delivery = Delivery::reliable},
                             [&](NodeIndex) { return std::make_unique<Beat>(&beats); });
  const Report report =
      world.run({.faults_for = 30s, .liveness_within = 1s, .done = [] { return true; }});
  EXPECT_GE(beats, 30u * 999u);
  EXPECT_EQ(report.violation, "");
}

}  // namespace
}  // namespace troupe::sim
