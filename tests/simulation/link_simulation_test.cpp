// Proves Link under every network fault of the simulator, for each seed. An accepted message
// arrives exactly once and in order, or its sender learns of the reset. No message from before a
// reset arrives after it. A message that a reset reports as not executed never arrived. Memory is
// bounded. When the faults stop, everything arrives. Planted bugs must be found.
#include "tests/simulation/kernel/seeds.hpp"
#include "troupe/runtime/net/link.hpp"

#include <gtest/gtest.h>
#include <cstring>
#include <tuple>

namespace troupe {
namespace {

using namespace std::chrono_literals;
using sim::NodeIndex;

/// The truth about one life of a sender and one peer.
struct Stream {
  net::Ticket accepted = 0, resolved = 0, acknowledged = 0;
  net::Ticket not_executed_from = 0, not_executed_through = 0;
  std::vector<bool> arrived;  // by ticket
  net::Ticket last_arrived = 0;
};
using StreamKey = std::tuple<NodeIndex, std::uint32_t, NodeIndex>;

struct Content {
  NodeIndex from = 0, to = 0;
  std::uint32_t life = 0, filler = 0;
  net::Ticket ticket = 0;
};

struct Truth {
  std::map<StreamKey, Stream> streams;
  std::uint64_t overloaded = 0, resets = 0, arrived = 0;
  std::size_t calls_per_node = 0;
};

net::LinkOptions small_window() {
  net::LinkOptions options;
  options.build_id = "sim";
  options.window_messages = 16;
  options.window_bytes = 4096;
  options.idle_close = 3s;
  return options;
}

/// A process with a Link to each peer and a workload that calls random peers.
class Peer : public sim::Node<Blob> {
 public:
  explicit Peer(Truth& truth) : truth_(truth) {}

  void on_start(sim::Env<Blob>& env) override {
    for (NodeIndex i = 0; i < env.node_count(); ++i) {
      const SessionId session{env.random()() | 1, env.random()()};
      links_.emplace_back(small_window(), session, env.now());
    }
    for (NodeIndex i = 0; i < env.node_count(); ++i)
      if (i != env.self()) act(env, i, [&](auto& out) { links_[i].on_connected(env.now(), out); });
    env.set_timer(work_timer, env.now() + 5ms);
  }
  void on_message(sim::Env<Blob>& env, NodeIndex from, Blob bytes) override {
    act(env, from, [&](auto& out) { links_[from].on_frame(bytes, env.now(), out); });
  }
  void on_timer(sim::Env<Blob>& env, std::uint64_t id) override {
    if (id == work_timer) return work(env);
    const auto peer = static_cast<NodeIndex>(id - 1);
    act(env, peer, [&](auto& out) { links_[peer].on_time(env.now(), out); });
  }
  void on_connection(sim::Env<Blob>& env, NodeIndex peer, bool up) override {
    act(env, peer, [&](auto& out) {
      up ? links_[peer].on_connected(env.now(), out) : links_[peer].on_disconnected();
    });
  }
  bool drained(NodeIndex self) const {
    for (NodeIndex i = 0; i < links_.size(); ++i)
      if (i != self && (links_[i].unacknowledged() > 0 || !links_[i].established())) return false;
    return true;
  }

 private:
  static constexpr std::uint64_t work_timer = 0;

  void work(sim::Env<Blob>& env) {
    if (calls_ >= truth_.calls_per_node) return;
    const auto n = env.node_count();
    const auto to = static_cast<NodeIndex>((env.self() + 1 + env.random().below(n - 1)) % n);
    const std::size_t burst = env.random().chance(0.1) ? 30 : 1 + env.random().below(3);
    for (std::size_t i = 0; i < burst; ++i) call(env, to);
    const bool rest = env.random().chance(0.02);
    env.set_timer(work_timer,
                  env.now() + (rest ? 5s : 20ms) + Duration(env.random().below(50'000'000)));
  }
  void call(sim::Env<Blob>& env, NodeIndex to) {
    Stream& stream = truth_.streams[{env.self(), env.incarnation(), to}];
    Content content{env.self(), to, env.incarnation(), 0, stream.accepted + 1};
    Blob bytes(sizeof content + env.random().below(200));
    std::memcpy(bytes.data(), &content, sizeof content);
    act(env, to, [&](auto& out) {
      // The truth must know the ticket before the message can travel.
      stream.accepted += 1;
      stream.arrived.resize(stream.accepted + 1);
      const Result<net::Ticket> ticket = links_[to].send(std::move(bytes), env.now(), out);
      if (!ticket) {
        stream.accepted -= 1;
        stream.arrived.resize(stream.accepted + 1);
        ++truth_.overloaded;
        return;
      }
      env.check(*ticket == stream.accepted, "tickets are not consecutive");
      ++calls_;
      env.count_call();
    });
  }

  template <class Act>
  void act(sim::Env<Blob>& env, NodeIndex peer, Act&& use) {
    net::LinkOutput out;
    use(out);
    for (net::LinkEvent& event : out.events) on_event(env, peer, event);
    for (net::Frame& frame : out.transmit) env.send(peer, net::encode(frame));
    for (net::Delivered& message : out.deliver) arrived(env, peer, message.payload);
    net::Link& link = links_[peer];
    env.check(link.held_bytes() <= 2 * 4096 + 512, "a Link holds more than its window");
    const Time due = link.next_deadline();
    if (due == Time::max()) {
      env.cancel_timer(peer + 1);
    } else {
      env.set_timer(peer + 1, std::max(due, env.now() + 1us));
    }
  }
  void on_event(sim::Env<Blob>& env, NodeIndex peer, net::LinkEvent& event) {
    if (auto* reset = std::get_if<net::Reset>(&event)) {
      Stream& stream = truth_.streams[{env.self(), env.incarnation(), peer}];
      env.check(reset->accepted_through == stream.accepted, "a reset forgets tickets");
      env.check(reset->delivered_through <= reset->sent_through &&
                    reset->sent_through <= reset->accepted_through,
                "a reset contradicts itself");
      for (net::Ticket t = stream.resolved + 1; t <= stream.accepted; ++t) {
        if (t <= reset->delivered_through)
          env.check(stream.arrived[t], "called delivered, did not arrive");
        if (reset->outcome_of(t) == Outcome::not_executed)
          env.check(!stream.arrived[t], "called not executed, but it arrived");
      }
      stream.resolved = reset->accepted_through;
      ++truth_.resets;
    } else if (std::get_if<net::Violation>(&event) != nullptr) {
      env.check(false, "an honest peer is accused of a violation");
    } else if (std::get_if<net::Open>(&event) != nullptr ||
               std::get_if<net::Reconnect>(&event) != nullptr) {
      net::LinkOutput out;
      links_[peer].on_connected(env.now(), out);
      for (net::Frame& frame : out.transmit) env.send(peer, net::encode(frame));
    }
  }
  void arrived(sim::Env<Blob>& env, NodeIndex peer, const Blob& bytes) {
    Content content;
    if (bytes.size() < sizeof content) return env.check(false, "a message was cut");
    std::memcpy(&content, bytes.data(), sizeof content);
    env.check(content.from == peer && content.to == env.self(), "a message went astray");
    Stream& stream = truth_.streams[{content.from, content.life, content.to}];
    env.check(content.ticket <= stream.accepted, "a message arrived that was never accepted");
    env.check(!stream.arrived[content.ticket], "a message arrived twice");
    env.check(content.ticket > stream.last_arrived, "messages arrived out of order");
    env.check(content.ticket > stream.resolved, "a message of before a reset arrived after it");
    for (net::Ticket t = std::max(stream.last_arrived, stream.resolved) + 1; t < content.ticket;
         ++t)
      env.check(false, "a message was skipped without a reset");
    stream.arrived[content.ticket] = true;
    stream.last_arrived = content.ticket;
    ++truth_.arrived;
  }

  Truth& truth_;
  std::vector<net::Link> links_;
  std::size_t calls_ = 0;
};

sim::Report link_schedule(std::uint64_t seed) {
  Random random(seed);
  Truth truth;
  sim::WorldOptions options{.seed = seed, .nodes = 3 + random.below(2)};
  options.plan = sim::FaultPlan::random(random, {});
  options.plan.longest_pause = 3s;
  options.plan.longest_partition = 4s;
  options.plan.longest_down = 2s;
  truth.calls_per_node = 60;
  sim::World<Blob> world(options, [&](NodeIndex) { return std::make_unique<Peer>(truth); });
  auto done = [&] {
    for (NodeIndex i = 0; i < options.nodes; ++i) {
      auto* peer = static_cast<Peer*>(world.node(i));
      if (peer == nullptr || !peer->drained(i)) return false;
    }
    return true;
  };
  sim::Report report = world.run({.faults_for = 4s, .liveness_within = 120s, .done = done});
  if (!report.violation.empty()) return report;
  for (const auto& [key, stream] : truth.streams) {
    const auto& [from, life, to] = key;
    if (life != world.incarnation(from)) continue;  // these messages died with their process
    for (net::Ticket t = stream.resolved + 1; t <= stream.accepted; ++t)
      if (!stream.arrived[t]) report.violation = "an accepted message was lost without a reset";
  }
  return report;
}

TEST(LinkSimulation, ExactlyOnceInOrderOrReset) {
  const sim::Summary summary =
      sim::run_seeds("LinkSimulation.ExactlyOnceInOrderOrReset", 2000, link_schedule);
  ASSERT_TRUE(summary.ok()) << summary.text();
  std::puts(summary.text().c_str());
  EXPECT_GE(summary.counted * 10, summary.seeds * 8) << summary.text();
}

class LinkMutant : public ::testing::TestWithParam<const char*> {};

TEST_P(LinkMutant, IsFound) {
  const std::uint64_t seeds = sim::seeds_to_find(GetParam(), 20000, link_schedule);
  ASSERT_NE(seeds, 0u) << GetParam() << " survived";
  std::printf("%s: found by seed %llu\n", GetParam(), static_cast<unsigned long long>(seeds));
}

INSTANTIATE_TEST_SUITE_P(Planted, LinkMutant,
                         ::testing::Values("link.accept_duplicates", "link.keep_window_at_reset",
                                           "link.ack_beyond_gap", "link.no_resend",
                                           "link.ignore_receiver", "link.adopt_without_echo"),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name)
                             if (c == '.') c = '_';
                           return name;
                         });

}  // namespace
}  // namespace troupe
