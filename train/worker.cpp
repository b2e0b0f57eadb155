#include "troupe/train/worker.hpp"

#include "troupe/actors/collective/shm.hpp"
#include "troupe/train/detail/gang.hpp"
#include "troupe/train/internal/meeting.hpp"

namespace troupe::train {

int Worker::rank() const noexcept {
  return host_->setup_.rank;
}
int Worker::world() const noexcept {
  return host_->setup_.world;
}
long Worker::step() const noexcept {
  return host_->step_;
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
  ++host_->step_;
}
const SavedModel& Worker::start() const noexcept {
  return host_->setup_.start;
}

void Worker::all_reduce_mean(std::span<float> values) {
  host_->guarded([&] {
    if (host_->group_) host_->group_->allreduce(values, collective::Reduce::mean);
  });
}

bool Worker::report(const Metrics& metrics) {
  if (rank() == 0) {
    internal::WorkerEvent event;
    event.kind = internal::WorkerEvent::Kind::reported;
    event.metrics = metrics;
    host_->push(std::move(event));
  }
  if (!host_->setup_.verdicts) return true;
  std::byte verdict{1};
  if (rank() == 0) verdict = host_->await_reply() ? std::byte{1} : std::byte{0};
  // The verdict is a person's or a scheduler's affair: it may take longer than a step.
  host_->guarded([&] {
    if (host_->group_) host_->group_->broadcast(std::span(&verdict, 1), 0);
  });
  return verdict == std::byte{1};
}

void Worker::saved(SavedModel model) {
  internal::WorkerEvent event;
  event.kind = internal::WorkerEvent::Kind::saved;
  event.saved = std::move(model);
  host_->push(std::move(event));
}

void Worker::restored(std::uint64_t hash) {
  host_->step_ = start().step;
  if (rank() != 0) return;
  internal::WorkerEvent event;
  event.kind = internal::WorkerEvent::Kind::restored;
  event.hash = hash;
  host_->push(std::move(event));
}

namespace internal {

LoopHost::LoopHost(WorkerSetup setup) : setup_(std::move(setup)) {}

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
  const Duration timeout = std::chrono::milliseconds(setup_.timeout_ms);
  const Time deadline = steady_now() + timeout;
  Fd memory;
  if (setup_.rank == 0) {
    memory = collective::create_shm_group({.size = setup_.world, .generation = setup_.generation});
    hand_out(setup_.meeting, memory, setup_.world - 1, deadline);
  } else {
    memory = fetch(setup_.meeting, deadline);
  }
  auto group = collective::join_shm_group(memory, setup_.rank, setup_.generation, timeout);
  const std::lock_guard lock(mutex_);
  group_ = std::move(group);
}

void LoopHost::guarded(const std::function<void()>& collective) {
  try {
    collective();
  } catch (...) {
    others_failed_ = true;
    throw;
  }
}

void LoopHost::run(std::function<void(Worker&)> loop) {
  thread_ = std::thread([this, loop = std::move(loop)] {
    WorkerEvent end;
    try {
      guarded([this] { connect(); });
      Worker worker(*this);
      loop(worker);
    } catch (const std::exception& error) {
      end.failed = true;
      end.by_others = others_failed_;
      end.error = error.what();
    } catch (...) {
      end.failed = true;
      end.error = "an exception that is no std::exception";
    }
    if (end.failed && group_) group_->abort("the loop of another rank threw: " + end.error);
    push(std::move(end));
  });
}

void LoopHost::push(WorkerEvent event) {
  {
    const std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
  }
  changed_.notify_all();
}

bool LoopHost::await_reply() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !replies_.empty(); });
  const bool go_on = replies_.front();
  replies_.pop_front();
  return go_on;
}

std::vector<WorkerEvent> LoopHost::take(int wait_ms) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::chrono::milliseconds(wait_ms), [this] { return !events_.empty(); });
  std::vector<WorkerEvent> events(std::make_move_iterator(events_.begin()),
                                  std::make_move_iterator(events_.end()));
  events_.clear();
  return events;
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
