// The suite "remote": calls and objects between two nodes of this machine over encrypted loopback
// TCP, compared with ZeroMQ with CURVE and a sealed TCP stream. With placement two_cpus, the
// driver and its agent have one CPU, and the other node with its worker has the other; so do the
// two processes of the floor. With one_cpu, all share one CPU.
#include "suite.hpp"

#include "net_floor.hpp"
#include "tools.hpp"
#include "troupe/troupe.hpp"

#include <unistd.h>
#include <optional>
#include <stdexcept>

namespace troupe::bench {
namespace {

// --- code that runs in the workers ---

int echo(int x) {
  return x;
}
/// Pins this worker and its agent. A worker's parent is its job's zygote, whose parent is the
/// agent.
void take_node_to(int cpu) {
  pin(getpid(), cpu);
  pin(parent_of(getppid()), cpu);
}
Array<std::uint8_t> crossing(int salt) {
  return Array<std::uint8_t>(std::vector<std::uint8_t>(kCrossing, static_cast<std::uint8_t>(salt)));
}
int last_byte(const Array<std::uint8_t>& bytes) {
  return bytes[bytes.size() - 1];
}
class Echo {
 public:
  int say(int x) { return x; }
  void take(int cpu) { take_node_to(cpu); }
};

// --- measuring ---

struct Scene {
  Context& ctx;
  Actor<Echo> echo;
  NodeId other;
  bool quick;
  std::optional<double> transfer = {};  ///< shared by two rows
  int count(int full, int quick_count) const { return quick ? quick_count : full; }
};

double remote_sync(Scene& s) {
  const int n = s.count(3000, 50);
  for (int i = 0; i < n / 10; ++i) s.ctx.get(s.echo.call<&Echo::say>(i), kBound);
  return 1e6 * median_call(n, [&](int i) {
           expect(s.ctx.get(s.echo.call<&Echo::say>(i), kBound) == i, "a result");
         });
}

/// Calls per second. Every call has its own Ref, which is read.
template <class Call>
double in_flight(Scene& s, Call&& call) {
  const int n = s.count(100'000, 2000);
  double rate = 0;
  for (int run = 0; run < 2; ++run) {  // the first warms up
    std::vector<Ref<int>> refs;
    refs.reserve(static_cast<std::size_t>(n));
    const Stopwatch watch;
    for (int i = 0; i < n; ++i) refs.push_back(call(i));
    for (int i = 0; i < n; ++i)
      expect(s.ctx.get(refs[static_cast<std::size_t>(i)], kBound) == i, "a result");
    rate = n / watch.seconds();
  }
  return rate;
}
double remote_inflight(Scene& s) {
  return in_flight(s, [&s](int i) { return s.echo.call<&Echo::say>(i); });
}
double task_remote_inflight(Scene& s) {
  const auto there = s.ctx.with({.placement = troupe::Placement::on(s.other)});
  return in_flight(s, [&](int i) { return there.submit<echo>(i); });
}

/// GB/s from the other node's memory into this node's.
double transfer_large(Scene& s) {
  if (s.transfer) return *s.transfer;
  const auto there = s.ctx.with({.placement = troupe::Placement::on(s.other)});
  std::vector<double> rates;
  for (int i = 0; i < s.count(7, 2); ++i) {
    const Ref<Array<std::uint8_t>> ref = there.submit<crossing>(i);
    const std::vector<Ref<Array<std::uint8_t>>> refs{ref};
    expect(s.ctx.wait(refs, {.count = 1, .timeout = kBound}).ready.size() == 1, "an object");
    const Stopwatch watch;
    const Array<std::uint8_t> bytes = s.ctx.get(ref, kBound);
    rates.push_back(static_cast<double>(kCrossing) / watch.seconds() / 1e9);
    expect(bytes.size() == kCrossing && bytes[kCrossing - 1] == static_cast<std::uint8_t>(i),
           "its bytes");
  }
  s.transfer = middle(std::move(rates));
  return *s.transfer;
}

/// Returns the nodes other than this one. Waits, since control tells nodes of each other soon
/// after the start.
std::vector<NodeId> other_nodes(Context& ctx, std::size_t count) {
  for (const Stopwatch watch; watch.seconds() < 20; usleep(1000)) {
    std::vector<NodeId> others;
    for (const NodeInfo& node : ctx.cluster().nodes)
      if (node.id != ctx.node() && node.alive) others.push_back(node.id);
    if (others.size() == count) return others;
  }
  throw std::runtime_error("a measurement is wrong: nodes of the cluster are missing");
}

/// CPU seconds of all processes to bring one object to 8 nodes at once. The floor is the time to
/// bring one object to each, where nodes share nothing. Medians of three. Needs its own session.
Reading broadcast(bool quick) {
  const std::size_t count = quick ? 2 : 8;
  Session session({.cpus = 1, .nodes = static_cast<unsigned>(count) + 1});
  Context ctx = session.context();
  const std::vector<NodeId> others = other_nodes(ctx, count);
  const auto object = [&] {
    Builder<std::uint8_t> room = ctx.create<std::uint8_t>(kCrossing);
    for (std::size_t i = 0; i < kCrossing; i += 64) room[i] = static_cast<std::uint8_t>(i >> 6);
    room[kCrossing - 1] = 7;
    return room.seal();
  };
  const auto open_at = [&](NodeId node, const Ref<Array<std::uint8_t>>& ref) {
    return ctx.with({.placement = troupe::Placement::on(node)}).submit<last_byte>(ref);
  };
  std::vector<double> together, apart;
  for (int run = 0; run < (quick ? 1 : 4); ++run) {
    double alone = 0;
    for (const NodeId node : others) {
      const auto ref = object();
      const double before = cpu_seconds();
      expect(ctx.get(open_at(node, ref), kBound) == 7, "its bytes");
      alone += cpu_seconds() - before;
    }
    const auto ref = object();
    std::vector<Ref<int>> opened;
    const double before = cpu_seconds();
    for (const NodeId node : others) opened.push_back(open_at(node, ref));
    for (const auto& one : opened) expect(ctx.get(one, kBound) == 7, "its bytes");
    if (run == 0 && !quick) continue;  // makes connections, workers and memory
    together.push_back(cpu_seconds() - before);
    apart.push_back(alone);
  }
  return {middle(std::move(together)), middle(std::move(apart))};
}

// --- the suite ---

enum Floor : int { kRoundTrip, kOneWay, kSealed, kPlain };

struct Case {
  RowInfo row;
  double (*measure)(Scene&);  ///< nullptr: needs its own session
};
constexpr auto kValue = Goal::Of::value;
constexpr auto kRatio = Goal::Of::ratio;

const Case kCases[] = {
    {{"remote_sync", "us", kRoundTrip, at_most(kRatio, 3)}, remote_sync},
    {{"remote_inflight", "calls/s", kOneWay, at_least(kValue, 300e3)}, remote_inflight},
    {{"task_remote_inflight", "tasks/s", kOneWay, {}}, task_remote_inflight},
    {{"transfer_large", "GB/s", kSealed, at_least(kRatio, 0.85)}, transfer_large},
    {{"transfer_plain", "GB/s", kPlain, {}}, transfer_large},
    {{"broadcast_8", "CPU s", kNoFloor, at_most(kRatio, 1.1), false}, nullptr},
};

class Remote final : public Suite {
 public:
  Remote() {
    for (const Case& c : kCases) rows_.push_back(c.row);
  }
  const char* name() const override { return "remote"; }
  std::span<const RowInfo> rows() const override { return rows_; }
  int calm_floor() const override { return kRoundTrip; }
  Sample measure_floor(int floor, Placement placement) override {
    if (floor == kRoundTrip) return zmq_round_trip(placement);
    return floor == kOneWay ? zmq_one_way(placement) : tcp_rate(placement, floor == kSealed);
  }
  std::vector<Reading> measure(std::span<const std::size_t> rows, Placement placement,
                               bool quick) override {
    std::vector<Reading> readings(rows.size());
    for (std::size_t i = 0; i < rows.size(); ++i)
      if (kCases[rows[i]].measure == nullptr) readings[i] = broadcast(quick);
    go_to({cpu_of(placement, 0)});  // the first node runs there, too
    Session session({.cpus = 1, .nodes = 2});
    Context ctx = session.context();
    const NodeId other = other_nodes(ctx, 1).front();
    const auto there = ctx.with({.placement = troupe::Placement::on(other)});
    Scene scene{ctx, there.spawn<Echo>(), other, quick};
    const int cpu = cpu_of(placement, 1);
    ctx.get(scene.echo.call<&Echo::take>(cpu), kBound);
    ctx.get(there.submit<take_node_to>(cpu), kBound);
    for (std::size_t i = 0; i < rows.size(); ++i)
      if (const auto measure = kCases[rows[i]].measure) readings[i] = {measure(scene)};
    return readings;
  }

 private:
  std::vector<RowInfo> rows_;
};

}  // namespace

Suite& remote_suite() {
  static Remote suite;
  return suite;
}

}  // namespace troupe::bench
