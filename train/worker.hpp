/// Worker: one rank of a gang, as the training loop sees it.
///
///     void train_loop(train::Worker& w, Config cfg, Ref<Dataset> data) {
///       Mlp model(/*seed=*/1);
///       w.restore(model);                                // no-op on a first start
///       for (const auto& batch : w.shard(data, {.batch = cfg.batch})) {
///         double loss = model.forward_backward(batch);
///         w.all_reduce_mean(model.gradients());
///         model.sgd(cfg.lr);
///         w.report({.step = w.step(), .loss = loss});
///         if (w.step() % 100 == 0) w.checkpoint(model);
///       }
///     }
///
/// Every rank runs the loop in a process of its own. All ranks must make the same calls in the
/// same order. Ranks that wait for each other in different calls end the run within a second, and
/// the error names the calls. The loop may block, because its thread is not the one that serves its
/// actor's mailbox. The loop's thread flushes subnormal numbers to zero.
#pragma once

#include "troupe/actors/collective/call.hpp"
#include "troupe/actors/collective/mesh.hpp"
#include "troupe/train/checkpoint.hpp"
#include "troupe/train/detail/folder_save.hpp"
#include "troupe/train/detail/passes.hpp"
#include "troupe/train/layout.hpp"
#include "troupe/train/metrics.hpp"
#include "troupe/train/sampler.hpp"

#include <chrono>
#include <memory>
#include <span>
#include <stop_token>

namespace troupe::train {

namespace internal {
class TrainingLoop;
}

/// Options of Worker::shard(), which throws InvalidArgument when steps or epochs are negative, or
/// the batch is 0.
struct ShardOptions {
  std::uint64_t batch = 32;  ///< samples per step over all ranks
  /// The step of the run, as Worker::step() counts it, after which a pass ends; 0: `epochs` end
  /// it.
  long steps = 0;
  long epochs = 1;         ///< epochs of each pass
  std::uint64_t seed = 0;  ///< of the sample order
};

template <class Data>
class Shard;

/// The interface of a training loop to its gang. Use it on the loop's thread only.
class TROUPE_API Worker {
 public:
  int rank() const noexcept;
  int world() const noexcept;
  /// The number of the present step, from 1; 0 before the first. Continues from the step of a
  /// restored checkpoint.
  long step() const noexcept;
  /// 0 in the first gang, plus one for each restart and each move.
  int incarnation() const noexcept;
  /// Returns a token whose stop is requested when the gang is taken down.
  std::stop_token stop_token() const;
  Context context() const;

  /// Returns this rank's part of the batches. Ranks of the same dp index get the same part. Data
  /// has size() and batch(span of indices); a Ref is fetched once.
  ///
  /// Each `for` over the shard is a pass: one epoch, or as many epochs or steps as the options
  /// say. The next pass over the same data is the next epoch of its order, even through another
  /// call of shard(). After restore(), passes that had ended yield nothing, and the pass in which
  /// the checkpoint was made continues after it. A loop must therefore make the same passes in
  /// the same order each time it starts.
  template <class Data>
  Shard<Data> shard(const Ref<Data>& data, const ShardOptions& options = {}) {
    return {*this, std::make_shared<const Data>(context().get(data)), options};
  }
  template <class Data>
  Shard<Data> shard(const Data& data, const ShardOptions& options = {}) {
    return {*this, std::shared_ptr<const Data>(&data, [](const Data*) {}), options};
  }
  /// Begins the next step. For loops without a shard.
  void next_step() noexcept;

  /// Replaces the values by their means over all ranks; every rank gets the same bits. Throws
  /// WorkerDied, TimedOut or Cancelled when a rank is missing. Throws InvalidArgument when
  /// another rank made another call or gave another size. Do not catch these: a missing rank
  /// restarts the gang, and the other errors end the run.
  void all_reduce_mean(std::span<float> values);

  /// Returns the sum over all ranks, or replaces the values by their sums; otherwise like
  /// all_reduce_mean(). When ranks have unequal shares, divide each gradient by the count of the
  /// whole step and sum: the result is exact, unlike a mean of means.
  ///
  ///     const std::int64_t targets = w.all_reduce_sum(counted_targets(batch));
  ///     model.forward_backward(batch, /*scale=*/1.0f / targets);
  ///     w.all_reduce_sum(model.gradients());
  void all_reduce_sum(std::span<float> values);
  std::int64_t all_reduce_sum(std::int64_t value);
  double all_reduce_sum(double value);

  /// Returns the device that this rank computes on; the first call makes it. With reserved GPUs
  /// it is the first of them, which is the first that the process sees. Otherwise it is the CPU,
  /// with one thread for each reserved CPU and at least one. Throws Infeasible, one sentence,
  /// when a GPU is reserved that CUDA does not find. This error ends the run.
  kernels::Device& device();

  /// Returns FitOptions::layout, with the dp that the size of the gang gives.
  const Layout& layout() const noexcept;
  /// Returns the gang as a mesh in the shape of layout(), for an Engine. Ranks keep the order of
  /// the world. Every rank calls it and blocks for the others. The first call makes the mesh,
  /// which lasts as long as the loop runs. Its groups are for memory of device(): on GPUs they
  /// are NCCL groups with one rank for each GPU. Throws like all_reduce_mean() and like device(),
  /// and Infeasible when there is no NCCL. Errors of its communicators count like those of
  /// all_reduce_mean().
  collective::Mesh& mesh();
  /// Like mesh(), in a shape that the loop chooses, the same on every rank. Also throws
  /// InvalidArgument when shape.ranks() is not world() or an earlier call gave another shape.
  collective::Mesh& mesh(const collective::MeshShape& shape);

  /// Reports the metrics of a step. Every rank calls it. The reported loss is the mean over the
  /// ranks that reported this step, FitOptions::metric is reduced as the options say, and other
  /// metrics are rank 0's. Returns false, on every rank alike, when the gang should end here
  /// because the scheduler of its trial stops it. Blocks only inside a trial, without a bound,
  /// until the scheduler has decided. Throws Cancelled when another rank ends meanwhile, because
  /// then no decision comes.
  bool report(const Metrics& metrics);

  /// Saves the parts for restore(). Every rank calls it; rank 0 writes, and parts that are not
  /// engines are rank 0's. An Engine is saved as its Snapshot, from which a gang of another size
  /// and layout may start.
  ///
  /// In a run with a folder each rank copies its share of the engine and returns; a thread writes
  /// it. Waits first for the save before, at most half of FitOptions::timeout; then all ranks
  /// leave this checkpoint out together, and Fit::failures() says so. Throws InvalidArgument for
  /// two engines.
  template <class... M>
  void checkpoint(M&&... parts) {
    const collective::Call call = naming("checkpoint()");
    if (to_folder()) return save_to_folder(parts...);
    if (rank() == 0)
      saved(save_model(context(), step(), parts...));
    else
      (static_cast<void>(internal::stored(parts)), ...);  // an engine's snapshot() is collective
  }
  /// Returns whether the loop should call checkpoint() after this step: every
  /// FitOptions::run.every steps, and when the gang is about to move. Every rank calls it, after
  /// the same steps, and all get the same answer. Ranks agree four times a second by a sum of 8
  /// bytes, which may throw like all_reduce_sum(); other calls do not communicate. A gang whose
  /// loop never asks moves after its next checkpoint.
  bool wants_checkpoint();
  /// Loads the checkpoint that this gang starts from, if there is one, and sets step() to its
  /// step. Every rank calls it, before shard(). Returns whether there was a checkpoint.
  template <class... M>
  bool restore(M&... parts) {
    const collective::Call call = naming("restore()");
    if (to_folder()) {
      const std::shared_ptr<const FolderCheckpoint> from = open_start();
      if (!from) return false;
      internal::load_folder(from, parts...);
      resume(from->document());
      return true;
    }
    if (!start()) return false;
    restored(load_model(context(), start(), std::chrono::seconds(30), parts...));
    return true;
  }

 private:
  friend class internal::TrainingLoop;
  template <class Data>
  friend class Shard;
  explicit Worker(internal::TrainingLoop& loop) noexcept : loop_(&loop) {}
  internal::PassBook& passes() noexcept;
  /// Returns this rank's dp index.
  int batch_rank() const noexcept { return rank() / layout().tp % layout().dp; }
  /// Gives its name to the collective calls of the parts.
  collective::Call naming(const char* name) const noexcept {
    return {group(), name, collective::Call::Made::by_some_rank};
  }
  collective::Communicator* group() const noexcept;
  const SavedModel& start() const noexcept;
  void saved(SavedModel model);
  void restored(std::uint64_t hash);

  // Runs with a folder. worker_folder.cpp
  bool to_folder() const noexcept;
  template <class... M>
  void save_to_folder(M&... parts) {
    internal::FolderSave save;
    save.document.engine = internal::engine_part<std::remove_cv_t<M>...>();
    save.document.types = internal::types_of<std::remove_cv_t<M>...>();
    if (!begin_save()) return;
    (stage(parts), ...);
    if (rank() == 0) save.parts = internal::encode_others(parts...);
    start_save(std::move(save));
  }
  /// Returns false when all ranks leave the checkpoint out.
  bool begin_save();
  template <class M>
  void stage(const M&) noexcept {}
  void stage(Engine& engine);
  void start_save(internal::FolderSave save);
  /// Returns the newest checkpoint that is sound on all ranks; null when there is none.
  std::shared_ptr<const FolderCheckpoint> open_start();
  void resume(const CheckpointDocument& document);

  internal::TrainingLoop* loop_;
};

namespace internal {
/// Throws InvalidArgument when steps or epochs are negative.
TROUPE_API void check_shard(const ShardOptions& options);
}  // namespace internal

/// The batches of one rank. Each begin() starts a pass, and each iteration is a training step.
/// Supports one pass at a time: a new pass ends the one before it.
template <class Data>
class Shard {
  /// Ends its pass when the last iterator on it is gone, also when the loop leaves early.
  struct Open {
    Open(Worker& w, std::uint64_t n) noexcept : worker(w), number(n) {}
    Open(const Open&) = delete;
    Open& operator=(const Open&) = delete;
    ~Open() { worker.passes().end(number); }
    Worker& worker;
    std::uint64_t number;
  };

 public:
  using Batch = decltype(std::declval<const Data&>().batch(std::span<const std::uint64_t>()));
  Shard(Worker& worker, std::shared_ptr<const Data> data, const ShardOptions& options)
      : worker_(&worker),
        data_(std::move(data)),
        options_(options),
        sampler_(data_->size(), {.seed = options.seed, .global_batch = options.batch}) {
    internal::check_shard(options);
  }
  struct End {};
  class Iterator {
   public:
    explicit Iterator(Shard& shard)
        : shard_(&shard), open_(std::make_shared<Open>(*shard.worker_, shard.start())) {
      ++*this;
    }
    const Batch& operator*() const { return *shard_->batch_; }
    Iterator& operator++() {
      shard_->advance();
      return *this;
    }
    bool operator==(End) const noexcept { return !shard_->batch_.has_value(); }

   private:
    Shard* shard_;
    std::shared_ptr<const Open> open_;
  };
  Iterator begin() { return Iterator(*this); }
  End end() const noexcept { return {}; }
  const Data& data() const noexcept { return *data_; }

 private:
  std::uint64_t start() {
    pass_ = worker_->passes().begin({.samples = data_->size(),
                                     .batch = options_.batch,
                                     .seed = options_.seed,
                                     .per_epoch = sampler_.batches_per_epoch(),
                                     .steps = static_cast<std::uint64_t>(options_.steps),
                                     .epochs = static_cast<std::uint64_t>(options_.epochs)});
    sampler_.seek(pass_.epoch, pass_.done);
    return pass_.number;
  }
  void advance() {
    batch_.reset();
    if (pass_.done == pass_.batches) return;
    if (options_.steps != 0 && worker_->step() >= options_.steps) return;
    ++pass_.done;
    worker_->passes().batch_done();
    worker_->next_step();
    const std::vector<std::uint64_t> indices =
        sampler_.next(worker_->batch_rank(), worker_->layout().dp);
    batch_.emplace(data_->batch(std::span<const std::uint64_t>(indices)));
  }
  Worker* worker_;
  std::shared_ptr<const Data> data_;
  ShardOptions options_;
  Sampler sampler_;
  internal::Pass pass_;
  std::optional<Batch> batch_;
};

}  // namespace troupe::train
