/// Simulates the rule for tasks that run in place: a process submits tasks and runs awaited ones
/// itself, while workers take tasks, hand them back and die. The TaskManager is the real one. A
/// seed drives everything else.
///
///     InPlaceWorld world(seed);
///     EXPECT_EQ(world.run(), "");      // what is broken
///
/// Each worker has a ring in each direction. Its frames arrive later, in order. A planted mistake
/// shows that the checks find it.
#pragma once

#include "troupe/runtime/base/random.hpp"
#include "troupe/runtime/client/tasks.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <memory>
#include <string>
#include <vector>

namespace troupe::client {

class InPlaceWorld final : private TaskManager::Out {
 public:
  enum class Mutant {
    none,
    claimed_is_dispatched,   ///< a claimed task can go to a worker, too
    runs_what_is_elsewhere,  ///< a claim counts as the task itself
    hands_back_what_began,   ///< a recall returns calls that have begun
  };

  explicit InPlaceWorld(std::uint64_t seed, Mutant mutant = Mutant::none)
      : random_(seed), mutant_(mutant) {
    for (std::size_t i = 0; i < workers_.size(); ++i) workers_[i].index = ProcessIndex::of(i + 1);
  }

  /// Returns an empty string, or the first promise that was broken.
  std::string run() {
    for (int step = 0; step < 4'000 && broken_.empty(); ++step) {
      now_ += std::chrono::microseconds(random_.below(200));
      act(random_.below(10), step < 2'500);
    }
    for (int step = 0; step < 40'000 && broken_.empty() && open_ != 0; ++step) {
      now_ += std::chrono::microseconds(200);
      act(random_.below(10), false);
    }
    if (broken_.empty() && open_ != 0) broken_ = std::to_string(open_) + " tasks never ended";
    if (broken_.empty() && tasks_.live() != 0) broken_ = "a task is left behind";
    return broken_;
  }
  std::size_t ran_here() const noexcept { return ran_here_; }
  std::size_t came_back() const noexcept { return came_back_; }
  std::size_t ran_there() const noexcept { return ran_there_; }

 private:
  struct Job {
    Task* task = nullptr;  ///< null: the task has ended
    bool runs = false;
    bool lost = false;  ///< its worker died while running it
    int runs_begun = 0;
  };
  struct Frame {
    std::size_t job = 0;
    std::uint64_t sequence = 0;
    bool recall = false;
  };
  struct Word {
    bool hand_back = false;
    std::uint64_t first = 0, count = 0;  ///< the range that is handed back
  };
  struct Worker {
    ProcessIndex index;
    bool leased = false;
    std::uint64_t sent = 0, started = 0, runs = 0;  ///< runs: sequence of the running call, or 0
    std::size_t job = 0;
    std::deque<Frame> ring, waiting;
    std::deque<Word> back;
  };

  // --- TaskManager::Out
  bool send(ProcessIndex worker, Task& task) override {
    Worker& to = workers_.at(worker.value - 1);
    if (job_of(task) == jobs_.size()) broken_ = "a task is sent after its end";
    task.sequence = ++to.sent;
    to.ring.push_back({job_of(task), task.sequence, false});
    return true;
  }
  void request_lease(LeaseKey, std::uint32_t backlog) override { wanted_ = backlog; }
  void return_lease(LeaseId lease) override { workers_.at(lease.value % 16 - 1).leased = false; }
  void recall(ProcessIndex worker) override {
    workers_.at(worker.value - 1).ring.push_back({0, 0, true});
  }
  void fail(Task& task, const Error& error) override {
    if (error.code() != Code::poison_task) broken_ = "a task failed";
    if (job_of(task) == jobs_.size()) broken_ = "a task fails after its end";
    if (!broken_.empty()) return;
    Job& job = jobs_.at(job_of(task));
    job.task = nullptr;
    --open_;
  }
  bool may_come_back(ProcessIndex worker, std::uint64_t sequence) override {
    return workers_.at(worker.value - 1).started < sequence;
  }

  std::size_t job_of(const Task& task) const {
    const auto at = std::find_if(jobs_.begin(), jobs_.end(),
                                 [&task](const Job& job) { return job.task == &task; });
    return static_cast<std::size_t>(at - jobs_.begin());
  }

  void begin(std::size_t number, const char* where) {
    Job& job = jobs_.at(number);
    if (job.task == nullptr) return say(where, number, "was begun after its end");
    if (job.runs) return say(where, number, "runs twice at once");
    if (job.runs_begun > 0 && !job.lost) return say(where, number, "was begun again");
    job.runs = true;
    job.lost = false;
    ++job.runs_begun;
  }
  void say(const char* where, std::size_t number, const char* what) {
    if (broken_.empty())
      broken_ = std::string(where) + ": task " + std::to_string(number) + ' ' + what;
  }

  void act(std::uint64_t what, bool more) {
    Worker& worker = workers_.at(random_.below(workers_.size()));
    switch (what) {
      case 0:
      case 1: return more ? submit() : static_cast<void>(0);
      case 2: return grant(worker);
      case 3: return arrive_there(worker);
      case 4: return work(worker);
      case 5: return arrive_here(worker);
      case 6:
      case 7: return await();
      case 8: static_cast<void>(tasks_.tick(now_)); return;
      default:
        if (random_.below(50) == 0 && more) die(worker);
    }
  }

  void submit() {
    auto task = std::make_unique<Task>();
    task->key = 1;
    task->call.callable = &kCallable;
    task->retries_left = -1;
    jobs_.push_back({task.get()});
    ++open_;
    tasks_.submit(std::move(task), now_);
  }
  void grant(Worker& worker) {
    if (worker.leased || wanted_ == 0) return;
    worker.leased = true;
    tasks_.granted(1, LeaseId::of(++leases_ * 16 + worker.index.value), worker.index, now_);
  }
  void arrive_there(Worker& worker) {
    if (worker.ring.empty()) return;
    const Frame frame = worker.ring.front();
    worker.ring.pop_front();
    if (!frame.recall) return worker.waiting.push_back(frame);
    Word word{true, 0, 0};
    if (mutant_ == Mutant::hands_back_what_began && worker.runs != 0) word = {true, worker.runs, 1};
    for (const Frame& unstarted : worker.waiting) {
      if (word.count == 0) word.first = unstarted.sequence;
      word.count = unstarted.sequence - word.first + 1;
    }
    worker.waiting.clear();
    if (word.count != 0) worker.back.push_back(word);
  }
  void work(Worker& worker) {
    if (worker.runs != 0) {  // the running task ends
      worker.back.push_back({false, worker.runs, 1});
      jobs_.at(worker.job).runs = false;
      worker.runs = 0;
    } else if (!worker.waiting.empty()) {
      worker.job = worker.waiting.front().job;
      worker.runs = worker.started = worker.waiting.front().sequence;
      worker.waiting.pop_front();
      ++ran_there_;
      begin(worker.job, "a worker");
    }
  }
  void arrive_here(Worker& worker) {
    if (worker.back.empty()) return;
    const Word word = worker.back.front();
    worker.back.pop_front();
    if (word.hand_back) return tasks_.handed_back(worker.index, word.first, word.count, now_);
    Task* task = tasks_.in_flight(worker.index, word.first);
    if (task == nullptr) return;  // a late attempt
    const std::size_t job = job_of(*task);
    if (job == jobs_.size()) {
      broken_ = "a task ends twice";
      return;
    }
    jobs_[job].task = nullptr;
    --open_;
    ended_.push_back(tasks_.ended(worker.index, word.first,
                                  std::chrono::microseconds(1 + random_.below(900)), now_));
  }
  void die(Worker& worker) {
    if (!worker.leased) return;
    while (!worker.back.empty()) arrive_here(worker);  // replies that were published count
    if (worker.runs != 0) {
      jobs_.at(worker.job).runs = false;
      jobs_.at(worker.job).lost = true;
    }
    const Error died(Code::worker_died, "killed");
    const std::uint64_t started = worker.started;
    const ProcessIndex index = worker.index;
    worker = {};
    worker.index = index;
    tasks_.worker_died(index, started, died, false, now_);
  }

  /// One step of the thread that awaits one task after the other.
  void await() {
    if (runs_ != kNobody) {  // the task run in place ends
      Job& job = jobs_.at(std::exchange(runs_, kNobody));
      job.runs = false;
      if (job.task == nullptr) return;
      Task& task = *job.task;
      job.task = nullptr;
      --open_;
      ended_.push_back(tasks_.ended_here(task));
      return;
    }
    if (awaited_ != kNobody) {
      if (jobs_.at(awaited_).task == nullptr) {  // the awaited task has ended elsewhere
        tasks_.unclaim(now_);
        awaited_ = kNobody;
        return;
      }
      if (random_.below(4) == 0) tasks_.recall_claimed();
      if (!tasks_.claim_returned()) return;
      ++came_back_;
      const std::size_t job = std::exchange(awaited_, kNobody);
      if (mutant_ == Mutant::claimed_is_dispatched)
        tasks_.unclaim(now_);
      else if (tasks_.take_returned(now_) != jobs_.at(job).task)
        return say("the waiter", job, "is not the one that came back");
      return run_here(job);
    }
    // Prefers the task that was submitted last, as a recursion does.
    std::vector<std::size_t> open;
    for (std::size_t i = 0; i < jobs_.size(); ++i)
      if (jobs_[i].task != nullptr) open.push_back(i);
    if (open.empty()) return;
    const std::size_t job = random_.below(3) != 0 ? open.back() : open[random_.below(open.size())];
    switch (tasks_.claim(*jobs_[job].task, now_)) {
      case Claim::Answer::run: return run_here(job);
      case Claim::Answer::wait:
        awaited_ = job;
        if (mutant_ != Mutant::runs_what_is_elsewhere) return;
        awaited_ = kNobody;
        tasks_.unclaim(now_);
        return run_here(job);
      case Claim::Answer::no: return;
    }
  }
  void run_here(std::size_t job) {
    ++ran_here_;
    runs_ = job;
    begin(job, "the waiter");
  }

  static constexpr std::size_t kNobody = ~std::size_t{0};
  static inline const detail::Callable kCallable{[](detail::Invocation&) {},
                                                 detail::CallableKind::function};

  Random random_;
  Mutant mutant_;
  Time now_ = Time{} + std::chrono::seconds(1);
  std::vector<Job> jobs_;
  std::array<Worker, 4> workers_;
  std::uint64_t leases_ = 0;
  std::uint32_t wanted_ = 0;
  std::size_t open_ = 0, ran_here_ = 0, came_back_ = 0, ran_there_ = 0;
  std::size_t awaited_ = kNobody, runs_ = kNobody;
  std::string broken_;
  std::vector<std::unique_ptr<Task>> ended_;  ///< mistakes may leave pointers to them
  TaskManager tasks_{*this};
};

}  // namespace troupe::client
