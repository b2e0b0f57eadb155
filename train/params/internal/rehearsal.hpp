/// Rehearsal: plays a step of the engine with sizes instead of memory, for plan().
#pragma once

#include "troupe/train/internal/visits.hpp"
#include "troupe/train/params/index.hpp"
#include "troupe/train/params/internal/slab_pool.hpp"

#include <cstdint>
#include <deque>
#include <vector>

namespace troupe::train::internal {

/// Traffic of a rank's data-parallel group, in bytes times ranks, so that nothing is rounded.
struct Moved {
  std::int64_t all_reduce = 0, reduce_scatter = 0, all_gather = 0, norm = 0, padding = 0;
};

/// Makes the calls of Store that the engine makes in a step, in the same order. Units are
/// gathered one layer before they are read. With zero >= 2, at most kMostInFlight reductions are
/// in flight.
class Rehearsal {
 public:
  /// `weights` is the type of the weights. Throws InvalidArgument when the traffic overflows 64
  /// bits.
  Rehearsal(const Index& index, int zero, int micro, DType weights);

  /// Returns the most bytes of units in use and gradients in flight.
  std::int64_t peak() const noexcept { return pool_.peak(); }
  const Moved& moved() const noexcept { return moved_; }

 private:
  struct Slab {
    std::int64_t size = 0;
    std::int64_t bytes() const noexcept { return size; }
  };
  struct Unit {
    std::vector<int> completed;  // units whose gradients are complete after this unit's backward
    int gathered = 0;
    bool in_flight = false;
  };

  void repeat(const Moved& before, std::int64_t times);
  void forward();
  void backward(bool last);
  void ask_ahead();
  void enter(std::size_t unit);
  void leave(std::size_t unit);
  void begin_gradients(std::size_t unit);
  void submit(std::size_t unit);
  void finish_next();
  void update();

  std::int64_t bytes_of(std::size_t unit, std::int64_t element) const;
  void count(std::int64_t& counter, std::size_t unit, std::int64_t factor, std::int64_t element);
  bool has(std::size_t unit) const { return index_.units()[unit].size > 0; }

  const Index& index_;
  int zero_;
  std::int64_t weight_bytes_;  // per element
  SlabPool<Slab> pool_;
  UnitsOfLayers read_;
  std::vector<Unit> units_;
  Visits visits_;
  std::size_t asked_ = 0;
  std::deque<std::size_t> flights_;
  Moved moved_;
};

}  // namespace troupe::train::internal
