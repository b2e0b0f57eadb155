#include "troupe/train/sampler.hpp"

#include "troupe/kernels/philox/philox.hpp"
#include "troupe/train/internal/reject.hpp"

#include <algorithm>
#include <bit>

namespace troupe::train {
namespace {

/// Returns the image of x in a keyed permutation of [0, 4^half_bits).
std::uint64_t feistel(std::uint64_t x, int half_bits, std::uint64_t seed, std::uint64_t epoch) {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits) - 1;
  std::uint64_t left = x >> half_bits, right = x & mask;
  for (std::uint32_t round = 0; round < 4; ++round) {
    const auto bits = kernels::philox4x32(
        {static_cast<std::uint32_t>(right), round, static_cast<std::uint32_t>(epoch),
         static_cast<std::uint32_t>(epoch >> 32)},
        {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
    const std::uint64_t next = left ^ (bits[0] & mask);
    left = right;
    right = next;
  }
  return left << half_bits | right;
}

}  // namespace

std::uint64_t permuted(std::uint64_t i, std::uint64_t n, std::uint64_t seed,
                       std::uint64_t epoch) noexcept {
  if (n <= 1) return 0;
  // The network permutes [0, 4^half_bits), fewer than four times n values. An image outside [0,
  // n) is permuted again until it falls inside.
  const int half_bits = (std::bit_width(n - 1) + 1) / 2;
  do i = feistel(i, half_bits, seed, epoch);
  while (i >= n);
  return i;
}

Sampler::Sampler(std::uint64_t samples, const SamplerOptions& options)
    : samples_(samples),
      seed_(options.seed),
      batch_(options.global_batch),
      drop_last_(options.drop_last),
      shuffle_(options.shuffle) {
  internal::require(samples > 0, "a sampler needs at least one sample");
  internal::require(samples <= std::uint64_t{1} << 62, "a sampler takes at most 2^62 samples");
  internal::require(options.global_batch > 0, "SamplerOptions.global_batch must be positive");
  if (drop_last_ && samples < options.global_batch)
    internal::reject("the dataset has " + std::to_string(samples) +
                     " samples, fewer than one global batch of " +
                     std::to_string(options.global_batch));
}

std::uint64_t Sampler::begin_batch() {
  const std::uint64_t left = samples_ - position_;
  if (left == 0 || (drop_last_ && left < batch_)) {
    ++epoch_;
    position_ = 0;
  }
  return std::min(batch_, samples_ - position_);
}

std::vector<std::uint64_t> Sampler::next(int rank, int world) {
  internal::require(world > 0 && rank >= 0 && rank < world, "rank must be in [0, world)");
  const std::uint64_t size = begin_batch();
  const auto r = static_cast<std::uint64_t>(rank), w = static_cast<std::uint64_t>(world);
  std::vector<std::uint64_t> share;
  for (std::uint64_t i = size * r / w; i < size * (r + 1) / w; ++i) {
    const std::uint64_t place = position_ + i;
    share.push_back(shuffle_ ? permuted(place, samples_, seed_, epoch_) : place);
  }
  position_ += size;
  return share;
}

void Sampler::skip(std::uint64_t batches) {
  const std::uint64_t per_epoch = batches_per_epoch();
  if (position_ == 0 && per_epoch != 0 && batches > per_epoch) {
    const std::uint64_t whole = (batches - 1) / per_epoch;  // the loop below skips the last epoch
    epoch_ += whole;
    batches -= whole * per_epoch;
  }
  for (; batches > 0; --batches) position_ += begin_batch();
}

void Sampler::seek(std::uint64_t epoch, std::uint64_t batches) noexcept {
  const std::uint64_t per_epoch = batches_per_epoch();
  epoch_ = per_epoch == 0 ? epoch : epoch + batches / per_epoch;
  position_ = per_epoch == 0 ? 0 : batches % per_epoch * batch_;
}

std::uint64_t Sampler::batches_per_epoch() const noexcept {
  if (batch_ == 0) return 0;
  return drop_last_ ? samples_ / batch_ : (samples_ + batch_ - 1) / batch_;
}

}  // namespace troupe::train
