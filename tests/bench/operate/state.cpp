// Measures the answer of a process with many waiting tasks, without a cluster around it.
//   operate_state TASKS
// prints the seconds of a filter over the tasks, the seconds of a bare walk, the CPU time in
// microseconds of the longest piece of work under the engine's lock, and by how many MiB the heap grew.
#include "troupe/runtime/client/objects.hpp"
#include "troupe/runtime/client/task_report.hpp"

#include <malloc.h>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

namespace troupe::client {
namespace {

constexpr int kRunning = 40, kRounds = 5;

/// The engine's and the agent's side, which keep nothing but the answer.
struct Sides final : TaskManager::Out, ActorCalls::Out, TaskReport::Out {
  bool send(ProcessIndex, Task& task) override { return task.sequence = ++sequence, true; }
  void request_lease(LeaseKey, std::uint32_t) override {}
  void return_lease(LeaseId) override {}
  void recall(ProcessIndex) override {}
  void fail(Task&, const Error&) override {}
  bool send(ProcessIndex, ActorCall&) override { return false; }
  void watch(ActorId) override {}
  void fail(ActorCall&, const Error&) override {}
  void give(const wire::GiveRows&, BlobView piece) override {
    bytes.insert(bytes.end(), piece.begin(), piece.end());
  }
  bool has_room() override { return true; }
  Begun has_begun(ProcessIndex, const Task&) override { return Begun::unknown; }
  void each_awaited(const std::function<bool(const detail::ObjectHandle&)>&) override {}
  void each_own(const std::function<void(const Entry&, const std::string&)>&) override {}
  std::uint64_t sequence = 0;
  Blob bytes;
};

double cpu_us() {
  timespec used{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) * 1e6 + static_cast<double>(used.tv_nsec) * 1e-3;
}
double heap_mib() {
  const auto info = mallinfo2();
  return static_cast<double>(info.uordblks + info.hblkhd) / (1 << 20);
}
double seconds_since(std::chrono::steady_clock::time_point begun) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
}

/// A process with tasks of which kRunning run.
class Process {
 public:
  explicit Process(int tasks) {
    for (int i = 1; i <= kRunning; ++i)
      tasks_.granted({}, LeaseId::of(static_cast<std::uint64_t>(i)), worker(i), now_);
    for (int i = 0; i < tasks; ++i) {
      std::unique_ptr<Task> task(new Task);
      task->call.callable = &function_;
      task->results.push_back(objects_.create());
      tasks_.submit(std::move(task), now_);
    }
  }
  /// Returns the answer's rows that match; the longest piece of work and the growth by reference.
  std::uint64_t filter(double& longest_us, double& grown_mib) {
    wire::AskRows question;
    question.rows.kind = static_cast<std::uint8_t>(observe::RowKind::tasks);
    question.rows.where = "state = running";
    question.rows.limit = 100;
    observe::Surroundings around;
    around.self = "node-0/17";
    for (int i = 1; i <= kRunning; ++i)
      around.workers[worker(i)] = {"node-0/" + std::to_string(100 + i), false, true};
    const double before = heap_mib();
    sides_.bytes.clear();
    report_.ask(question, observe::encode(around));
    for (Time next{}; next != Time::max();) {
      const double begun = cpu_us();
      next = report_.step(now_);
      longest_us = std::max(longest_us, cpu_us() - begun);
      if (++steps_ % 64 == 0) grown_mib = std::max(grown_mib, heap_mib() - before);
    }
    return observe::decode_answer(sides_.bytes).value().matched;
  }
  std::uint64_t walk() {
    std::uint64_t sum = 0;
    tasks_.begin_walk();
    while (tasks_.walks())
      tasks_.walk(TaskReport::kTasksOfStep, [&](const Task& task) { sum += task.sequence; });
    return sum;
  }

 private:
  static ProcessIndex worker(int number) {
    return ProcessIndex::of(static_cast<std::uint64_t>(number));
  }
  Time now_ = steady_now();
  Sides sides_;
  ObjectTable objects_{77};
  TaskManager tasks_{sides_};
  ActorCalls calls_{sides_};
  WaitingThreads threads_;
  TaskReport report_{sides_, JobId{1, 2}, tasks_, calls_, threads_, 0};
  detail::Callable function_{.name = "mix(int)"};
  std::uint64_t steps_ = 0;
};

double middle(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

int measure(int count) {
  auto* const process = new Process(count);  // ends with this program
  std::vector<double> filters, walks, longest;
  double grown_mib = 0;
  std::uint64_t sum = 0;
  for (int i = 0; i <= kRounds; ++i) {
    auto begun = std::chrono::steady_clock::now();
    sum += process->walk();
    walks.push_back(seconds_since(begun));
    begun = std::chrono::steady_clock::now();
    double longest_us = 0;
    if (process->filter(longest_us, grown_mib) != kRunning) return 1;
    filters.push_back(seconds_since(begun));
    longest.push_back(longest_us);
    if (i == 0) filters.clear(), walks.clear(), longest.clear();  // a warm-up
  }
  std::printf("%.9f %.9f %.3f %.3f\n", middle(filters), middle(walks), middle(longest), grown_mib);
  return sum == 0 ? 1 : 0;
}

}  // namespace
}  // namespace troupe::client

int main(int argc, char** argv) {
  return troupe::client::measure(argc > 1 ? std::stoi(argv[1]) : 1'000'000);
}
