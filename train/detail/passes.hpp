/// Which batches of which epoch each pass over sharded data yields, also after a restart.
///
///     PassBook passes;
///     passes.resume({.passes = 1, .batches = 3});               // as the checkpoint says
///     const Pass pass = passes.begin({.samples = 64, .batch = 8, .per_epoch = 8, .epochs = 1});
///     passes.batch_done();                                      // one more of it
///     passes.end(pass.number);
///
/// A loop that starts again makes the same passes in the same order: those that had ended yield
/// nothing, and the one that a checkpoint fell into goes on behind it. The next pass over the same
/// data is the next epoch of its order.
#pragma once

#include "troupe/runtime/base/assert.hpp"

#include <cstdint>
#include <map>
#include <tuple>

namespace troupe::train::internal {

/// How far a loop has come: passes that have ended, batches of the one after them.
struct PassCursor {
  std::uint64_t passes = 0;
  std::uint64_t batches = 0;
};

/// What a loop asks for. `steps` wins over `epochs`; both are 0 or more.
struct PassRequest {
  std::uint64_t samples = 0, batch = 0, seed = 0;
  std::uint64_t per_epoch = 1;  ///< batches
  std::uint64_t steps = 0;      ///< the step of the run after which the pass ends
  std::uint64_t epochs = 1;
};

struct Pass {
  std::uint64_t number = 0;   ///< from 1
  std::uint64_t epoch = 0;    ///< of the data's order, where the pass begins
  std::uint64_t done = 0;     ///< batches of it that an earlier gang has done
  std::uint64_t batches = 0;  ///< of the whole pass; the most there are when `steps` ends it
};

class TROUPE_API PassBook {
 public:
  /// Before the first pass.
  void resume(PassCursor cursor) noexcept { resumed_ = cursor; }
  /// Ends the pass before it.
  Pass begin(const PassRequest& request);
  void batch_done() noexcept { ++batches_; }
  /// Of an older pass than the present one: changes nothing.
  void end(std::uint64_t number) noexcept {
    if (number == begun_) open_ = false;
  }
  PassCursor cursor() const noexcept;

 private:
  using Data = std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>;
  PassCursor resumed_;
  std::map<Data, std::uint64_t> epochs_;  // that were begun, by samples, batch and seed
  std::uint64_t planned_steps_ = 0;       // of all passes begun, as if each had come to its end
  std::uint64_t begun_ = 0;
  std::uint64_t batches_ = 0;  // of the present pass
  bool open_ = false;
};

}  // namespace troupe::train::internal
