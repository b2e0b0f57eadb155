/// A Directory on a store, as its tests use it.
#pragma once

#include "troupe/runtime/control/directory.hpp"
#include "troupe/runtime/control/memory_store.hpp"

#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe::control::directory_test {

using namespace std::chrono_literals;

inline const NodeId kA{0, 1}, kB{0, 2}, kClient{0, 9};

inline ActorId actor_id(std::uint64_t n) {
  return ActorId{7, n};
}

inline ActorSpec spec(std::uint64_t n, std::string name = "", int max_restarts = 0) {
  ActorSpec s;
  s.id = actor_id(n);
  s.job = JobId{0, 1};
  s.name = std::move(name);
  s.name_space = "default";
  s.class_name = "Counter";
  s.creation = "bytes";
  s.max_restarts = max_restarts;
  return s;
}

/// A directory on a store. It commits every output before the test sees its events.
struct DirectoryTest : testing::Test {
  std::shared_ptr<MemoryDisk> disk = std::make_shared<MemoryDisk>(1);
  std::unique_ptr<Store> store;
  std::optional<Directory> actors;
  std::vector<DirectoryEvent> events;
  Time now = Time{} + 1000s;

  void SetUp() override { restart({}); }
  void restart(std::vector<std::pair<NodeId, Epoch>> awaited) {
    store.reset();
    store = open_memory_store(disk, {}).value();
    actors.emplace(Directory::recover(*store, {}, std::move(awaited)).value());
    run(actors->start());
  }
  void run(Directory::Out out) {
    ASSERT_TRUE(store->commit({&out.writes, 1}).ok());
    events = std::move(out.at_once);
    for (auto& event : out.after_sync) events.push_back(std::move(event));
  }
  template <class Event>
  std::vector<Event> got() const {
    std::vector<Event> found;
    for (const auto& event : events)
      if (const auto* match = std::get_if<Event>(&event)) found.push_back(*match);
    return found;
  }
  ActorReply spawn(ActorSpec s, bool get_if_exists = false) {
    run(actors->on_spawn({kClient, 5, std::move(s), get_if_exists}, now));
    return got<ActorReply>().at(0);
  }
  /// Carries the pending placement through until the actor is alive; returns its incarnation.
  std::uint64_t bring_up(std::uint64_t n, NodeId node = kA, Epoch epoch = 1) {
    wait_for(n);
    const auto placed = actors->find(actor_id(n))->incarnation;
    run(actors->on_placed(actor_id(n), placed, node, epoch));
    EXPECT_EQ(got<StartActorAt>().size(), 1u);
    run(actors->on_started(actor_id(n), placed, node, epoch, 42, now));
    EXPECT_EQ(state(n), ActorState::alive);
    return placed;
  }
  /// Waits until the pause before the actor's next life is over.
  void wait_for(std::uint64_t n) {
    if (actors->find(actor_id(n))->retry_in == Duration::zero()) return;
    now = *actors->next_deadline();
    run(actors->on_tick(now));
    EXPECT_EQ(actors->find(actor_id(n))->retry_in, Duration::zero());
  }
  ActorState state(std::uint64_t n) const { return actors->find(actor_id(n))->state; }
  /// Returns how many tombstones are written down.
  std::size_t remembered() {
    std::size_t dead = 0;
    EXPECT_TRUE(store->scan("killed/", [&](auto, auto) { ++dead; }).ok());
    return dead;
  }
  void hosts(NodeId node, Epoch epoch, std::vector<HostedActor> hosted = {}) {
    run(actors->on_node_hosts({node, epoch, store->epoch(), std::move(hosted)}, now));
  }
  void die(std::uint64_t n) {
    run(actors->on_died(actor_id(n), actors->find(actor_id(n))->incarnation,
                        Error(Code::worker_died, "killed by signal 9"), false, now));
  }
};

}  // namespace troupe::control::directory_test
