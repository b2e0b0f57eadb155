#include "troupe/train/worker.hpp"

#include "troupe/actors/collective/communicator.hpp"
#include "troupe/actors/collective/work.hpp"
#include "troupe/train/detail/training_loop.hpp"
#include "troupe/train/internal/reject.hpp"

namespace troupe::train {

int Worker::rank() const noexcept {
  return loop_->setup_.rank;
}
int Worker::world() const noexcept {
  return loop_->setup_.world;
}
long Worker::step() const noexcept {
  return loop_->position().step;
}
int Worker::incarnation() const noexcept {
  return loop_->setup_.incarnation;
}
std::stop_token Worker::stop_token() const {
  return loop_->stop_.get_token();
}
Context Worker::context() const {
  return Context::current();
}
void Worker::next_step() noexcept {
  loop_->next_step();
}
collective::Communicator* Worker::group() const noexcept {
  return loop_->group_.get();
}
const SavedModel& Worker::start() const noexcept {
  return loop_->setup_.start;
}
internal::PassBook& Worker::passes() noexcept {
  return loop_->passes_;
}

void Worker::all_reduce_mean(std::span<float> values) {
  loop_->operate("all_reduce_mean()", [&](collective::Communicator& group) {
    return group.all_reduce(values, collective::Reduce::mean);
  });
}

void Worker::all_reduce_sum(std::span<float> values) {
  loop_->operate("all_reduce_sum()",
                 [&](collective::Communicator& group) { return group.all_reduce(values); });
}

std::int64_t Worker::all_reduce_sum(std::int64_t value) {
  loop_->operate("all_reduce_sum()", [&](collective::Communicator& group) {
    return group.all_reduce(std::span(&value, 1));
  });
  return value;
}

double Worker::all_reduce_sum(double value) {
  loop_->operate("all_reduce_sum()", [&](collective::Communicator& group) {
    return group.all_reduce(std::span(&value, 1));
  });
  return value;
}

kernels::Device& Worker::device() {
  return loop_->device();
}
const Layout& Worker::layout() const noexcept {
  return loop_->setup_.layout;
}
collective::Mesh& Worker::mesh() {
  return mesh({.dp = layout().dp, .tp = layout().tp, .pp = layout().pp});
}
collective::Mesh& Worker::mesh(const collective::MeshShape& shape) {
  if (!loop_->mesh_) loop_->make_mesh(shape);
  const collective::MeshShape& made = loop_->mesh_->shape;
  if (made.dp != shape.dp || made.tp != shape.tp || made.pp != shape.pp)
    internal::reject("Worker::mesh() was called with another shape before: a gang has one mesh");
  return *loop_->mesh_;
}

bool Worker::report(const Metrics& metrics) {
  internal::WorkerEvent event;
  event.kind = internal::WorkerEvent::Kind::reported;
  event.at = loop_->position();
  if (rank() == 0) {
    event.metrics = metrics;
  } else {
    event.metrics = {.step = metrics.step, .loss = metrics.loss};
    const auto named = metrics.extra.find(loop_->setup_.metric);
    if (named != metrics.extra.end()) event.metrics.extra.insert(*named);
  }
  loop_->emit(std::move(event));
  if (!loop_->setup_.verdicts) return true;
  return loop_->verdict();
}

bool Worker::wants_checkpoint() {
  return loop_->wants_checkpoint();
}

void Worker::saved(SavedModel model) {
  const internal::PassCursor cursor = passes().cursor();
  model.passes = cursor.passes;
  model.batches = cursor.batches;
  internal::WorkerEvent event;
  event.kind = internal::WorkerEvent::Kind::saved;
  event.at = loop_->position();
  event.saved = std::move(model);
  loop_->emit(std::move(event));
}

void Worker::restored(std::uint64_t hash) {
  loop_->go_to(start().step);
  passes().resume({.passes = start().passes, .batches = start().batches});
  if (rank() != 0) return;
  internal::WorkerEvent event;
  event.kind = internal::WorkerEvent::Kind::restored;
  event.at = loop_->position();
  event.hash = hash;
  loop_->emit(std::move(event));
}

namespace internal {

void check_shard(const ShardOptions& options) {
  if (options.steps < 0)
    reject("ShardOptions.steps is " + std::to_string(options.steps) +
           ": give the step after which a pass ends, or 0 for whole epochs");
  if (options.epochs < 0)
    reject("ShardOptions.epochs is " + std::to_string(options.epochs) + ": give 0 or more");
}

}  // namespace internal
}  // namespace troupe::train
