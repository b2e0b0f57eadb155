#include "curves.hpp"

#include "tools.hpp"
#include "troupe/troupe.hpp"

#include <malloc.h>
#include <algorithm>
#include <memory>

namespace troupe::bench {
namespace {

using Payload = std::vector<std::uint8_t>;

// --- code that runs in workers ---

int same(int x) {
  return x;
}
Payload same_bytes(const Payload& bytes) {
  return bytes;
}
void rest(int ms) {
  const timespec time{ms / 1000, (ms % 1000) * 1'000'000L};
  nanosleep(&time, nullptr);
}
/// Submits tasks from inside a task, as a further driver would, but without a process of its own.
int drive(Context& ctx, int tasks) {
  std::vector<Ref<int>> refs;
  for (int i = 0; i < tasks; ++i) refs.push_back(ctx.submit<same>(i));
  for (const auto& ref : refs) ctx.get(ref, kBound);
  return tasks;
}
class Counter {
 public:
  int add(int x) { return total_ += x; }

 private:
  int total_ = 0;
};

// --- measuring ---

double heap_bytes() {
  const auto info = mallinfo2();
  return static_cast<double>(info.uordblks + info.hblkhd);
}

/// Returns the median seconds of three runs.
template <class Run>
double seconds_of(bool quick, Run&& run) {
  std::vector<double> runs;
  for (int i = 0; i < (quick ? 1 : 3); ++i) runs.push_back(run());
  return middle(std::move(runs));
}

std::vector<double> steps(bool quick, double from, double to, double factor) {
  std::vector<double> all;
  for (double x = from; x <= to * 1.001; x *= factor) all.push_back(x);
  if (quick) all.resize(2);
  return all;
}

constexpr double kFewRecords = 1e4;
/// The number of first records that are not counted, since they reuse memory of earlier records.
constexpr int kLeft = 200'000;

/// Measures the memory of further records, after kLeft uncounted ones.
template <class One>
void memory_of(bool quick, Curve& curve, One&& one) {
  const int left = quick ? 1000 : kLeft;
  std::vector<Ref<int>> refs;
  refs.reserve(static_cast<std::size_t>(left) + 1'000'000);
  for (int i = 0; i < left; ++i) refs.push_back(one(i));
  const double before = heap_bytes();
  for (const double n : steps(quick, kFewRecords, 1e6, 10)) {
    for (int i = static_cast<int>(refs.size()); i < left + static_cast<int>(n); ++i)
      refs.push_back(one(i));
    curve.points.push_back({n, std::max(heap_bytes() - before, 1.0)});
  }
}

/// Tasks wait behind a task that sleeps. Measures the memory of each, then the time to drain
/// them.
void queue_length(Context& ctx, bool quick, Curve& time, Curve& memory) {
  const Ref<void> resting = ctx.submit<rest>(quick ? 100 : 5000);
  memory_of(quick, memory, [&ctx](int i) { return ctx.submit<same>(i); });
  ctx.get(ctx.submit<same>(0), kBound);  // waits for the tasks before it
  for (const double n : steps(quick, kFewRecords, 1e6, 10)) {
    const double drained = seconds_of(quick, [&] {
      std::vector<Ref<int>> refs;
      refs.reserve(static_cast<std::size_t>(n));
      const Ref<void> sleeper = ctx.submit<rest>(quick ? 20 : static_cast<int>(50 + n / 250));
      for (int i = 0; i < static_cast<int>(n); ++i) refs.push_back(ctx.submit<same>(i));
      ctx.get(sleeper, kBound);
      const Stopwatch watch;
      for (const auto& ref : refs) ctx.get(ref, kBound);
      return watch.seconds();
    });
    time.points.push_back({n, drained});
  }
}

void live_refs(Context& ctx, bool quick, Curve& curve) {
  memory_of(quick, curve, [&ctx](int i) { return ctx.put(i); });
}

void waited_refs(Context& ctx, bool quick, Curve& curve) {
  for (const double n : steps(quick, 1e2, 1e5, 10)) {
    std::vector<Ref<int>> refs;
    for (int i = 0; i < static_cast<int>(n); ++i) refs.push_back(ctx.submit<same>(i));
    for (const auto& ref : refs) ctx.get(ref, kBound);
    curve.points.push_back(
        {n, seconds_of(quick, [&] {
           const Stopwatch watch;
           expect(ctx.wait(refs, {.count = refs.size(), .timeout = kBound}).ready.size() ==
                      refs.size(),
                  "all are ready");
           return watch.seconds();
         })});
  }
}

void payload(Context& ctx, bool quick, Curve& curve) {
  for (const double n : steps(quick, 64, 16 << 20, 8)) {
    const Payload bytes(static_cast<std::size_t>(n), 1);
    curve.points.push_back({n, 1e6 * median_call(quick ? 10 : 50, [&](int) {
                                 expect(ctx.get(ctx.submit<same_bytes>(bytes), kBound).size() ==
                                            bytes.size(),
                                        "the bytes");
                               })});
  }
}

/// Tasks that use no CPU, so more workers than CPUs are useful. Measures the time of a hundred
/// per worker.
void workers(bool quick, Curve& curve) {
  for (const double n : steps(quick, 1, 16, 2)) {
    Session session({.cpus = n});
    Context ctx = session.context();
    const auto run = [&](int each) {
      std::vector<Ref<void>> refs;
      const Stopwatch watch;
      for (int i = 0; i < each * static_cast<int>(n); ++i) refs.push_back(ctx.submit<rest>(2));
      for (const auto& ref : refs) ctx.get(ref, kBound);
      return watch.seconds();
    };
    run(2);
    curve.points.push_back({n, seconds_of(quick, [&] { return run(quick ? 2 : 100); })});
  }
}

/// A task in each of n workers submits tasks for n other workers.
void drivers(bool quick, Curve& curve) {
  for (const double n : steps(quick, 1, 8, 2)) {
    Session session({.cpus = n});
    Context ctx = session.context();
    const int each = quick ? 20 : 5000;
    curve.points.push_back({n, seconds_of(quick, [&] {
                              std::vector<Ref<int>> refs;
                              const Stopwatch watch;
                              for (int i = 0; i < static_cast<int>(n); ++i)
                                refs.push_back(ctx.submit<drive>(each));
                              for (const auto& ref : refs) ctx.get(ref, kBound);
                              return watch.seconds();
                            })});
  }
}

/// The same number of calls, spread over a growing number of actors.
void actors(Context& ctx, bool quick, Curve& calls, Curve& start, Curve& memory) {
  const std::size_t without = family().size();
  for (const double n : steps(quick, 1, 64, 4)) {
    const Stopwatch wait;  // for earlier actors to end
    while (family().size() > without) expect(wait.seconds() < 20, "actors end with their handles");
    const double before = own_bytes();
    std::vector<Actor<Counter>> all;
    const Stopwatch born;
    for (int i = 0; i < static_cast<int>(n); ++i) all.push_back(ctx.spawn<Counter>());
    for (const auto& one : all) ctx.get(one.call<&Counter::add>(0), kBound);
    start.points.push_back({n, born.seconds()});
    memory.points.push_back({n, std::max(own_bytes() - before, 1.0)});
    const std::size_t many = quick ? 100 : 50'000;
    calls.points.push_back({n, seconds_of(quick, [&] {
                              std::vector<Ref<int>> refs;
                              refs.reserve(many);
                              const Stopwatch watch;
                              for (std::size_t i = 0; i < many; ++i)
                                refs.push_back(all[i % all.size()].call<&Counter::add>(1));
                              for (const auto& ref : refs) ctx.get(ref, kBound);
                              return watch.seconds();
                            })});
  }
}

/// Nodes with agents of their own on this machine. The curve begins at 2, since a single node has
/// neither control nor links.
void nodes(bool quick, Curve& start, Curve& memory, Curve& calls) {
  for (const double n : steps(quick, 2, 8, 2)) {
    const int count = static_cast<int>(n);
    const double before = own_bytes();
    const Stopwatch up;
    Session session({.cpus = 1, .nodes = static_cast<unsigned>(count)});
    Context ctx = session.context();
    while (static_cast<int>(ctx.cluster().nodes.size()) < count)
      expect(up.seconds() < 60, "the nodes know each other");
    start.points.push_back({n, up.seconds()});
    memory.points.push_back({n, std::max(own_bytes() - before, 1.0)});
    calls.points.push_back({n, seconds_of(quick, [&] {
                              std::vector<Ref<void>> refs;
                              const Stopwatch watch;
                              for (int i = 0; i < (quick ? 2 : 100) * count; ++i)
                                refs.push_back(ctx.submit<rest>(2));
                              for (const auto& ref : refs) ctx.get(ref, kBound);
                              return watch.seconds();
                            })});
  }
}

}  // namespace

std::vector<Curve> measure_curves(bool quick) {
  Curve drained{"queued tasks, drained", "tasks", "s", 1, {}};
  Curve queued{"queued tasks, memory", "tasks", "bytes", 1, {}};
  Curve refs{"small objects, memory", "objects", "bytes", 1, {}};
  Curve waited{"wait for all", "refs", "s", 1, {}};
  Curve sized{"task there and back", "bytes of payload", "us", 1, {}};
  Curve called{"50,000 calls over n actors", "actors", "s", 0, {}};
  Curve born{"n actors, first replies", "actors", "s", 1, {}};
  Curve lived{"n actors, memory", "actors", "bytes", 1, {}};
  Curve worked{"100 x 2 ms of rest for each worker", "workers", "s", 0, {}};
  Curve driven{"5,000 tasks from each of n tasks", "submitting tasks", "s", 1, {}};
  Curve joined{"cluster of n nodes, up", "nodes", "s", 1, {}};
  Curve housed{"cluster of n nodes, memory", "nodes", "bytes", 1, {}};
  Curve spread{"100 x 2 ms of rest for each node", "nodes", "s", 0, {}};
  {
    Session session({.cpus = 1});
    Context ctx = session.context();
    expect(ctx.get(ctx.submit<same>(1), kBound) == 1, "a result");
    queue_length(ctx, quick, drained, queued);
    live_refs(ctx, quick, refs);
    waited_refs(ctx, quick, waited);
    payload(ctx, quick, sized);
    actors(ctx, quick, called, born, lived);
  }
  workers(quick, worked);
  drivers(quick, driven);
  nodes(quick, joined, housed, spread);
  return {drained, queued, refs,   waited, sized,  called, born,
          lived,   worked, driven, joined, housed, spread};
}

}  // namespace troupe::bench
