#include "troupe/train/params/shards.hpp"

#include "troupe/train/internal/reject.hpp"

#include <algorithm>

namespace troupe::train {
namespace {

/// A run of elements that is contiguous in the shard and in the whole tensor.
struct Stretch {
  std::int64_t local = 0, whole = 0, count = 0;
};

std::int64_t product(const Shape& shape, int first, int end) {
  std::int64_t count = 1;
  for (int axis = first; axis < end; ++axis) count *= shape[axis];
  return count;
}

/// Calls f(Stretch) for each run of the shard of rank `index`. Along the axis each group is
/// divided by itself. A shard that reaches beyond the end of its group ends with padding.
template <class F>
void for_each_stretch(const TensorPlace& tensor, int index, F&& f) {
  const TensorShard& shard = tensor.shard;
  if (shard.axis < 0) return f(Stretch{0, 0, tensor.global.count()});
  const std::int64_t outer = product(tensor.global, 0, shard.axis),
                     inner = product(tensor.global, shard.axis + 1, tensor.global.rank());
  const std::int64_t group = tensor.global[shard.axis] / shard.groups,
                     part = tensor.local[shard.axis] / shard.groups;
  const std::int64_t first = index * part, rows = std::clamp<std::int64_t>(group - first, 0, part);
  for (std::int64_t o = 0; o < outer; ++o)
    for (std::int64_t g = 0; g < shard.groups; ++g)
      f(Stretch{(o * shard.groups + g) * part * inner,
                ((o * shard.groups + g) * group + first) * inner, rows * inner});
}

void require_sizes(const TensorPlace& tensor, std::size_t local, std::size_t whole) {
  if (local != static_cast<std::size_t>(tensor.local.count()) ||
      whole != static_cast<std::size_t>(tensor.global.count()))
    internal::reject("tensor " + tensor.name + " is " + tensor.global.text() + ", and " +
                     tensor.local.text() + " on a rank: memory of " + std::to_string(whole) +
                     " and " + std::to_string(local) + " elements is not that");
}

}  // namespace

void add_shard(const TensorPlace& tensor, int index, std::span<const float> local,
               std::span<float> whole) {
  require_sizes(tensor, local.size(), whole.size());
  for_each_stretch(tensor, index, [&](const Stretch& part) {
    std::copy_n(local.data() + part.local, part.count, whole.data() + part.whole);
  });
}

void take_shard(const TensorPlace& tensor, std::span<const float> whole, std::span<float> local) {
  require_sizes(tensor, local.size(), whole.size());
  std::ranges::fill(local, 0.0f);
  for_each_stretch(tensor, tensor.shard.index, [&](const Stretch& part) {
    std::copy_n(whole.data() + part.whole, part.count, local.data() + part.local);
  });
}

}  // namespace troupe::train
