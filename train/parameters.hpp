/// Where each parameter tensor lies in the one flat slab of a model. Parameters, gradients and both
/// moments of the optimizer use the same map.
///
///     ParameterMap map;
///     map.begin_unit();                                                        // a block, say
///     int weight = map.add("head.weight", {vocab, channels}, /*decay=*/true);  // forward order
///     map.seal();
///     float* w = slab.data() + map[weight].offset;
///
/// Units and their tensors lie in reverse forward order, so that bucket 0 is the first whose
/// gradients are complete in a backward pass and its reduction can start while the rest is computed
/// (Li et al. 2020, DDP).
#pragma once

#include "troupe/runtime/base/assert.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::train {

/// One tensor of the map; sizes in elements.
struct Parameter {
  std::string name;
  std::vector<std::int64_t> shape;
  bool decay = false;       ///< weight decay applies: matrices yes, biases and norms no
  std::int64_t size = 0;    ///< product of the shape
  std::int64_t offset = 0;  ///< first element in the slab
  int unit = 0;
  int bucket = 0;
};

/// Tensors that belong together: a block, the embedding, the head. A unit lies in one bucket.
struct Unit {
  std::int64_t offset = 0;
  std::int64_t size = 0;  ///< padding included
  int first_tensor = 0, end_tensor = 0;
};

/// A contiguous range of the slab that is reduced in one piece: whole units.
struct Bucket {
  std::int64_t offset = 0;
  std::int64_t size = 0;  ///< padding included
  int tensors = 0;
};

struct BucketOptions {
  /// A small first bucket starts the overlap early. 1 MiB.
  std::int64_t first_elements = 1 << 18;
  /// A bucket closes once it holds this much. 25 MiB: large enough to hide the latency.
  std::int64_t elements = 25 << 18;
  /// Units are padded with zeros to a multiple of this. 1,024: whole chunks of global_norm.
  std::int64_t pad = 1024;
};

class TROUPE_API ParameterMap {
 public:
  /// The tensors added from here on belong to a new unit, until the next call. A tensor added
  /// before the first call is a unit of its own.
  void begin_unit();
  /// Appends a tensor in forward order and returns its index. Throws InvalidArgument for a negative
  /// dimension, a second tensor of that name, a size past 2^48 elements, or after seal().
  int add(std::string name, std::vector<std::int64_t> shape, bool decay);
  /// Fixes offsets and buckets. Once.
  void seal(const BucketOptions& options = {});

  /// Elements of the slab, padding included; 0 before seal().
  std::int64_t size() const noexcept { return size_; }
  /// Elements that are parameters.
  std::int64_t parameter_count() const noexcept;
  const Parameter& operator[](int index) const { return tensors_[static_cast<std::size_t>(index)]; }
  /// All tensors in forward order.
  const std::vector<Parameter>& tensors() const noexcept { return tensors_; }
  /// All units in forward order.
  const std::vector<Unit>& units() const noexcept { return units_; }
  /// All buckets in the order in which backward completes them.
  const std::vector<Bucket>& buckets() const noexcept { return buckets_; }
  std::optional<int> find(std::string_view name) const;

 private:
  std::vector<Parameter> tensors_;
  std::vector<Unit> units_;
  std::vector<Bucket> buckets_;
  std::int64_t size_ = 0;
  bool unit_is_open_ = false;  // it has no tensor yet
  bool has_units_ = false;
};

}  // namespace troupe::train
