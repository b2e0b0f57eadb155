// The suite "remote": calls and objects that cross from one node to another, both on this machine,
// over encrypted loopback TCP, against what ZeroMQ with CURVE and a sealed TCP stream can do.
// Placement two_cpus: driver and its agent on one CPU, the other node with its worker on the other,
// and the floor's two processes likewise; one_cpu: everything on one.
#include "suite.hpp"

#include "net_floor.hpp"
#include "tools.hpp"
#include "troupe/troupe.hpp"

#include <unistd.h>
#include <stdexcept>

namespace troupe::bench {
namespace {

// --- what runs in the workers ---

int echo(int x) {
  return x;
}
/// A worker's parent is its job's zygote, and the zygote's is the agent.
void take_node_to(int cpu) {
  pin(getpid(), cpu);
  pin(parent_of(getppid()), cpu);
}
Array<std::uint8_t> crossing(int salt) {
  return Array<std::uint8_t>(std::vector<std::uint8_t>(kCrossing, static_cast<std::uint8_t>(salt)));
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
  int count(int full, int quick_count) const { return quick ? quick_count : full; }
};

double remote_sync(Scene& s) {
  const int n = s.count(3000, 50);
  for (int i = 0; i < n / 10; ++i) s.ctx.get(s.echo.call<&Echo::say>(i), kBound);
  return 1e6 * median_call(n, [&](int i) {
           expect(s.ctx.get(s.echo.call<&Echo::say>(i), kBound) == i, "a result");
         });
}

/// Every call has its own Ref, which is read.
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

/// GB/s from the other node's memory into this one's.
double transfer_large(Scene& s) {
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
  return middle(std::move(rates));
}

// --- the suite ---

enum Floor : int { kRoundTrip, kOneWay, kSealed };

struct Case {
  RowInfo row;
  double (*measure)(Scene&);
};
constexpr auto kValue = Goal::Of::value;
constexpr auto kRatio = Goal::Of::ratio;

const Case kCases[] = {
    {{"remote_sync", "us", kRoundTrip, at_most(kRatio, 3)}, remote_sync},
    {{"remote_inflight", "calls/s", kOneWay, at_least(kValue, 300e3)}, remote_inflight},
    {{"task_remote_inflight", "tasks/s", kOneWay, {}}, task_remote_inflight},
    {{"transfer_large", "GB/s", kSealed, at_least(kRatio, 0.85)}, transfer_large},
};

/// Control tells the nodes of each other soon after the start.
NodeId other_node(Context& ctx) {
  for (const Stopwatch watch; watch.seconds() < 20;) {
    for (const NodeInfo& node : ctx.cluster().nodes)
      if (node.id != ctx.node() && node.alive) return node.id;
    usleep(1000);
  }
  throw std::runtime_error("a measurement is wrong: the cluster has one node only");
}

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
    return floor == kOneWay ? zmq_one_way(placement) : tcp_rate(placement, true);
  }
  std::vector<Reading> measure(std::span<const std::size_t> rows, Placement placement,
                               bool quick) override {
    go_to({cpu_of(placement, 0)});  // the first node, too
    Session session({.cpus = 1, .nodes = 2});
    Context ctx = session.context();
    const NodeId other = other_node(ctx);
    const auto there = ctx.with({.placement = troupe::Placement::on(other)});
    Scene scene{ctx, there.spawn<Echo>(), other, quick};
    const int cpu = cpu_of(placement, 1);
    ctx.get(scene.echo.call<&Echo::take>(cpu), kBound);
    ctx.get(there.submit<take_node_to>(cpu), kBound);
    std::vector<Reading> readings;
    for (const std::size_t row : rows) readings.push_back({kCases[row].measure(scene)});
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
