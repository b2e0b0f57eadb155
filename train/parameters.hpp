/// Where each parameter tensor lies in the one flat slab of a model. Parameters, gradients and both
/// moments of the optimizer use the same map.
///
///     ParameterMap map;
///     int weight = map.add("head.weight", {vocab, channels}, /*decay=*/true);  // forward order
///     map.seal();
///     float* w = slab.data() + map[weight].offset;
///
/// Tensors lie in reverse forward order, so that bucket 0 is the first whose gradients are complete
/// in a backward pass and its reduction can start while the rest is computed (Li et al. 2020, DDP).
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
  int bucket = 0;
};

/// A contiguous range of the slab that is reduced in one piece.
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
  /// Buckets are padded with zeros to a multiple of this, so that up to 16 ranks own equal,
  /// 16-byte-aligned parts.
  std::int64_t pad = 64;
};

class TROUPE_API ParameterMap {
 public:
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
  /// All buckets in the order in which backward completes them.
  const std::vector<Bucket>& buckets() const noexcept { return buckets_; }
  std::optional<int> find(std::string_view name) const;

 private:
  std::vector<Parameter> tensors_;
  std::vector<Bucket> buckets_;
  std::int64_t size_ = 0;
};

}  // namespace troupe::train
