/// The actor around a training loop, and what it tells its supervisor.
///
/// The loop runs on a thread of its own; the actor's methods only pass events and verdicts on. The
/// supervisor keeps one take() open at each worker, which ends with the first event or after
/// kTakeWait: no other call waits longer than that for the mailbox. A loop begins when the
/// supervisor says so: then every rank has its place.
#pragma once

#include "troupe/kernels/device/device.hpp"
#include "troupe/train/detail/told_error.hpp"
#include "troupe/train/worker.hpp"

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <tuple>

namespace troupe::collective {
class Communicator;
class Work;
}  // namespace troupe::collective

namespace troupe::train::internal {

/// Milliseconds that take() may wait.
inline constexpr int kTakeWait = 20;

struct WorkerSetup {
  int rank = 0;
  int world = 1;
  int incarnation = 0;
  bool verdicts = false;  ///< reports wait for reply()
  std::string metric;     ///< beside the loss, what ranks other than 0 report
  std::string meeting;    ///< abstract socket where rank 0 hands the shared memory out
  std::uint64_t generation = 1;
  std::int64_t timeout_ns = 30'000'000'000;
  Layout layout;
  double cpus = 0, gpus = 0;  ///< that are reserved for this rank
  SavedModel start;
};

/// How far a rank's loop has come. Both numbers only rise, and are equal on all ranks at equal
/// places of the loop.
struct Position {
  long step = 0;
  std::uint64_t operations = 0;  ///< collective ones that it has begun
  friend bool operator==(const Position&, const Position&) = default;
};

struct WorkerEvent {
  enum class Kind : std::uint8_t { ready, reported, saved, restored, ended };
  Kind kind = Kind::ended;
  Position at;
  Metrics metrics;
  SavedModel saved;
  std::uint64_t hash = 0;
  std::vector<ToldError> error;  ///< ended: what the loop let out; empty when it returned
  bool missed_others = false;    ///< ended: a collective operation ended since others did
  int missed_rank = -1;          ///< the rank that had left by then, before the operation
};

/// All that happened by the time when the loop was at `now`.
struct Taken {
  std::vector<WorkerEvent> events;
  Position now;
};

struct WorkerHandle {
  std::function<Ref<Taken>()> take;
  std::function<void()> begin;
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
  Taken take(int wait_ms);
  void begin();
  void reply(bool go_on);

 protected:
  /// `name` is the loop's, for errors.
  void run(const char* name, std::function<void(Worker&)> loop);

 private:
  friend class train::Worker;
  void push(WorkerEvent event);
  bool await_begin();
  bool await_reply();
  void connect();
  kernels::Device& device();
  void make_mesh(const collective::MeshShape& shape);
  std::unique_ptr<collective::Communicator> make_world();
  void leave(const std::vector<ToldError>& error);
  void operate(const std::function<collective::Work(collective::Communicator&)>& operation);
  enum class Where : std::uint8_t { group, mesh };
  void missed(Where where);
  void judge_mesh(const Error& error);
  Position position() const noexcept {
    return {step_.load(std::memory_order_acquire), operations_.load(std::memory_order_acquire)};
  }

  WorkerSetup setup_;
  PassBook passes_;  // the loop's
  std::atomic<long> step_ = 0;
  std::atomic<std::uint64_t> operations_ = 0;
  std::unique_ptr<collective::Communicator> group_;
  std::optional<collective::Mesh> mesh_;  // of splits of the group
  std::optional<kernels::Device> device_;
  struct Missed {
    bool others = false;
    int rank = -1;
  } missed_;
  std::stop_source stop_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool begun_ = false;
  std::deque<WorkerEvent> events_;
  std::deque<bool> replies_;
  std::thread thread_;
};

template <auto loop, class Parameters>
class LoopActor {
  static_assert(sizeof(Parameters) == 0,
                "troupe: a training loop is a function or a lambda without captures whose first "
                "parameter is train::Worker&");
};
template <auto loop, class... P>
class LoopActor<loop, troupe::detail::List<Worker&, P...>> : public LoopHost {
  using Target = troupe::detail::target_of<loop>;
  static_assert(std::is_void_v<typename Target::Sig::Result>,
                "troupe: a training loop returns nothing; what it finds goes into report()");

 public:
  LoopActor(WorkerSetup setup, std::decay_t<P>... arguments) : LoopHost(std::move(setup)) {
    auto kept = std::make_shared<std::tuple<std::decay_t<P>...>>(std::move(arguments)...);
    run(troupe::detail::readable_name(Target::text()), [kept](Worker& worker) {
      std::apply([&](auto&... each) { Target::call(nullptr, worker, std::move(each)...); }, *kept);
    });
  }
};
template <auto loop>
using LoopActorOf =
    LoopActor<loop,
              typename troupe::detail::Signature<std::remove_const_t<decltype(loop)>>::Parameters>;

}  // namespace troupe::train::internal
