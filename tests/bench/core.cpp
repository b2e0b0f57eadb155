#include "core.hpp"

#include "ring_floor.hpp"
#include "troupe/troupe.hpp"

#include <malloc.h>
#include <sched.h>
#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <stdexcept>

namespace troupe::bench {
namespace {

using namespace std::chrono_literals;
constexpr auto kBound = 60s;  // of every wait; a run that needs it has failed

// --- what runs in the worker ---

int echo(int x) {
  return x;
}
void nap(int ms) {
  const timespec time{ms / 1000, (ms % 1000) * 1'000'000L};
  nanosleep(&time, nullptr);
}
void go_to(const std::vector<int>& cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) CPU_SET(cpu, &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0)
    throw std::runtime_error("cannot pin a process of a measurement to its CPUs");
}
void stay_on(int cpu) {
  go_to({cpu});
}
Array<std::uint8_t> page(int bytes) {
  return Array<std::uint8_t>(std::vector<std::uint8_t>(static_cast<std::size_t>(bytes), 1));
}
class Echo {
 public:
  int say(int x) { return x; }
  void stay(int cpu) { stay_on(cpu); }
};

// --- measuring ---

struct Scene {
  Context& ctx;
  Placement placement;
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

void expect(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(std::string("a measurement is wrong: ") + what);
}

/// Seconds of one call: the median of ten batches, so that one interruption does not count.
template <class Call>
double median_call(int calls, Call&& call) {
  std::vector<double> batches;
  for (int batch = 0; batch < 10; ++batch) {
    const Stopwatch watch;
    for (int i = 0; i < calls / 10; ++i) call(i);
    batches.push_back(watch.seconds() / (calls / 10));
  }
  std::sort(batches.begin(), batches.end());
  return batches[batches.size() / 2];
}

double task_sync(Scene& s) {
  return 1e6 * median_call(s.count(5000, 100), [&](int i) {
           expect(s.ctx.get(s.ctx.submit<echo>(i), kBound) == i, "a result");
         });
}

double task_inflight(Scene& s) {
  const int n = s.count(100'000, 2000);
  std::vector<Ref<int>> refs;
  refs.reserve(static_cast<std::size_t>(n));
  const Stopwatch watch;
  for (int i = 0; i < n; ++i) refs.push_back(s.ctx.submit<echo>(i));
  for (int i = 0; i < n; ++i)
    expect(s.ctx.get(refs[static_cast<std::size_t>(i)], kBound) == i, "a result");
  return n / watch.seconds();
}

Actor<Echo> echo_actor(Scene& s) {
  Actor<Echo> actor = s.ctx.spawn<Echo>();
  s.ctx.get(actor.call<&Echo::stay>(cpu_of(s.placement, 1)), kBound);
  for (int i = 0; i < 100; ++i) s.ctx.get(actor.call<&Echo::say>(i), kBound);
  return actor;
}

double actor_sync(Scene& s) {
  const Actor<Echo> actor = echo_actor(s);
  const int n = s.count(5000, 100);
  const Stopwatch watch;
  for (int i = 0; i < n; ++i) expect(s.ctx.get(actor.call<&Echo::say>(i), kBound) == i, "a result");
  return watch.seconds() / n * 1e6;
}

double actor_inflight(Scene& s) {
  const Actor<Echo> actor = echo_actor(s);
  const int n = s.count(100'000, 2000);
  std::vector<Ref<int>> refs;
  refs.reserve(static_cast<std::size_t>(n));
  const Stopwatch watch;
  for (int i = 0; i < n; ++i) refs.push_back(actor.call<&Echo::say>(i));
  for (int i = 0; i < n; ++i)
    expect(s.ctx.get(refs[static_cast<std::size_t>(i)], kBound) == i, "a result");
  return n / watch.seconds();
}

double put_small(Scene& s) {
  const int n = s.count(50'000, 1000);
  std::vector<Ref<int>> refs;
  refs.reserve(static_cast<std::size_t>(n));
  return 1e9 * median_call(n, [&](int i) { refs.push_back(s.ctx.put(i)); });
}

double get_small(Scene& s) {
  const Ref<int> ref = s.ctx.submit<echo>(7);
  expect(s.ctx.get(ref, kBound) == 7, "a result");
  return 1e9 *
         median_call(s.count(200'000, 1000), [&](int) { expect(s.ctx.get(ref) == 7, "a value"); });
}

double get_extent(Scene& s) {
  const Ref<Array<std::uint8_t>> ref = s.ctx.submit<page>(8192);
  expect(s.ctx.get(ref, kBound).size() == 8192, "a result");
  return 1e9 * median_call(s.count(100'000, 1000),
                           [&](int) { expect(s.ctx.get(ref)[0] == 1, "a value"); });
}

constexpr std::size_t kLarge = std::size_t{128} << 20;  // as the memcpy floor copies

double put_large_copy(Scene& s) {
  const std::vector<std::uint8_t> from(kLarge, 1);
  s.ctx.put(from);  // warm from here on
  std::vector<double> rates;
  for (int i = 0; i < s.count(9, 1); ++i) {
    const Stopwatch watch;
    const Ref<std::vector<std::uint8_t>> ref = s.ctx.put(from);
    rates.push_back(static_cast<double>(kLarge) / watch.seconds() / 1e9);
  }
  std::sort(rates.begin(), rates.end());
  return rates[rates.size() / 2];
}

double put_large_inplace(Scene& s) {
  s.ctx.create<std::uint8_t>(kLarge).seal();
  const int n = s.count(100, 2);
  const Stopwatch watch;
  for (int i = 0; i < n; ++i) {
    Builder<std::uint8_t> room = s.ctx.create<std::uint8_t>(kLarge);
    room[0] = 1;
    const Ref<Array<std::uint8_t>> ref = room.seal();
  }
  return watch.seconds() / n * 1e6;
}

std::vector<Ref<int>> thousand(Scene& s) {
  std::vector<Ref<int>> refs;
  for (int i = 0; i < 1000; ++i) refs.push_back(s.ctx.submit<echo>(i));
  for (const auto& ref : refs) s.ctx.get(ref, kBound);
  return refs;
}

double wait_1000(Scene& s) {
  const std::vector<Ref<int>> refs = thousand(s);
  const int n = s.count(200, 5);
  const Stopwatch watch;
  for (int i = 0; i < n; ++i)
    expect(s.ctx.wait(refs, {.count = refs.size(), .timeout = kBound}).ready.size() == refs.size(),
           "all are ready");
  return watch.seconds() / n / 1000 * 1e6;
}

double drain_1000(Scene& s) {
  const std::vector<Ref<int>> refs = thousand(s);
  const int n = s.count(50, 2);
  int seen = 0;
  const Stopwatch watch;
  for (int i = 0; i < n; ++i)
    for (auto& ref : s.ctx.as_completed(refs)) seen += ref ? 1 : 0;
  expect(seen == 1000 * n, "each is ready once");
  return watch.seconds() / n / 1000 * 1e6;
}

/// Bytes that malloc has handed out in this process.
double heap_bytes() {
  const auto info = mallinfo2();
  return static_cast<double>(info.uordblks + info.hblkhd);
}

struct Queue {
  double per_second = 0;
  double bytes_each = 0;
};

/// A worker that sleeps while tasks are submitted, then drains them.
Queue queued(Scene& s) {
  const int n = s.count(200'000, 2000);
  std::vector<Ref<int>> refs;
  refs.reserve(static_cast<std::size_t>(n));
  const Ref<void> sleeper = s.ctx.submit<nap>(s.count(1500, 50));
  const double before = heap_bytes();
  for (int i = 0; i < n; ++i) refs.push_back(s.ctx.submit<echo>(i));
  const double bytes = heap_bytes() - before;
  s.ctx.get(sleeper, kBound);
  const Stopwatch watch;
  for (const auto& ref : refs) s.ctx.get(ref, kBound);
  return {n / watch.seconds(), bytes / n};
}
double queued_million(Scene& s) {
  return queued(s).per_second;
}
double queued_bytes(Scene& s) {
  return queued(s).bytes_each;
}

// --- the suite ---

/// What stands in the column `floor`.
enum class Floor { none, round_trip, one_way, copy_rate, copy_time };

struct Case {
  const char* name;
  const char* unit;
  Floor floor;
  Goal goal;
  bool both;                  ///< placements; else two_cpus, if there are two
  double (*measure)(Scene&);  ///< nullptr: the start of the session
};

constexpr auto kValue = Goal::Of::value;
constexpr auto kRatio = Goal::Of::ratio;
constexpr char kStart[] = "embedded_start";
constexpr char kFirstResult[] = "embedded_first";

const Case kCases[] = {
    {kStart, "ms", Floor::none, at_most(kValue, 150), true, nullptr},
    {kFirstResult, "ms", Floor::none, {}, true, nullptr},
    {"task_sync", "us", Floor::round_trip, at_most(kRatio, 10), true, task_sync},
    {"task_inflight", "tasks/s", Floor::one_way, at_least(kValue, 200e3), true, task_inflight},
    {"actor_sync", "us", Floor::round_trip, at_most(kRatio, 10), true, actor_sync},
    {"actor_inflight", "calls/s", Floor::one_way, at_least(kValue, 200e3), true, actor_inflight},
    {"put_small", "ns", Floor::none, at_most(kValue, 1000), false, put_small},
    {"get_small", "ns", Floor::none, at_most(kValue, 1000), false, get_small},
    {"get_extent", "ns", Floor::none, at_most(kValue, 1000), false, get_extent},
    {"put_large_copy", "GB/s", Floor::copy_rate, at_least(kRatio, 0.7), false, put_large_copy},
    {"put_large_inplace", "us", Floor::copy_time, at_most(kRatio, 0.05), false, put_large_inplace},
    {"wait_1000", "us/ref", Floor::none, at_most(kValue, 1), false, wait_1000},
    {"drain_1000", "us/ref", Floor::none, at_most(kValue, 1), false, drain_1000},
    {"queued_million", "tasks/s", Floor::one_way, at_least(kValue, 200e3), false, queued_million},
    {"queued_bytes", "B/task", Floor::none, at_most(kValue, 500), false, queued_bytes},
};

/// Whether a floor exists there: messages one way need a reader on a CPU of its own.
bool has_floor(Floor floor, Placement placement) {
  return floor != Floor::none && (floor != Floor::one_way || placement == Placement::two_cpus);
}

Sample measure_floor(Floor floor, Placement placement) {
  if (floor == Floor::round_trip)
    return placement == Placement::one_cpu ? ring_round_trip(Waiting::parked, placement)
                                           : ring_round_trip(Waiting::spinning, placement);
  if (floor == Floor::one_way) return ring_one_way();
  Sample copy = memcpy_into_shared(1);
  if (floor == Floor::copy_time) copy.value = static_cast<double>(kLarge) / copy.value / 1e3;
  return copy;
}

/// Everything of one placement, round after round.
class Stand {
 public:
  Stand(Placement placement, const CoreOptions& options)
      : placement_(placement), options_(options), all_(allowed_cpus()) {
    (void)cpu_of(placement, 0);  // before anything is pinned
    const bool two = placement == Placement::two_cpus || !possible(Placement::two_cpus);
    for (const Case& c : kCases)
      if ((c.both || two) && std::string(c.name).find(options.only) != std::string::npos)
        cases_.push_back({c, {c.name, name_of(placement), c.unit, c.goal, {}, {}, {}, 1e9}});
  }

  void round() {
    if (cases_.empty()) return;
    measure_floors();
    if (placement_ == Placement::one_cpu)
      go_to({cpu_of(placement_, 0)});
    else
      go_to({cpu_of(placement_, 0), cpu_of(placement_, 1)});
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
    floors[Floor::none] = floors[Floor::round_trip] =
        measure_floor(Floor::round_trip, options_.quick ? Placement::one_cpu : placement_);
    for (Measured& m : cases_) {
      Floor floor = has_floor(m.what.floor, placement_) ? m.what.floor : Floor::none;
      if (options_.quick && floor != Floor::round_trip) floor = Floor::none;
      if (floors.count(floor) == 0) floors[floor] = measure_floor(floor, placement_);
      const Sample& watched = floors[m.what.goal.of == kRatio ? floor : Floor::none];
      m.series.watched.push_back(watched.value);
      m.series.calmest = std::min(m.series.calmest, watched.spread);
      if (floor != Floor::none) m.series.floors.push_back(floors[floor].value);
    }
  }

  void measure_troupe() {
    const Stopwatch watch;
    Session session({.cpus = 1});
    const double up = watch.seconds() * 1e3;
    Context ctx = session.context();
    expect(ctx.get(ctx.submit<echo>(1), kBound) == 1, "a result");
    const double first = watch.seconds() * 1e3;
    ctx.get(ctx.submit<stay_on>(cpu_of(placement_, 1)), kBound);
    stay_on(cpu_of(placement_, 0));
    Scene scene{ctx, placement_, options_.quick};
    for (int i = 0; i < scene.count(1000, 20); ++i) ctx.get(ctx.submit<echo>(i), kBound);
    for (Measured& m : cases_) {
      if (m.what.measure != nullptr)
        m.series.values.push_back(m.what.measure(scene));
      else
        m.series.values.push_back(m.what.name == kStart ? up : first);
    }
  }

  Placement placement_;
  CoreOptions options_;
  std::vector<int> all_;
  std::vector<Measured> cases_;
};

}  // namespace

std::vector<std::string> core_names() {
  std::vector<std::string> names;
  for (const Case& c : kCases) names.emplace_back(c.name);
  return names;
}

std::vector<Judged> run_core(const CoreOptions& options) {
  std::vector<std::unique_ptr<Stand>> stands;
  for (const Placement placement : {Placement::one_cpu, Placement::two_cpus})
    if (possible(placement)) stands.push_back(std::make_unique<Stand>(placement, options));
  for (int i = 0; i < options.rounds; ++i)
    for (const auto& stand : stands) stand->round();
  std::vector<Judged> rows;
  for (const auto& stand : stands) stand->judge_into(rows);
  return rows;
}

}  // namespace troupe::bench
