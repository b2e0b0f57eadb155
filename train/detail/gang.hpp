/// The actor around a training loop, and what it tells its supervisor.
///
/// The loop runs on a thread of its own; the actor's methods only pass events and verdicts on. The
/// supervisor keeps one take() open at each worker, which ends with the first event or after
/// kTakeWait: no other call waits longer than that for the mailbox.
#pragma once

#include "troupe/train/worker.hpp"

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>

namespace troupe::collective {
class Communicator;
}

namespace troupe::train::internal {

/// Milliseconds that take() may wait.
inline constexpr int kTakeWait = 20;

struct WorkerSetup {
  int rank = 0;
  int world = 1;
  int incarnation = 0;
  bool verdicts = false;  ///< reports wait for reply()
  std::string meeting;    ///< abstract socket where rank 0 hands the shared memory out
  std::uint64_t generation = 1;
  std::int64_t timeout_ms = 30000;
  SavedModel start;
};

struct WorkerEvent {
  enum class Kind : std::uint8_t { reported, saved, restored, ended };
  Kind kind = Kind::ended;
  Metrics metrics;
  SavedModel saved;
  std::uint64_t hash = 0;
  bool failed = false;
  bool by_others = false;  ///< failed since another rank was missing
  std::string error;
};

struct WorkerHandle {
  std::function<Ref<std::vector<WorkerEvent>>()> take;
  std::function<void(bool)> reply;
  std::function<void()> kill;
};
using SpawnWorker = std::function<WorkerHandle(const WorkerSetup&, const ActorOptions&)>;

class Supervisor;

class TROUPE_API LoopHost {
 public:
  explicit LoopHost(WorkerSetup setup);
  LoopHost(const LoopHost&) = delete;
  LoopHost& operator=(const LoopHost&) = delete;
  ~LoopHost();
  /// What happened since; waits at most so many milliseconds for the first event.
  std::vector<WorkerEvent> take(int wait_ms);
  void reply(bool go_on);

 protected:
  void run(std::function<void(Worker&)> loop);

 private:
  friend class train::Worker;
  void push(WorkerEvent event);
  bool await_reply();
  void connect();
  void guarded(const std::function<void()>& collective);

  WorkerSetup setup_;
  long step_ = 0;
  std::unique_ptr<collective::Communicator> group_;
  bool others_failed_ = false;
  std::stop_source stop_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<WorkerEvent> events_;
  std::deque<bool> replies_;
  std::thread thread_;
};

template <auto loop, class Signature = std::remove_const_t<decltype(loop)>>
class LoopActor;
template <auto loop, class... P>
class LoopActor<loop, void (*)(Worker&, P...)> : public LoopHost {
 public:
  LoopActor(WorkerSetup setup, std::decay_t<P>... arguments) : LoopHost(std::move(setup)) {
    auto kept = std::make_shared<std::tuple<std::decay_t<P>...>>(std::move(arguments)...);
    run([kept](Worker& worker) {
      std::apply([&](auto&... each) { loop(worker, std::move(each)...); }, *kept);
    });
  }
};

}  // namespace troupe::train::internal
