#include "remote.hpp"

#include "net_floor.hpp"
#include "troupe/troupe.hpp"

#include <dirent.h>
#include <sched.h>
#include <unistd.h>
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>

namespace troupe::bench {
namespace {

using namespace std::chrono_literals;
constexpr auto kBound = 60s;  // of every wait; a run that needs it has failed

void expect(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(std::string("a measurement is wrong: ") + what);
}

// --- pinning ---

cpu_set_t set_of(const std::vector<int>& cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) CPU_SET(cpu, &set);
  return set;
}
void go_to(const std::vector<int>& cpus) {
  const cpu_set_t set = set_of(cpus);
  expect(sched_setaffinity(0, sizeof set, &set) == 0, "a process cannot be pinned");
}
/// All threads of a process.
void pin(pid_t pid, int cpu) {
  const std::string folder = "/proc/" + std::to_string(pid) + "/task";
  DIR* tasks = opendir(folder.c_str());
  expect(tasks != nullptr, "a process to pin has ended");
  const cpu_set_t set = set_of({cpu});
  while (const dirent* entry = readdir(tasks))
    if (const int thread = std::atoi(entry->d_name); thread > 0)
      sched_setaffinity(thread, sizeof set, &set);
  closedir(tasks);
}
pid_t parent_of(pid_t pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/stat");
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const auto name_end = text.rfind(')');
  expect(name_end != std::string::npos && text.size() > name_end + 4, "a parent is not known");
  return std::atoi(text.c_str() + name_end + 4);
}

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

class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

double remote_sync(Scene& s) {
  const int n = s.count(3000, 50);
  for (int i = 0; i < n / 10; ++i) s.ctx.get(s.echo.call<&Echo::say>(i), kBound);
  std::vector<double> batches;
  for (int batch = 0; batch < 10; ++batch) {
    const Stopwatch watch;
    for (int i = 0; i < n / 10; ++i)
      expect(s.ctx.get(s.echo.call<&Echo::say>(i), kBound) == i, "a result");
    batches.push_back(watch.seconds() / (n / 10) * 1e6);
  }
  std::sort(batches.begin(), batches.end());
  return batches[batches.size() / 2];
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
  std::sort(rates.begin(), rates.end());
  return rates[rates.size() / 2];
}

// --- the suite ---

enum class Floor { round_trip, one_way, sealed };

struct Case {
  const char* name;
  const char* unit;
  Floor floor;
  Goal goal;
  double (*measure)(Scene&);
};
constexpr auto kValue = Goal::Of::value;
constexpr auto kRatio = Goal::Of::ratio;

const Case kCases[] = {
    {"remote_sync", "us", Floor::round_trip, at_most(kRatio, 3), remote_sync},
    {"remote_inflight", "calls/s", Floor::one_way, at_least(kValue, 300e3), remote_inflight},
    {"task_remote_inflight", "tasks/s", Floor::one_way, {}, task_remote_inflight},
    {"transfer_large", "GB/s", Floor::sealed, at_least(kRatio, 0.85), transfer_large},
};

Sample measure_floor(Floor floor, Placement placement) {
  switch (floor) {
    case Floor::round_trip: return zmq_round_trip(placement);
    case Floor::one_way: return zmq_one_way(placement);
    case Floor::sealed: return tcp_rate(placement, true);
  }
  return {};
}

/// Control tells the nodes of each other soon after the start.
NodeId other_node(Context& ctx) {
  for (const Stopwatch watch; watch.seconds() < 20;) {
    for (const NodeInfo& node : ctx.cluster().nodes)
      if (node.id != ctx.node() && node.alive) return node.id;
    usleep(1000);
  }
  throw std::runtime_error("a measurement is wrong: the cluster has one node only");
}

/// Everything of one placement, round after round.
class Stand {
 public:
  Stand(Placement placement, const CoreOptions& options)
      : placement_(placement), options_(options), all_(allowed_cpus()) {
    (void)cpu_of(placement, 0);  // before anything is pinned
    for (const Case& c : kCases)
      if (std::string(c.name).find(options.only) != std::string::npos)
        cases_.push_back({c, {c.name, name_of(placement), c.unit, c.goal, {}, {}, {}, 1e9}});
  }

  void round() {
    if (cases_.empty()) return;
    if (!options_.quick) measure_floors();
    go_to({cpu_of(placement_, 0)});
    measure_troupe();
    go_to(all_);
  }

  void judge_into(std::vector<Judged>& rows) const {
    for (const Measured& m : cases_) rows.push_back(judge(m.series));
  }

 private:
  struct Measured {
    Case what;
    Series series;
  };

  /// The floors come first: they need a process without threads, so no session.
  void measure_floors() {
    std::map<Floor, Sample> floors;
    for (Measured& m : cases_) {
      if (floors.count(m.what.floor) == 0)
        floors[m.what.floor] = measure_floor(m.what.floor, placement_);
      const Sample& floor = floors[m.what.floor];
      m.series.watched.push_back(floor.value);
      m.series.calmest = std::min(m.series.calmest, floor.spread);
      m.series.floors.push_back(floor.value);
    }
  }

  void measure_troupe() {
    Session session({.cpus = 1, .nodes = 2});
    Context ctx = session.context();
    const NodeId other = other_node(ctx);
    const auto there = ctx.with({.placement = troupe::Placement::on(other)});
    Scene scene{ctx, there.spawn<Echo>(), other, options_.quick};
    const int cpu = cpu_of(placement_, 1);
    ctx.get(scene.echo.call<&Echo::take>(cpu), kBound);
    ctx.get(there.submit<take_node_to>(cpu), kBound);
    for (Measured& m : cases_) m.series.values.push_back(m.what.measure(scene));
  }

  Placement placement_;
  CoreOptions options_;
  std::vector<int> all_;
  std::vector<Measured> cases_;
};

}  // namespace

std::vector<std::string> remote_names() {
  std::vector<std::string> names;
  for (const Case& c : kCases) names.emplace_back(c.name);
  return names;
}

std::vector<Judged> run_remote(const CoreOptions& options) {
  std::vector<Stand> stands;
  for (const Placement placement : {Placement::one_cpu, Placement::two_cpus})
    if (possible(placement)) stands.emplace_back(placement, options);
  for (int i = 0; i < options.rounds; ++i)
    for (Stand& stand : stands) stand.round();
  std::vector<Judged> rows;
  for (const Stand& stand : stands) stand.judge_into(rows);
  return rows;
}

}  // namespace troupe::bench
