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
/// Every rank runs the loop in a process of its own and must make the same calls in the same order.
/// The loop may block: it has a thread of its own, beside the one that serves its actor's mailbox.
/// That thread flushes subnormal numbers to zero.
#pragma once

#include "troupe/actors/collective/mesh.hpp"
#include "troupe/train/checkpoint.hpp"
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

/// Throws InvalidArgument in shard() when steps or epochs are negative, or the batch is 0.
struct ShardOptions {
  std::uint64_t batch = 32;  ///< samples per step over all ranks
  /// The step of the run, as Worker::step() counts, after which a pass ends; 0: after `epochs`.
  long steps = 0;
  long epochs = 1;         ///< of each pass
  std::uint64_t seed = 0;  ///< of the order
};

template <class Data>
class Shard;

/// For the thread of the loop only.
class TROUPE_API Worker {
 public:
  int rank() const noexcept;
  int world() const noexcept;
  /// The number of the present step, from 1; 0 before the first. Continues after a restore.
  long step() const noexcept;
  /// 0 in the first gang, and one more after each restart of it.
  int incarnation() const noexcept;
  /// Asked to stop when the gang is taken down.
  std::stop_token stop_token() const;
  Context context() const;

  /// This rank's part of the batches; ranks that differ in tp or pp of layout() alone have the same
  /// part. Each `for` over it is a pass: an epoch, or as many as the
  /// options say, and the next pass over the same data is the next epoch of its order, whether
  /// shard() is called again or not. After restore() the passes that had ended yield nothing, and
  /// the one in which the checkpoint was made goes on behind it: a loop makes the same passes in
  /// the same order each time it starts. Data has size() and batch(span of indices); a Ref is
  /// fetched once.
  template <class Data>
  Shard<Data> shard(const Ref<Data>& data, const ShardOptions& options = {}) {
    return {*this, std::make_shared<const Data>(context().get(data)), options};
  }
  template <class Data>
  Shard<Data> shard(const Data& data, const ShardOptions& options = {}) {
    return {*this, std::shared_ptr<const Data>(&data, [](const Data*) {}), options};
  }
  /// Begins the next step, for loops without a shard.
  void next_step() noexcept;

  /// The mean over all ranks, in place, the same bits on every rank. Throws WorkerDied, TimedOut or
  /// Cancelled when a rank is missing, and InvalidArgument when another rank made another call or
  /// gave another size; let it pass. A missing rank is a restart of the gang, the rest ends the
  /// run.
  void all_reduce_mean(std::span<float> values);

  /// The sum over all ranks, in place or as the result; otherwise as all_reduce_mean(). With
  /// unequal shares, sums of gradients that were divided by the count of the whole step are exact,
  /// and means of means are not:
  ///
  ///     const std::int64_t targets = w.all_reduce_sum(counted_targets(batch));
  ///     model.forward_backward(batch, /*scale=*/1.0f / targets);
  ///     w.all_reduce_sum(model.gradients());
  void all_reduce_sum(std::span<float> values);
  std::int64_t all_reduce_sum(std::int64_t value);
  double all_reduce_sum(double value);

  /// What this rank computes on. The first of the GPUs that are reserved for it, which is the first
  /// that its process sees; without any, the CPU with as many threads as CPUs are reserved for it,
  /// and at least one. The first call makes it. Throws Infeasible, one sentence, where a GPU is
  /// reserved that CUDA does not find: that ends the run.
  kernels::Device& device();

  /// FitOptions::layout, with the dp that the gang's size gives.
  const Layout& layout() const noexcept;
  /// The gang as a mesh in the shape of layout(), for an Engine; the world's ranks in their order.
  /// Every rank calls it; the first call makes it, and it lasts as long as the loop runs. Blocks
  /// for the other ranks. Its groups are for memory of device(): on GPUs those of NCCL, one rank
  /// for each GPU. Throws as all_reduce_mean(), as device(), and Infeasible without NCCL. Errors of
  /// its communicators count as those of all_reduce_mean() do.
  collective::Mesh& mesh();
  /// The same in a shape of the loop's own, the same on every rank. Throws InvalidArgument as well
  /// when shape.ranks() is not world() or an earlier call gave another shape.
  collective::Mesh& mesh(const collective::MeshShape& shape);

  /// Every rank calls it. The loss that counts is the mean over the ranks that reported this step,
  /// the other metrics are rank 0's; FitOptions::metric is reduced as its options say. Result:
  /// false when the gang should end here (a trial that its scheduler stops), on every rank alike.
  /// Blocks only inside a trial, without a bound until its scheduler has decided. Throws Cancelled
  /// when another rank ends meanwhile, so that no decision comes.
  bool report(const Metrics& metrics);

  /// Every rank calls it; rank 0 writes. The parts are what restore() will be given. An Engine is
  /// saved as its Snapshot, which a gang of another size and layout may start from; the parts
  /// beside it are rank 0's.
  template <class... M>
  void checkpoint(M&&... parts) {
    if (rank() == 0)
      saved(save_model(context(), step(), parts...));
    else
      (static_cast<void>(internal::stored(parts)), ...);  // all ranks give their parts of an engine
  }
  /// Loads the checkpoint that this gang starts from, if there is one, and goes on from its step.
  /// Every rank calls it. Result: whether there was one. Before shard().
  template <class... M>
  bool restore(M&... parts) {
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
  /// Its place among those that divide the batch.
  int batch_rank() const noexcept { return rank() / layout().tp % layout().dp; }
  const SavedModel& start() const noexcept;
  void saved(SavedModel model);
  void restored(std::uint64_t hash);
  internal::TrainingLoop* loop_;
};

namespace internal {
/// Throws InvalidArgument for negative ones.
TROUPE_API void check_shard(const ShardOptions& options);
}  // namespace internal

/// The batches of one rank; each begin() starts a pass, and each step of it is a training step.
/// For one pass at a time: a new one ends the one before it.
template <class Data>
class Shard {
  /// A pass ends with the last iterator on it, also where the loop is left early.
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
