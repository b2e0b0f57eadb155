/// Sampler: which samples a rank trains on at each step. Every rank computes the same global
/// order for itself.
///
///     Sampler sampler(data.size(), {.seed = 7, .global_batch = 32});
///     while (...) model.forward_backward(data.batch(sampler.next(rank, world)));
///
/// The order depends on (seed, epoch) only. A global batch is the next `global_batch` samples of
/// the order, cut into `world` consecutive shares. Any number of workers therefore sees the same
/// batches in the same order; only the cut differs.
#pragma once

#include "troupe/runtime/base/assert.hpp"

#include <cstdint>
#include <tuple>
#include <vector>

namespace troupe::train {

/// Returns element i of a random permutation of [0, n), without storing it. A four-round Feistel
/// network of Philox permutes the next power of four; the network is applied again until the
/// result is below n (cycle walking, Black and Rogaway 2002). Preconditions: i < n, n <= 2^62.
TROUPE_API std::uint64_t permuted(std::uint64_t i, std::uint64_t n, std::uint64_t seed,
                                  std::uint64_t epoch) noexcept;

struct SamplerOptions {
  std::uint64_t seed = 0;
  std::uint64_t global_batch = 32;  ///< samples per step over all workers
  /// Skip the rest of an epoch that does not fill a batch. When false, the last batch is short
  /// and the sizes of its shares differ by at most one; a share may be empty.
  bool drop_last = true;
  bool shuffle = true;
};

class TROUPE_API Sampler {
 public:
  Sampler() = default;
  /// Throws InvalidArgument when there are no samples or more than 2^62, when the batch is 0, or
  /// when drop_last would drop all samples.
  Sampler(std::uint64_t samples, const SamplerOptions& options);

  /// Returns this rank's share of the next global batch, and starts the next epoch by itself.
  /// Every rank must call it once per step. Throws InvalidArgument unless 0 <= rank < world.
  std::vector<std::uint64_t> next(int rank, int world);
  /// Skips batches without computing them.
  void skip(std::uint64_t batches);
  /// Moves to a batch of an epoch, both counted from 0. Batches beyond the epoch count into the
  /// next ones.
  void seek(std::uint64_t epoch, std::uint64_t batches) noexcept;

  std::uint64_t epoch() const noexcept { return epoch_; }
  /// Returns how many samples of this epoch were handed out. Together with epoch() it is the
  /// whole state.
  std::uint64_t position() const noexcept { return position_; }
  std::uint64_t batches_per_epoch() const noexcept;

  friend auto fields(Sampler& s) {
    return std::tie(s.samples_, s.seed_, s.batch_, s.drop_last_, s.shuffle_, s.epoch_, s.position_);
  }
  friend auto fields(const Sampler& s) {
    return std::tie(s.samples_, s.seed_, s.batch_, s.drop_last_, s.shuffle_, s.epoch_, s.position_);
  }

 private:
  /// Starts the next epoch if the present one has no batch left. Returns the size of the batch at
  /// position_.
  std::uint64_t begin_batch();

  std::uint64_t samples_ = 0, seed_ = 0, batch_ = 0;
  bool drop_last_ = true, shuffle_ = true;
  std::uint64_t epoch_ = 0, position_ = 0;
};

}  // namespace troupe::train
