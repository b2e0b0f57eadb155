#include "troupe/train/detail/training_loop.hpp"

#include "troupe/actors/collective/call.hpp"
#include "troupe/actors/collective/nccl/nccl.hpp"
#include "troupe/actors/collective/nodes/nodes.hpp"
#include "troupe/actors/collective/shm/rendezvous.hpp"
#include "troupe/actors/collective/shm/shm.hpp"
#include "troupe/actors/collective/tcp/door.hpp"
#include "troupe/kernels/denormals/denormals.hpp"
#include "troupe/kernels/device/cuda.hpp"
#include "troupe/runtime/base/deadline.hpp"
#include "troupe/runtime/base/secret.hpp"
#include "troupe/train/internal/gang_place.hpp"
#include "troupe/train/internal/reject.hpp"

#include <unistd.h>
#include <algorithm>
#include <cstdlib>

namespace troupe::train::internal {
namespace {

/// How often ranks agree on whether a checkpoint is wanted, and the most steps in between.
constexpr Duration kAgreeEvery = std::chrono::milliseconds(250);
constexpr long kMostSteps = 1'000'000;

}  // namespace

TrainingLoop::TrainingLoop(WorkerSetup setup) : setup_(std::move(setup)), output_(setup_.output) {
  if (!sees_folder()) return;
  if (!setup_.devices.empty()) ::setenv(kVisibleDevices, setup_.devices.c_str(), 1);
  WorkerEvent ready;
  ready.kind = WorkerEvent::Kind::ready;
  ready.pid = ::getpid();
  if (!setup_.listen.empty()) {
    peers_.door = std::make_shared<collective::Door>(collective::DoorOptions{
        .host = setup_.listen, .rank = setup_.rank, .timeout = Duration(setup_.timeout_ns)});
    ready.door = peers_.door->address();
  }
  emit(std::move(ready));
}

TrainingLoop::~TrainingLoop() {
  stop_.request_stop();
  {
    const std::lock_guard lock(mutex_);
    if (group_) group_->abort("the gang is taken down");
  }
  stop();
}

// A handshake without a lock: the loop thread writes its position and then reads watched_, while
// watch() writes watched_ and then reads the position. All of these are sequentially consistent,
// so at least one side sees the other's write. The exchange of watched_ makes only one of them
// emit `passed`.

void TrainingLoop::next_step() {
  step_.fetch_add(1);
  moved();
  if (saves_) saves_->look();
}

void TrainingLoop::go_to(long step) {
  step_.store(step);
  moved();
}

void TrainingLoop::next_operation() {
  operations_.fetch_add(1);
  moved();
}

void TrainingLoop::moved() {
  if (watched_.load() && watched_.exchange(false)) tell_place();
}

void TrainingLoop::watch(Position at) {
  post([this, at] {
    watched_.store(true);
    if (before(at, position()) && watched_.exchange(false)) tell_place();
  });
}

/// Emits `passed`. The loop emitted all events of its earlier places before it moved, so they
/// come first.
void TrainingLoop::tell_place() {
  WorkerEvent passed;
  passed.kind = WorkerEvent::Kind::passed;
  passed.at = position();
  emit(std::move(passed));
}

/// Waits for the verdict on the last report. Has no bound, because a person or a scheduler may
/// decide it.
bool TrainingLoop::verdict() {
  next_operation();
  const std::optional<WorkerOrder> order = next();
  if (!order) return false;  // the gang is being taken down
  if (order->kind == WorkerOrder::Kind::verdict) return order->go_on;
  missed_ = {true, order->missed_rank};
  throw Cancelled(Code::cancelled,
                  "train: another rank has ended, so no verdict on this report will come",
                  Outcome::executed);
}

/// Waits for the order to begin. Returns false when the gang is taken down first.
bool TrainingLoop::begins() {
  std::optional<WorkerOrder> order = next();
  if (order && order->kind == WorkerOrder::Kind::key) {
    peers_.key = std::move(order->key);
    order = next();
  }
  if (!order || order->kind != WorkerOrder::Kind::begin) return false;
  peers_.members = std::move(order->members);
  return true;
}

void TrainingLoop::want_save() {
  asking_.wanted.store(true);
}

/// The steps at which ranks agree are the same on all ranks: the sum of each agreement says how far
/// the next one is. Rank 0 alone chooses that, and knows whether a checkpoint is wanted.
bool TrainingLoop::wants_checkpoint() {
  const long step = step_.load();
  const bool due = setup_.run.every > 0 && step > 0 && step % setup_.run.every == 0;
  if (!setup_.may_move || step < asking_.at) return due;
  std::int64_t word = 0;
  if (setup_.rank == 0) {
    const Time now = steady_now();
    const long steps = std::max(step - asking_.last, 1L);
    const Duration each = std::max<Duration>((now - asking_.last_time) / steps, Duration(1));
    const long ahead =
        asking_.last_time == Time{} ? 1 : std::clamp(kAgreeEvery / each, 1L, kMostSteps);
    asking_.last = step;
    asking_.last_time = now;
    word = ahead * 2 + (asking_.wanted.exchange(false) ? 1 : 0);
  }
  operate("wants_checkpoint()", [&word](collective::Communicator& group) {
    return group.all_reduce(std::span(&word, 1));
  });
  asking_.at = step + word / 2;
  return due || word % 2 == 1;
}

void TrainingLoop::connect() {
  if (setup_.world == 1) return;
  auto group = peers_.door ? join_over_nodes() : join_on_one_node();
  const std::lock_guard lock(mutex_);
  group_ = std::move(group);
}

std::unique_ptr<collective::Communicator> TrainingLoop::join_over_nodes() {
  collective::NodesOptions options;
  std::vector<std::string> doors;
  for (GangMember& member : peers_.members) {
    options.nodes.push_back(std::move(member.node));
    doors.push_back(std::move(member.door));
  }
  options.rank = setup_.rank;
  options.rendezvous = setup_.rendezvous;
  options.generation = setup_.generation;
  options.timeout = Duration(setup_.timeout_ns);
  Secret<kGangKeyBytes> key;
  if (peers_.key.size() != key.size())
    throw Unavailable(Code::unavailable, "train: the key of the gang has another size");
  std::copy(peers_.key.begin(), peers_.key.end(), key.data());
  wipe(peers_.key.data(), peers_.key.size());
  peers_.key.clear();
  peers_.door->meet(doors, std::move(key));
  return collective::join_nodes_group(options, peers_.door);
}

std::unique_ptr<collective::Communicator> TrainingLoop::join_on_one_node() {
  const Duration timeout(setup_.timeout_ns);
  const Time deadline = deadline_after(steady_now(), timeout);
  Fd memory;
  if (setup_.rank == 0) {
    memory = collective::create_shm_group({.size = setup_.world, .generation = setup_.generation});
    collective::share_group(setup_.rendezvous, memory, setup_.world - 1, deadline);
  } else {
    memory = collective::fetch_group(setup_.rendezvous, deadline);
  }
  return collective::join_shm_group(memory, setup_.rank, setup_.generation, timeout);
}

/// Leaves the group, so that ranks that wait for this one fail at once and not after the timeout.
void TrainingLoop::leave(const std::vector<ToldError>& error) {
  if (!error.empty()) {
    const std::lock_guard lock(mutex_);
    if (group_) group_->abort("the loop of another rank threw: " + error.front().message);
  }
  // After the abort, which ends an exchange of a checkpoint. It lasts as long as a write of a file.
  saves_.reset();
  const std::lock_guard lock(mutex_);
  if (!group_) return;
  group_.reset();
  mesh_.reset();  // after the group: ranks that wait in the mesh then find that this rank has left
}

kernels::Device& TrainingLoop::device() {
  if (device_) return *device_;
  if (setup_.gpus <= 0) {
    const int threads = std::clamp(static_cast<int>(setup_.cpus), 1, 256);
    return device_.emplace(kernels::cpu_device({.threads = threads}));
  }
  try {
    return device_.emplace(kernels::cuda_device());
  } catch (const Unavailable& e) {
    throw Infeasible(Code::infeasible,
                     "train: a GPU is reserved for rank " + std::to_string(setup_.rank) + ", and " +
                         e.message() +
                         ": start the node with as many GPUs as CUDA finds there, or set "
                         "gpus_per_worker to 0");
  }
}

/// Makes the group of all ranks, for memory of the device.
std::unique_ptr<collective::Communicator> TrainingLoop::make_world() {
  const bool shares = setup_.gpus > 0 && setup_.gpus < 1;
  if (shares && std::getenv("NCCL_MULTI_RANK_GPU_ENABLE") == nullptr)
    reject(
        "Worker::mesh(): gpus_per_worker is below 1, and NCCL takes one rank for each GPU: give "
        "each rank a whole one");
  const kernels::Device& mine = device();
  auto host = group_->split(0, setup_.rank);
  try {
    return collective::join_device_group(std::move(host), mine);
  } catch (const Unavailable& e) {
    throw Infeasible(Code::infeasible, "train: the ranks have GPUs, and " + e.message());
  }
}

void TrainingLoop::make_mesh(const collective::MeshShape& shape) {
  if (shape.ranks() != setup_.world)
    reject("Worker::mesh(): a shape of " + std::to_string(shape.ranks()) +
           " ranks does not divide a gang of " + std::to_string(setup_.world) +
           ": choose sizes whose product is that");
  next_operation();
  if (!group_) {
    mesh_ = collective::make_mesh(nullptr, shape);
    return;
  }
  const collective::Call call(group_.get(), "mesh()");
  try {
    mesh_ = collective::make_mesh(make_world(), shape);
  } catch (const InvalidArgument&) {
    throw;
  } catch (const Infeasible&) {
    throw;
  } catch (...) {
    missed(Where::group);
    throw;
  }
}

void TrainingLoop::operate(
    const char* name, const std::function<collective::Work(collective::Communicator&)>& operation) {
  next_operation();
  if (!group_) return;
  const collective::Call call(group_.get(), name);
  try {
    operation(*group_).wait();
  } catch (const InvalidArgument&) {
    throw;  // ranks made different calls
  } catch (...) {
    missed(Where::group);
    throw;
  }
}

/// Records in missed_ that the operation failed because of other ranks, and the first rank that
/// had left before it. An operation of a mesh has no sequence number in the group. There any rank
/// that has left counts, because it makes no further operations.
void TrainingLoop::missed(Where where) {
  missed_.others = true;
  const std::vector<collective::RankProgress> all = group_->progress();
  const collective::RankProgress& mine = all[static_cast<std::size_t>(setup_.rank)];
  for (std::size_t rank = 0; rank < all.size() && missed_.rank < 0; ++rank)
    if (all[rank].state == collective::RankProgress::State::left &&
        (where == Where::mesh || all[rank].sequence < mine.sequence))
      missed_.rank = static_cast<int>(rank);
}

/// Calls missed() when `error` left the loop because an operation of the mesh failed: another
/// rank ended the mesh, or this rank found ranks missing. An unrelated error instead unwinds the
/// operations in flight, which gives the group up (was_given_up()).
void TrainingLoop::judge_mesh(const Error& error) {
  const bool of_others = error.code() == Code::cancelled || error.code() == Code::worker_died ||
                         error.code() == Code::timed_out;
  if (!mesh_ || !group_ || !of_others || missed_.others) return;
  if (group_->is_over() && !group_->was_given_up()) missed(Where::mesh);
}

void TrainingLoop::run(const char* name, std::function<void(Worker&)> loop) {
  LoopActor::run([this, name, loop = std::move(loop)] {
    WorkerEvent end;
    try {
      if (begins()) {
        connect();
        open_folder();
        const kernels::FlushDenormals flush;  // the loop computes on this thread
        Worker worker(*this);
        loop(worker);
        if (saves_) saves_->finish();
      }
    } catch (...) {
      const Error error = current_error(name);
      judge_mesh(error);
      end.error = told(error);
      end.missed_others = missed_.others;
      end.missed_rank = missed_.rank;
    }
    end.at = position();
    const std::vector<ToldError> error = end.error;
    emit(std::move(end));
    leave(error);
  });
}

}  // namespace troupe::train::internal
