#include "troupe/train/worker.hpp"

#include "troupe/actors/collective/nccl/nccl.hpp"
#include "troupe/actors/collective/shm/rendezvous.hpp"
#include "troupe/actors/collective/shm/shm.hpp"
#include "troupe/kernels/denormals/denormals.hpp"
#include "troupe/kernels/device/cuda.hpp"
#include "troupe/runtime/base/deadline.hpp"
#include "troupe/train/detail/gang.hpp"
#include "troupe/train/internal/reject.hpp"

#include <algorithm>
#include <cstdlib>

namespace troupe::train {

int Worker::rank() const noexcept {
  return host_->setup_.rank;
}
int Worker::world() const noexcept {
  return host_->setup_.world;
}
long Worker::step() const noexcept {
  return host_->step_.load(std::memory_order_relaxed);
}
int Worker::incarnation() const noexcept {
  return host_->setup_.incarnation;
}
std::stop_token Worker::stop_token() const {
  return host_->stop_.get_token();
}
Context Worker::context() const {
  return Context(troupe::detail::running_engine());
}
void Worker::next_step() noexcept {
  host_->step_.fetch_add(1, std::memory_order_release);
}
const SavedModel& Worker::start() const noexcept {
  return host_->setup_.start;
}
internal::PassBook& Worker::passes() noexcept {
  return host_->passes_;
}

void Worker::all_reduce_mean(std::span<float> values) {
  host_->operate([&](collective::Communicator& group) {
    return group.all_reduce(values, collective::Reduce::mean);
  });
}

void Worker::all_reduce_sum(std::span<float> values) {
  host_->operate([&](collective::Communicator& group) { return group.all_reduce(values); });
}

std::int64_t Worker::all_reduce_sum(std::int64_t value) {
  host_->operate(
      [&](collective::Communicator& group) { return group.all_reduce(std::span(&value, 1)); });
  return value;
}

double Worker::all_reduce_sum(double value) {
  host_->operate(
      [&](collective::Communicator& group) { return group.all_reduce(std::span(&value, 1)); });
  return value;
}

kernels::Device& Worker::device() {
  return host_->device();
}
const Layout& Worker::layout() const noexcept {
  return host_->setup_.layout;
}
collective::Mesh& Worker::mesh() {
  return mesh({.dp = layout().dp, .tp = layout().tp, .pp = layout().pp});
}
collective::Mesh& Worker::mesh(const collective::MeshShape& shape) {
  if (!host_->mesh_) host_->make_mesh(shape);
  const collective::MeshShape& made = host_->mesh_->shape;
  if (made.dp != shape.dp || made.tp != shape.tp || made.pp != shape.pp)
    internal::reject("Worker::mesh() was called with another shape before: a gang has one mesh");
  return *host_->mesh_;
}

bool Worker::report(const Metrics& metrics) {
  internal::WorkerEvent event;
  event.kind = internal::WorkerEvent::Kind::reported;
  event.at = host_->position();
  if (rank() == 0) {
    event.metrics = metrics;
  } else {
    event.metrics = {.step = metrics.step, .loss = metrics.loss};
    const auto named = metrics.extra.find(host_->setup_.metric);
    if (named != metrics.extra.end()) event.metrics.extra.insert(*named);
  }
  host_->push(std::move(event));
  if (!host_->setup_.verdicts) return true;
  std::byte verdict{1};
  if (rank() == 0) verdict = host_->await_reply() ? std::byte{1} : std::byte{0};
  // The verdict is a person's or a scheduler's affair: it may take longer than a step.
  host_->operate(
      [&](collective::Communicator& group) { return group.broadcast(std::span(&verdict, 1), 0); });
  return verdict == std::byte{1};
}

void Worker::saved(SavedModel model) {
  const internal::PassCursor cursor = passes().cursor();
  model.passes = cursor.passes;
  model.batches = cursor.batches;
  internal::WorkerEvent event;
  event.kind = internal::WorkerEvent::Kind::saved;
  event.at = host_->position();
  event.saved = std::move(model);
  host_->push(std::move(event));
}

void Worker::restored(std::uint64_t hash) {
  host_->step_.store(start().step, std::memory_order_release);
  passes().resume({.passes = start().passes, .batches = start().batches});
  if (rank() != 0) return;
  internal::WorkerEvent event;
  event.kind = internal::WorkerEvent::Kind::restored;
  event.at = host_->position();
  event.hash = hash;
  host_->push(std::move(event));
}

namespace internal {

void check_shard(const ShardOptions& options) {
  if (options.steps < 0)
    reject("ShardOptions.steps is " + std::to_string(options.steps) +
           ": give the step after which a pass ends, or 0 for whole epochs");
  if (options.epochs < 0)
    reject("ShardOptions.epochs is " + std::to_string(options.epochs) + ": give 0 or more");
}

LoopHost::LoopHost(WorkerSetup setup) : setup_(std::move(setup)) {
  WorkerEvent ready;
  ready.kind = WorkerEvent::Kind::ready;
  events_.push_back(std::move(ready));
}

LoopHost::~LoopHost() {
  stop_.request_stop();
  {
    const std::lock_guard lock(mutex_);
    replies_.push_back(false);
    if (group_) group_->abort("the gang is taken down");
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void LoopHost::connect() {
  if (setup_.world == 1) return;
  const Duration timeout(setup_.timeout_ns);
  const Time deadline = deadline_after(steady_now(), timeout);
  Fd memory;
  if (setup_.rank == 0) {
    memory = collective::create_shm_group({.size = setup_.world, .generation = setup_.generation});
    collective::share_group(setup_.meeting, memory, setup_.world - 1, deadline);
  } else {
    memory = collective::fetch_group(setup_.meeting, deadline);
  }
  auto group = collective::join_shm_group(memory, setup_.rank, setup_.generation, timeout);
  const std::lock_guard lock(mutex_);
  group_ = std::move(group);
}

/// Others that wait for this rank hear at once that it does not come any more.
void LoopHost::leave(const std::vector<ToldError>& error) {
  const std::lock_guard lock(mutex_);
  if (!group_) return;
  if (!error.empty()) group_->abort("the loop of another rank threw: " + error.front().message);
  group_.reset();
  mesh_.reset();  // behind the group: who waits in it finds that this rank has left
}

kernels::Device& LoopHost::device() {
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

/// All ranks, for memory of the device.
std::unique_ptr<collective::Communicator> LoopHost::make_world() {
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

void LoopHost::make_mesh(const collective::MeshShape& shape) {
  if (shape.ranks() != setup_.world)
    reject("Worker::mesh(): a shape of " + std::to_string(shape.ranks()) +
           " ranks does not divide a gang of " + std::to_string(setup_.world) +
           ": choose sizes whose product is that");
  operations_.fetch_add(1, std::memory_order_release);
  if (!group_) {
    mesh_ = collective::make_mesh(nullptr, shape);
    return;
  }
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

void LoopHost::operate(
    const std::function<collective::Work(collective::Communicator&)>& operation) {
  operations_.fetch_add(1, std::memory_order_release);
  if (!group_) return;
  try {
    operation(*group_).wait();
  } catch (const InvalidArgument&) {
    throw;  // this rank or another asked for what the others did not
  } catch (...) {
    missed(Where::group);
    throw;
  }
}

/// Remembers who had left before the operation that all others are in. One of the mesh has no
/// number in the group: who has left the group comes to no more of them.
void LoopHost::missed(Where where) {
  missed_.others = true;
  const std::vector<collective::RankProgress> all = group_->progress();
  const collective::RankProgress& mine = all[static_cast<std::size_t>(setup_.rank)];
  for (std::size_t rank = 0; rank < all.size() && missed_.rank < 0; ++rank)
    if (all[rank].state == collective::RankProgress::State::left &&
        (where == Where::mesh || all[rank].sequence < mine.sequence))
      missed_.rank = static_cast<int>(rank);
}

/// The loop let out an error that an operation of the mesh may have ended in: then others have ended
/// the mesh, or this rank has found them missing. An error of another call unwinds what was under
/// way, and so gives the mesh up.
void LoopHost::judge_mesh(const Error& error) {
  const bool of_others = error.code() == Code::cancelled || error.code() == Code::worker_died ||
                         error.code() == Code::timed_out;
  if (!mesh_ || !group_ || !of_others || missed_.others) return;
  if (group_->is_over() && !group_->was_given_up()) missed(Where::mesh);
}

void LoopHost::run(const char* name, std::function<void(Worker&)> loop) {
  thread_ = std::thread([this, name, loop = std::move(loop)] {
    WorkerEvent end;
    try {
      if (await_begin()) {
        connect();
        const kernels::FlushDenormals flush;  // the loop computes here
        Worker worker(*this);
        loop(worker);
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
    push(std::move(end));
    leave(error);
  });
}

void LoopHost::push(WorkerEvent event) {
  {
    const std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
  }
  changed_.notify_all();
}

bool LoopHost::await_begin() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return begun_ || stop_.stop_requested(); });
  return begun_;
}

bool LoopHost::await_reply() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !replies_.empty(); });
  const bool go_on = replies_.front();
  replies_.pop_front();
  return go_on;
}

Taken LoopHost::take(int wait_ms) {
  Taken taken;
  taken.now = position();  // before the events: what happened until then is among them
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::chrono::milliseconds(wait_ms), [this] { return !events_.empty(); });
  taken.events.assign(std::make_move_iterator(events_.begin()),
                      std::make_move_iterator(events_.end()));
  events_.clear();
  return taken;
}

void LoopHost::begin() {
  {
    const std::lock_guard lock(mutex_);
    begun_ = true;
  }
  changed_.notify_all();
}

void LoopHost::reply(bool go_on) {
  {
    const std::lock_guard lock(mutex_);
    replies_.push_back(go_on);
  }
  changed_.notify_all();
}

}  // namespace internal
}  // namespace troupe::train
