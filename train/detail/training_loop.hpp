/// TrainingLoop: the actor that runs a training loop on one rank; Worker is its face towards the
/// loop.
#pragma once

#include "troupe/actors/loop_actor/loop_actor.hpp"
#include "troupe/actors/loop_actor/loop_output.hpp"
#include "troupe/kernels/device/device.hpp"
#include "troupe/runtime/callable.hpp"
#include "troupe/train/detail/folder_saves.hpp"
#include "troupe/train/detail/gang.hpp"
#include "troupe/train/worker.hpp"

#include <atomic>
#include <mutex>
#include <tuple>

namespace troupe::collective {
class Communicator;
class Door;
class Work;
}  // namespace troupe::collective

namespace troupe::train::internal {

class TROUPE_API TrainingLoop : public LoopActor<WorkerEvent, WorkerOrder> {
 public:
  explicit TrainingLoop(WorkerSetup setup);
  ~TrainingLoop();
  /// Makes the loop emit one `passed` event: once it is beyond `at`, or at its next step or
  /// collective operation. The event follows all earlier events of the loop.
  void watch(Position at);
  /// Makes Worker::wants_checkpoint() true soon, on all ranks at one step. For rank 0.
  void want_save();

 protected:
  /// Runs `loop` on the actor's loop thread. `name` is the loop's name in errors.
  void run(const char* name, std::function<void(Worker&)> loop);

 private:
  friend class train::Worker;
  bool begins();
  bool verdict();
  void next_step();
  void go_to(long step);
  void next_operation();
  void moved();
  void tell_place();
  void connect();
  std::unique_ptr<collective::Communicator> join_on_one_node();
  std::unique_ptr<collective::Communicator> join_over_nodes();
  bool wants_checkpoint();
  bool sees_folder();
  void open_folder();
  kernels::Device& device();
  void make_mesh(const collective::MeshShape& shape);
  std::unique_ptr<collective::Communicator> make_world();
  void leave(const std::vector<ToldError>& error);
  /// `name` is the loop's call, for errors.
  void operate(const char* name,
               const std::function<collective::Work(collective::Communicator&)>& operation);
  enum class Where : std::uint8_t { group, mesh };
  void missed(Where where);
  void judge_mesh(const Error& error);
  Position position() const noexcept { return {step_.load(), operations_.load()}; }

  WorkerSetup setup_;
  const loops::LoopOutput output_;
  PassBook passes_;  // the loop's
  std::atomic<long> step_ = 0;
  std::atomic<std::uint64_t> operations_ = 0;
  std::atomic<bool> watched_ = false;  // the next move emits `passed`
  // What the orders before the first step have said about a gang over nodes.
  struct Peers {
    std::shared_ptr<collective::Door> door;
    std::vector<std::byte> key;
    std::vector<GangMember> members;
  } peers_;
  // When the ranks agree again on whether a checkpoint is wanted.
  struct Asking {
    std::atomic<bool> wanted = false;  // rank 0 was asked
    long at = 0, last = 0;             // steps
    Time last_time{};
  } asking_;
  // Guards group_: the loop's thread sets and resets it, the destructor aborts it.
  std::mutex mutex_;
  std::unique_ptr<collective::Communicator> group_;
  std::optional<collective::Mesh> mesh_;  // of splits of group_
  std::optional<kernels::Device> device_;
  std::unique_ptr<FolderSaves> saves_;  // null: checkpoints are objects
  struct Missed {
    bool others = false;
    int rank = -1;
  } missed_;
  std::stop_source stop_;
};

template <auto loop, class Parameters>
class TrainingActor {
  static_assert(sizeof(Parameters) == 0,
                "troupe: a training loop is a function or a lambda without captures whose first "
                "parameter is train::Worker&");
};
template <auto loop, class... P>
class TrainingActor<loop, TypeList<Worker&, P...>> : public TrainingLoop {
  using Loop = CallableTraits<loop>;
  static_assert(std::is_void_v<typename Loop::Result>,
                "troupe: a training loop returns nothing; what it finds goes into report()");

 public:
  TrainingActor(WorkerSetup setup, std::decay_t<P>... arguments) : TrainingLoop(std::move(setup)) {
    auto kept = std::make_shared<std::tuple<std::decay_t<P>...>>(std::move(arguments)...);
    run(Loop::name(), [kept](Worker& worker) {
      std::apply([&](auto&... each) { Loop::call(worker, std::move(each)...); }, *kept);
    });
  }
};
template <auto loop>
using TrainingActorOf = TrainingActor<loop, typename CallableTraits<loop>::Parameters>;

}  // namespace troupe::train::internal
