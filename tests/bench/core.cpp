// The suites "core" (tasks and actor calls) and "objects" on a private node, compared with shared
// memory alone. With placement one_cpu, driver, agent and worker share one CPU. With two_cpus,
// the driver has one CPU, the worker has the other, and the agent runs on either.
#include "suite.hpp"

#include "ring_floor.hpp"
#include "tools.hpp"
#include "troupe/troupe.hpp"

#include <malloc.h>
#include <unistd.h>
#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

namespace troupe::bench {
namespace {

using namespace std::chrono_literals;

// --- code that runs in the worker ---

int echo(int x) {
  return x;
}
void nap(int ms) {
  const timespec time{ms / 1000, (ms % 1000) * 1'000'000L};
  nanosleep(&time, nullptr);
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
/// Computes a chain of `steps` dependent steps. It is the same work on every worker and at every
/// time.
int burn(int steps) {
  std::uint64_t x = 1;
  for (int i = 0; i < steps; ++i) {
    x = x * 6364136223846793005U + 1442695040888963407U;
    asm volatile("" : "+r"(x));
  }
  return steps;
}
/// Returns the number of leaves. Each leaf and each pair of halves is a task.
long tree(Context& ctx, long leaves) {
  if (leaves == 1) return 1;
  const Ref<long> left = ctx.submit<tree>(leaves / 2);
  const Ref<long> right = ctx.submit<tree>(leaves - leaves / 2);
  return ctx.get(left) + ctx.get(right);
}
/// Runs one of n callers and returns its calls per second. The second pass counts, since the heap
/// of its process grows in the first.
double call_echo(Context& ctx, Actor<Echo> echo, int cpu, int calls) {
  stay_on(cpu);
  double rate = 0;
  for (int time = 0; time < 2; ++time) {
    std::vector<Ref<int>> refs;
    refs.reserve(static_cast<std::size_t>(calls));
    const Stopwatch watch;
    for (int i = 0; i < calls; ++i) refs.push_back(echo.call<&Echo::say>(i));
    for (int i = 0; i < calls; ++i)
      expect(ctx.get(refs[static_cast<std::size_t>(i)], kBound) == i, "a result");
    rate = calls / watch.seconds();
  }
  return rate;
}

// --- measuring ---

/// The number of first records of each kind that are not counted, since they reuse memory of
/// earlier records.
constexpr int kLeft = 200'000;

/// Returns the bytes that malloc has handed out in this process.
double heap_bytes() {
  const auto info = mallinfo2();
  return static_cast<double>(info.uordblks + info.hblkhd);
}

struct Queue {
  double per_second = 0;
  double bytes_each = 0;
};
struct Puts {
  double first_ns = 0;
  double again_ns = 0;
};

struct Scene {
  Context& ctx;
  Placement placement;
  bool quick;
  RoundTrips* trips = nullptr;      ///< floor of single calls; null unless sides spin
  std::optional<Queue> queue = {};  ///< shared by two rows
  std::optional<Puts> puts = {};    ///< shared by two rows
  int count(int full, int quick_count) const { return quick ? quick_count : full; }
};

/// Microseconds of a call, one after the other: the median of slices of 250 calls. When sides
/// spin, a slice takes less than a millisecond and alternates with a slice of the floor. The
/// ratio is then the median of the ratios of neighbours, so longer disturbances affect both. The
/// first calls of a slice wake the other side and do not count. Sides that share a CPU do not
/// alternate: beside a session the parked floor is slower, which would improve the ratio wrongly.
template <class Call>
Reading one_at_a_time(Scene& s, Call&& call) {
  constexpr int kCalls = 250;
  std::vector<double> values, floors, ratios;
  for (int slice = 0; slice < s.count(40, 1); ++slice) {
    if (s.trips != nullptr) floors.push_back(s.trips->run(kCalls));
    for (int i = 0; i < kCalls / 4; ++i) call(i);
    const Stopwatch watch;
    for (int i = 0; i < kCalls; ++i) call(i);
    values.push_back(1e6 * watch.seconds() / kCalls);
    if (s.trips != nullptr) ratios.push_back(values.back() / floors.back());
  }
  if (s.trips == nullptr) return {middle(std::move(values))};
  return {middle(std::move(values)), middle(std::move(floors)), middle(std::move(ratios))};
}

/// Calls per second when all calls are in flight before the first result is read: the median of
/// five times. In an uncounted first time the heap grows to the needed size.
template <class Submit>
Reading all_at_once(Scene& s, Submit&& submit) {
  const int n = s.count(100'000, 2000);
  std::vector<double> rates;
  for (int time = 0; time < s.count(6, 2); ++time) {
    std::vector<Ref<int>> refs;
    refs.reserve(static_cast<std::size_t>(n));
    const Stopwatch watch;
    for (int i = 0; i < n; ++i) refs.push_back(submit(i));
    for (int i = 0; i < n; ++i)
      expect(s.ctx.get(refs[static_cast<std::size_t>(i)], kBound) == i, "a result");
    if (time > 0) rates.push_back(n / watch.seconds());
  }
  return {middle(std::move(rates))};
}

Reading task_sync(Scene& s) {
  return one_at_a_time(
      s, [&](int i) { expect(s.ctx.get(s.ctx.submit<echo>(i), kBound) == i, "a result"); });
}
Reading task_inflight(Scene& s) {
  return all_at_once(s, [&](int i) { return s.ctx.submit<echo>(i); });
}

Actor<Echo> echo_actor(Scene& s) {
  Actor<Echo> actor = s.ctx.spawn<Echo>();
  s.ctx.get(actor.call<&Echo::stay>(cpu_of(s.placement, 1)), kBound);
  for (int i = 0; i < 100; ++i) s.ctx.get(actor.call<&Echo::say>(i), kBound);
  return actor;
}

Reading actor_sync(Scene& s) {
  const Actor<Echo> actor = echo_actor(s);
  return one_at_a_time(
      s, [&](int i) { expect(s.ctx.get(actor.call<&Echo::say>(i), kBound) == i, "a result"); });
}
Reading actor_inflight(Scene& s) {
  const Actor<Echo> actor = echo_actor(s);
  return all_at_once(s, [&](int i) { return actor.call<&Echo::say>(i); });
}

/// In the first time the heap grows, or copies pages that were shared with a forked process of a
/// floor. The second time finds the memory in place.
const Puts& puts(Scene& s) {
  if (s.puts) return *s.puts;
  const auto time = [&s] {
    const int n = s.count(50'000, 1000);
    std::vector<Ref<int>> refs;
    refs.reserve(static_cast<std::size_t>(n));
    return 1e9 * median_call(n, [&](int i) { refs.push_back(s.ctx.put(i)); });
  };
  const double first = time();
  s.puts = {first, time()};
  return *s.puts;
}
Reading put_small(Scene& s) {
  return {puts(s).again_ns};
}
Reading put_growing(Scene& s) {
  return {puts(s).first_ns};
}

Reading get_small(Scene& s) {
  const Ref<int> ref = s.ctx.submit<echo>(7);
  expect(s.ctx.get(ref, kBound) == 7, "a result");
  return {1e9 * median_call(s.count(200'000, 1000),
                            [&](int) { expect(s.ctx.get(ref) == 7, "a value"); })};
}

Reading get_extent(Scene& s) {
  const Ref<Array<std::uint8_t>> ref = s.ctx.submit<page>(8192);
  expect(s.ctx.get(ref, kBound).size() == 8192, "a result");
  return {1e9 * median_call(s.count(100'000, 1000),
                            [&](int) { expect(s.ctx.get(ref)[0] == 1, "a value"); })};
}

/// Bytes that each small object takes while it lives.
Reading object_bytes(Scene& s) {
  const int n = s.count(1'000'000, 100'000);
  const int left = s.count(kLeft, 10'000);
  std::vector<Ref<int>> refs;
  refs.reserve(static_cast<std::size_t>(n));
  double before = 0;
  for (int i = 0; i < n; ++i) {
    if (i == left) before = heap_bytes();
    refs.push_back(s.ctx.put(i));
  }
  const double bytes = heap_bytes() - before;
  for (int i = 0; i < n; i += n / 100)
    expect(s.ctx.get(refs[static_cast<std::size_t>(i)]) == i, "a value");
  return {bytes / (n - left)};
}

constexpr std::size_t kLarge = std::size_t{128} << 20;  // as the floor copies

Reading put_large_copy(Scene& s) {
  const std::vector<std::uint8_t> from(kLarge, 1);
  s.ctx.put(from);  // touches the memory
  WarmMemory beside(kLarge);
  std::vector<double> rates, floors;
  for (int i = 0; i < s.count(9, 1); ++i) {
    floors.push_back(beside.copy_rate(from.data()));
    const Stopwatch watch;
    const Ref<std::vector<std::uint8_t>> ref = s.ctx.put(from);
    rates.push_back(static_cast<double>(kLarge) / watch.seconds() / 1e9);
  }
  return {middle(std::move(rates)), middle(std::move(floors))};
}

Reading put_large_inplace(Scene& s) {
  s.ctx.create<std::uint8_t>(kLarge).seal();
  const int n = s.count(100, 2);
  const Stopwatch watch;
  for (int i = 0; i < n; ++i) {
    Builder<std::uint8_t> room = s.ctx.create<std::uint8_t>(kLarge);
    room[0] = 1;
    const Ref<Array<std::uint8_t>> ref = room.seal();
  }
  return {watch.seconds() / n * 1e6};
}

std::vector<Ref<int>> thousand(Scene& s) {
  std::vector<Ref<int>> refs;
  for (int i = 0; i < 1000; ++i) refs.push_back(s.ctx.submit<echo>(i));
  for (const auto& ref : refs) s.ctx.get(ref, kBound);
  return refs;
}

Reading wait_1000(Scene& s) {
  const std::vector<Ref<int>> refs = thousand(s);
  const int n = s.count(200, 5);
  const Stopwatch watch;
  for (int i = 0; i < n; ++i)
    expect(s.ctx.wait(refs, {.count = refs.size(), .timeout = kBound}).ready.size() == refs.size(),
           "all are ready");
  return {watch.seconds() / n / 1000 * 1e6};
}

Reading drain_1000(Scene& s) {
  const std::vector<Ref<int>> refs = thousand(s);
  const int n = s.count(50, 2);
  int seen = 0;
  const Stopwatch watch;
  for (int i = 0; i < n; ++i)
    for (auto& ref : s.ctx.as_completed(refs)) seen += ref ? 1 : 0;
  expect(seen == 1000 * n, "each is ready once");
  return {watch.seconds() / n / 1000 * 1e6};
}

/// Submits tasks while a worker sleeps, then drains them.
const Queue& queued(Scene& s) {
  if (s.queue) return *s.queue;
  const int n = s.count(1'000'000, 2000);
  const int left = s.count(kLeft, 1000);
  for (int ms = s.count(4000, 50);; ms *= 2) {
    expect(ms <= 64'000, "tasks could not be submitted while a worker sleeps");
    std::vector<Ref<int>> refs;
    refs.reserve(static_cast<std::size_t>(n));
    const std::vector<Ref<void>> sleeper{s.ctx.submit<nap>(ms)};
    double before = 0;
    for (int i = 0; i < n; ++i) {
      if (i == left) before = heap_bytes();
      refs.push_back(s.ctx.submit<echo>(i));
    }
    const double bytes = heap_bytes() - before;
    const bool too_short = !s.ctx.wait(sleeper, {.timeout = 0s}).ready.empty();
    s.ctx.get(sleeper[0], kBound);
    const Stopwatch watch;
    for (const auto& ref : refs) s.ctx.get(ref, kBound);
    s.queue = {n / watch.seconds(), bytes / (n - left)};
    if (!too_short) return *s.queue;
  }
}
Reading queued_million(Scene& s) {
  return {queued(s).per_second};
}
Reading queued_bytes(Scene& s) {
  return {queued(s).bytes_each};
}

/// Microseconds of a task when each of n waiting tasks has a demand of its own.
double waiting_classes(Scene& s, int n) {
  std::vector<Ref<int>> refs;
  refs.reserve(static_cast<std::size_t>(n));
  const Stopwatch watch;
  for (int i = 0; i < n; ++i) refs.push_back(s.ctx.with({.cpus = 0.5 + 1e-4 * i}).submit<echo>(i));
  for (int i = 0; i < n; ++i)
    expect(s.ctx.get(refs[static_cast<std::size_t>(i)], kBound) == i, "a result");
  return 1e6 * watch.seconds() / n;
}
Reading waiting_classes_700(Scene& s) {
  return {waiting_classes(s, s.count(700, 70))};
}
Reading waiting_classes_4000(Scene& s) {
  return {waiting_classes(s, s.count(4000, 100))};
}

/// Calls per second of n callers, each with its own actor. The callers share one CPU, and the
/// actors the other.
double callers(Scene& s, int n) {
  const int calls = s.count(50'000, 500);
  std::vector<Actor<Echo>> actors;
  for (int i = 0; i < n; ++i) {
    actors.push_back(s.ctx.spawn<Echo>());
    s.ctx.get(actors.back().call<&Echo::stay>(cpu_of(s.placement, 1)), kBound);
  }
  const auto fraction = s.ctx.with({.cpus = 1.0 / n});
  std::vector<Ref<double>> rates;
  for (const auto& actor : actors)
    rates.push_back(fraction.submit<call_echo>(actor, cpu_of(s.placement, 0), calls));
  double slowest = 1e12;
  for (const auto& rate : rates) slowest = std::min(slowest, s.ctx.get(rate, kBound));
  return n * slowest;
}
/// The floor is one caller with one actor on the same CPUs.
Reading actor_n_n(Scene& s) {
  const double one = callers(s, 1);
  return {callers(s, 2), one};
}

/// Milliseconds from spawn to the first reply.
Reading actor_create(Scene& s) {
  return {1e3 * median_call(s.count(100, 10), [&](int i) {
            const Actor<Echo> actor = s.ctx.spawn<Echo>();
            expect(s.ctx.get(actor.call<&Echo::say>(i), kBound) == i, "a first reply");
          })};
}
/// Actors per second when all are made at once.
Reading actor_create_rate(Scene& s) {
  const int n = s.count(50, 4);
  std::vector<Actor<Echo>> actors;
  std::vector<Ref<int>> replies;
  const Stopwatch watch;
  for (int i = 0; i < n; ++i) {
    actors.push_back(s.ctx.spawn<Echo>());
    replies.push_back(actors.back().call<&Echo::say>(i));
  }
  for (int i = 0; i < n; ++i)
    expect(s.ctx.get(replies[static_cast<std::size_t>(i)], kBound) == i, "a first reply");
  return {n / watch.seconds()};
}

/// Microseconds per task of a recursion. The root has the only CPU, so all other tasks run in
/// place.
Reading fork_join(Scene& s) {
  const long leaves = s.count(20'000, 1'000);
  return {1e6 / static_cast<double>(2 * leaves - 1) * median_call(s.count(50, 10), [&](int) {
            expect(s.ctx.get(s.ctx.submit<tree>(leaves), kBound) == leaves, "its leaves");
          })};
}

/// Milliseconds to get 10,000 refs. A value takes 512 refs, so the object holds objects that hold
/// them.
Reading get_nested(Scene& s) {
  constexpr std::size_t kEach = 500;
  constexpr std::size_t kRefs = 10'000;
  using Some = std::vector<Ref<int>>;
  std::vector<Ref<Some>> parts;
  for (std::size_t part = 0; part < kRefs / kEach; ++part) {
    Some some;
    for (std::size_t i = 0; i < kEach; ++i) some.push_back(s.ctx.put(static_cast<int>(i)));
    parts.push_back(s.ctx.put(some));
  }
  const Ref<std::vector<Ref<Some>>> all = s.ctx.put(parts);
  return {1e3 * median_call(s.count(50, 10), [&](int) {
            std::size_t seen = 0;
            for (const Ref<Some>& part : s.ctx.get(all, kBound))
              seen += s.ctx.get(part, kBound).size();
            expect(seen == kRefs, "its refs");
          })};
}

/// Returns the steps per second of tasks with that many steps, over all workers. There are enough
/// tasks for `seconds` at the rate `peak`.
double rate_of(Context& ctx, int steps, double peak, double seconds) {
  const int n = std::clamp(static_cast<int>(seconds * peak / steps), 64, 40'000);
  std::vector<Ref<int>> refs;
  refs.reserve(static_cast<std::size_t>(n));
  const Stopwatch watch;
  for (int i = 0; i < n; ++i) refs.push_back(ctx.submit<burn>(steps));
  for (const auto& ref : refs) expect(ctx.get(ref, kBound) == steps, "a result");
  return 1.0 * steps * n / watch.seconds();
}
/// Returns the length in microseconds of the smallest task with an efficiency of one half, with
/// one worker per CPU of the placement. The driver shares these CPUs. As in Task Bench (Slaughter
/// et al., SC 2020), efficiency is the rate of work over the highest rate seen, which is that of
/// tasks of a millisecond. Each point is a median of five, so one interruption does not mislead
/// the search. Needs its own session.
double metg(Placement placement, bool quick) {
  const int cpus = placement == Placement::one_cpu ? 1 : 2;
  Session session({.cpus = static_cast<double>(cpus)});
  Context ctx = session.context();
  const double seconds = quick ? 0.002 : 0.04;
  const auto rate = [&](double steps, double peak) {
    std::vector<double> runs;
    for (int i = 0; i < (quick ? 1 : 5); ++i)
      runs.push_back(rate_of(ctx, static_cast<int>(steps), peak, seconds));
    return middle(std::move(runs));
  };
  double peak = rate_of(ctx, 200'000, 1e9, seconds);  // starts workers, learns run times
  const double millisecond = 1e-3 * peak / cpus;
  peak = std::max(peak, rate(millisecond, peak));
  double below = millisecond / 10'000, above = millisecond;
  while (above / below > 1.15) {
    const double steps = std::sqrt(below * above);
    (rate(steps, peak) < 0.5 * peak ? below : above) = steps;
    if (quick) break;
  }
  return 1e6 * above / (peak / cpus);
}

// --- the suite ---

enum Floor : int { kRoundTrip, kOneWay, kCopyRate, kCopyTime };

struct Case {
  RowInfo row;
  Reading (*measure)(Scene&);  ///< nullptr: needs its own session
};

constexpr auto kValue = Goal::Of::value;
constexpr auto kRatio = Goal::Of::ratio;
constexpr char kStart[] = "embedded_start";
constexpr char kFirstResult[] = "embedded_first";
constexpr char kMetg[] = "metg";

const Case kCore[] = {
    {{kStart, "ms", kNoFloor, at_most(kValue, 60)}, nullptr},
    {{kFirstResult, "ms", kNoFloor, {}}, nullptr},
    {{kMetg, "us", kNoFloor, at_most(kValue, 5)}, nullptr},
    {{"task_sync", "us", kRoundTrip, at_most(kRatio, 4)}, task_sync},
    {{"task_inflight", "tasks/s", kOneWay, at_least(kValue, 1e6)}, task_inflight},
    {{"actor_sync", "us", kRoundTrip, at_most(kRatio, 3)}, actor_sync},
    {{"actor_inflight", "calls/s", kOneWay, at_least(kValue, 1.5e6)}, actor_inflight},
    {{"actor_n_n", "calls/s", kNoFloor, at_least(kRatio, 0.85)}, actor_n_n},
    {{"actor_create", "ms", kNoFloor, at_most(kValue, 5), false}, actor_create},
    {{"actor_create_rate", "actors/s", kNoFloor, at_least(kValue, 300), false}, actor_create_rate},
    {{"fork_join", "us", kNoFloor, at_most(kValue, 2.5), false}, fork_join},
    {{"queued_million", "tasks/s", kOneWay, at_least(kValue, 1e6), false}, queued_million},
    {{"queued_bytes", "B/task", kNoFloor, at_most(kValue, 500), false}, queued_bytes},
    {{"waiting_classes_700", "us", kNoFloor, at_most(kValue, 300), false}, waiting_classes_700},
    {{"waiting_classes_4000", "us", kNoFloor, at_most(kValue, 300), false}, waiting_classes_4000},
};
const Case kObjects[] = {
    {{"put_small", "ns", kNoFloor, at_most(kValue, 300), false}, put_small},
    {{"put_growing", "ns", kNoFloor, {}, false}, put_growing},
    {{"get_small", "ns", kNoFloor, at_most(kValue, 150), false}, get_small},
    {{"get_extent", "ns", kNoFloor, at_most(kValue, 300), false}, get_extent},
    {{"object_bytes", "B", kNoFloor, at_most(kValue, 300), false}, object_bytes},
    {{"get_nested_10000", "ms", kNoFloor, at_most(kValue, 2), false}, get_nested},
    {{"put_large_copy", "GB/s", kCopyRate, at_least(kRatio, 0.9), false}, put_large_copy},
    {{"put_large_inplace", "us", kCopyTime, at_most(kRatio, 0.05), false}, put_large_inplace},
    {{"wait_1000", "us/ref", kNoFloor, at_most(kValue, 1), false}, wait_1000},
    {{"drain_1000", "us/ref", kNoFloor, at_most(kValue, 1), false}, drain_1000},
};

class Local final : public Suite {
 public:
  Local(const char* name, std::span<const Case> cases) : name_(name), cases_(cases) {
    for (const Case& c : cases) rows_.push_back(c.row);
  }
  const char* name() const override { return name_; }
  std::span<const RowInfo> rows() const override { return rows_; }
  int calm_floor() const override { return kRoundTrip; }
  /// Messages in one direction need a reader on its own CPU.
  bool has_floor(int floor, Placement placement) const override {
    return floor != kOneWay || placement == Placement::two_cpus;
  }
  Sample measure_floor(int floor, Placement placement) override {
    if (floor == kRoundTrip) return ring_round_trip(waiting(placement), placement);
    if (floor == kOneWay) return ring_one_way();
    Sample copy = memcpy_into_shared(1);
    if (floor == kCopyTime) copy.value = static_cast<double>(kLarge) / copy.value / 1e3;
    return copy;
  }
  std::vector<Reading> measure(std::span<const std::size_t> rows, Placement placement,
                               bool quick) override {
    std::vector<Reading> readings(rows.size());
    for (std::size_t i = 0; i < rows.size(); ++i)
      if (rows_[rows[i]].name == kMetg) readings[i] = {metg(placement, quick)};
    std::optional<RoundTrips> trips;  // made while this process has one thread
    if (!quick && placement == Placement::two_cpus) trips.emplace(waiting(placement), placement);
    const Stopwatch watch;
    Session session({.cpus = 1});
    const double up = watch.seconds() * 1e3;
    Context ctx = session.context();
    expect(ctx.get(ctx.submit<echo>(1), kBound) == 1, "a result");
    const double first = watch.seconds() * 1e3;
    ctx.get(ctx.submit<stay_on>(cpu_of(placement, 1)), kBound);
    pin(getpid(), cpu_of(placement, 0));
    Scene scene{ctx, placement, quick, trips ? &*trips : nullptr};
    for (int i = 0; i < scene.count(1000, 20); ++i) ctx.get(ctx.submit<echo>(i), kBound);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const Case& c = cases_[rows[i]];
      if (c.row.name == kStart) readings[i] = {up};
      if (c.row.name == kFirstResult) readings[i] = {first};
      if (c.measure != nullptr) readings[i] = c.measure(scene);
    }
    return readings;
  }

 private:
  static Waiting waiting(Placement placement) noexcept {
    return placement == Placement::one_cpu ? Waiting::parked : Waiting::spinning;
  }
  const char* name_;
  std::span<const Case> cases_;
  std::vector<RowInfo> rows_;
};

}  // namespace

Suite& core_suite() {
  static Local suite("core", kCore);
  return suite;
}
Suite& objects_suite() {
  static Local suite("objects", kObjects);
  return suite;
}

}  // namespace troupe::bench
