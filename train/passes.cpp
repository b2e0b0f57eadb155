#include "troupe/train/detail/passes.hpp"

#include "troupe/train/internal/reject.hpp"

#include <algorithm>
#include <limits>
#include <string>

namespace troupe::train::internal {
namespace {

constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();

std::uint64_t product(std::uint64_t a, std::uint64_t b) noexcept {
  std::uint64_t result = 0;
  return __builtin_mul_overflow(a, b, &result) ? kMost : std::min(result, kMost);
}
std::uint64_t sum(std::uint64_t a, std::uint64_t b) noexcept {
  return a > kMost - std::min(b, kMost) ? kMost : a + b;
}

std::string text_of(const DataOrder& data) {
  return "batches of " + std::to_string(data.batch) + " from " + std::to_string(data.samples) +
         " samples in the order of seed " + std::to_string(data.seed);
}

}  // namespace

// Plans from the requests alone, and not from how far a pass came. A restarted loop then finds
// each pass in the same epoch as before.
Pass PassBook::begin(const PassRequest& request) {
  Pass pass;
  pass.number = ++begun_;
  last_ = {begun_, request.samples, request.batch, request.seed};
  if (expected_.pass == begun_ && expected_ != last_)
    reject("train: the checkpoint was made in " + text_of(expected_) + ", and this run has " +
           text_of(last_) + ": give the same data, batch and seed, or another run.folder");
  std::uint64_t& begun = epochs_[{request.samples, request.batch, request.seed}];
  pass.epoch = begun;
  std::uint64_t planned = 0, epochs = request.epochs;
  if (request.steps == 0) {
    planned = pass.batches = product(request.epochs, request.per_epoch);
  } else {
    pass.batches = kMost;
    if (request.steps > planned_steps_) planned = request.steps - planned_steps_;
    epochs = planned / request.per_epoch + (planned % request.per_epoch != 0 ? 1 : 0);
  }
  begun = sum(begun, epochs);
  planned_steps_ = sum(planned_steps_, planned);
  if (pass.number <= resumed_.passes)
    pass.done = pass.batches;
  else if (pass.number == resumed_.passes + 1)
    pass.done = std::min(pass.batches, resumed_.batches);
  batches_ = pass.done;
  open_ = true;
  return pass;
}

PassCursor PassBook::cursor() const noexcept {
  if (begun_ <= resumed_.passes) return resumed_;
  if (open_) return {begun_ - 1, batches_};
  return {begun_, 0};
}

}  // namespace troupe::train::internal
