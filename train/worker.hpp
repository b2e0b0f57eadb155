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
#pragma once

#include "troupe/train/checkpoint.hpp"
#include "troupe/train/metrics.hpp"
#include "troupe/train/sampler.hpp"

#include <chrono>
#include <memory>
#include <span>
#include <stop_token>

namespace troupe::train {

namespace internal {
class LoopHost;
}

struct ShardOptions {
  std::uint64_t batch = 32;  ///< samples per step over all ranks
  long steps = 0;            ///< ends after this step; 0: after `epochs`
  long epochs = 1;
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

  /// This rank's part of the batches: a range that ends after the last step and goes on where a
  /// restored checkpoint was. Data has size() and batch(span of indices); a Ref is fetched once.
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
  /// Cancelled when a rank is missing; let it pass, the gang is then restarted.
  void all_reduce_mean(std::span<float> values);

  /// Every rank calls it; rank 0's metrics count. Result: false when the gang should end here (a
  /// trial that its scheduler stops), on every rank alike. Blocks only inside a trial.
  bool report(const Metrics& metrics);

  /// Every rank calls it; rank 0 writes. The parts are what restore() will be given.
  template <class... M>
  void checkpoint(const M&... parts) {
    if (rank() == 0) saved(save_model(context(), step(), parts...));
  }
  /// Loads the checkpoint that this gang starts from, if there is one, and goes on from its step.
  /// Result: whether there was one. Before shard().
  template <class... M>
  bool restore(M&... parts) {
    if (!start()) return false;
    restored(load_model(context(), start(), std::chrono::seconds(30), parts...));
    return true;
  }

 private:
  friend class internal::LoopHost;
  explicit Worker(internal::LoopHost& host) noexcept : host_(&host) {}
  const SavedModel& start() const noexcept;
  void saved(SavedModel model);
  void restored(std::uint64_t hash);
  internal::LoopHost* host_;
};

/// The batches of one rank, in a single pass; each step of the iteration is a training step.
template <class Data>
class Shard {
 public:
  using Batch = decltype(std::declval<const Data&>().batch(std::span<const std::uint64_t>()));
  Shard(Worker& worker, std::shared_ptr<const Data> data, const ShardOptions& options)
      : worker_(&worker),
        data_(std::move(data)),
        sampler_(data_->size(), {.seed = options.seed, .global_batch = options.batch}),
        last_(options.steps != 0
                  ? options.steps
                  : options.epochs * static_cast<long>(sampler_.batches_per_epoch())) {
    sampler_.skip(static_cast<std::uint64_t>(worker.step()));
  }
  struct End {};
  class Iterator {
   public:
    explicit Iterator(Shard& shard) : shard_(&shard) { ++*this; }
    const Batch& operator*() const { return *shard_->batch_; }
    Iterator& operator++() {
      shard_->advance();
      return *this;
    }
    bool operator==(End) const noexcept { return !shard_->batch_.has_value(); }

   private:
    Shard* shard_;
  };
  Iterator begin() { return Iterator(*this); }
  End end() const noexcept { return {}; }
  const Data& data() const noexcept { return *data_; }

 private:
  void advance() {
    batch_.reset();
    if (worker_->step() >= last_) return;
    worker_->next_step();
    const std::vector<std::uint64_t> indices = sampler_.next(worker_->rank(), worker_->world());
    batch_.emplace(data_->batch(std::span<const std::uint64_t>(indices)));
  }
  Worker* worker_;
  std::shared_ptr<const Data> data_;
  Sampler sampler_;
  long last_;
  std::optional<Batch> batch_;
};

}  // namespace troupe::train
