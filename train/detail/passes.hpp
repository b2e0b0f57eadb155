/// PassBook: which batches of which epoch each pass over sharded data yields, also after a
/// restart. Worker::shard() uses it.
///
///     PassBook passes;
///     passes.resume({.passes = 1, .batches = 3});               // as the checkpoint says
///     const Pass pass = passes.begin({.samples = 64, .batch = 8, .per_epoch = 8, .epochs = 1});
///     passes.batch_done();                                      // one more of it
///     passes.end(pass.number);
///
/// A restarted loop makes the same passes in the same order. Passes that had ended before the
/// checkpoint yield nothing. The pass in which the checkpoint was made continues after it. The
/// next pass over the same data is the next epoch of its order.
#pragma once

#include "troupe/runtime/base/assert.hpp"
#include "troupe/train/checkpoint/folder/document.hpp"

#include <cstdint>
#include <map>
#include <tuple>

namespace troupe::train::internal {

/// Progress of a loop: passes that have ended, and batches of the pass after them.
struct PassCursor {
  std::uint64_t passes = 0;
  std::uint64_t batches = 0;
};

/// Request for one pass. `steps`, when not 0, overrides `epochs`; both are 0 or more.
struct PassRequest {
  std::uint64_t samples = 0, batch = 0, seed = 0;
  std::uint64_t per_epoch = 1;  ///< batches in an epoch
  std::uint64_t steps = 0;      ///< the step of the run after which the pass ends
  std::uint64_t epochs = 1;
};

struct Pass {
  std::uint64_t number = 0;   ///< from 1
  std::uint64_t epoch = 0;    ///< the epoch of the data's order in which the pass begins
  std::uint64_t done = 0;     ///< its batches that an earlier gang has trained on
  std::uint64_t batches = 0;  ///< in the whole pass; the largest int64 when `steps` ends the pass
};

class TROUPE_API PassBook {
 public:
  /// Sets the position of the restored checkpoint. Call it before the first pass.
  void resume(PassCursor cursor) noexcept { resumed_ = cursor; }
  /// Sets the data of the restored checkpoint, for begin() to compare. Call it before the first
  /// pass.
  void expect(const DataOrder& data) noexcept { expected_ = data; }
  /// Begins the next pass and ends the one before it. Throws InvalidArgument for the pass of a
  /// restored checkpoint over data of another size, order or batch.
  Pass begin(const PassRequest& request);
  void batch_done() noexcept { ++batches_; }
  /// Ends the pass `number`. Does nothing when `number` is an older pass than the present one.
  void end(std::uint64_t number) noexcept {
    if (number == begun_) open_ = false;
  }
  PassCursor cursor() const noexcept;
  /// Returns the data of the last pass, or those of the checkpoint before the first.
  const DataOrder& data() const noexcept { return begun_ == 0 ? expected_ : last_; }

 private:
  using Data = std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>;
  PassCursor resumed_;
  std::map<Data, std::uint64_t> epochs_;  // epochs begun, by samples, batch and seed
  std::uint64_t planned_steps_ = 0;       // of all passes begun, as if each had run to its end
  std::uint64_t begun_ = 0;
  std::uint64_t batches_ = 0;  // done in the present pass
  bool open_ = false;
  DataOrder expected_, last_;
};

}  // namespace troupe::train::internal
