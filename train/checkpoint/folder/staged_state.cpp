#include "troupe/train/checkpoint/folder/staged_state.hpp"

#include "troupe/train/checkpoint/folder/share.hpp"

#include <algorithm>
#include <tuple>

namespace troupe::train {
namespace {

std::int64_t bytes_of(const PlannedTensor& tensor) {
  return tensor.place.global.count() * std::int64_t{sizeof(float)};
}

}  // namespace

StagePlan plan_stage(std::vector<PlannedTensor> tensors, int first, int dp, int tp) {
  std::sort(tensors.begin(), tensors.end(), [](const PlannedTensor& a, const PlannedTensor& b) {
    return std::tie(a.kind, a.name) < std::tie(b.kind, b.name);
  });
  std::vector<std::int64_t> bytes;
  for (const PlannedTensor& tensor : tensors) bytes.push_back(bytes_of(tensor));
  const std::vector<int> writers = share_of(bytes, dp * tp);
  StagePlan plan{.first = first, .ranks = dp * tp, .tensors = {}, .elements = {}};
  plan.elements.resize(static_cast<std::size_t>(plan.ranks));
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    PlannedTensor& from = tensors[t];
    StagedTensor& to = plan.tensors.emplace_back(
        StagedTensor{std::move(from.name), from.kind, std::move(from.place), writers[t], {}});
    const auto add = [&](int rank, int shard, Range range) {
      if (range.count <= 0) return;
      std::int64_t& at = plan.elements[static_cast<std::size_t>(rank)];
      to.pieces.push_back({rank, shard, range, at});
      at += range.count;
    };
    // Every tp rank has a tensor that is not divided. The writer's own copy is the one to take.
    const bool divided = to.place.shard.axis >= 0 && tp > 1;
    const int writer_tp = to.writer % tp, writer_dp = to.writer / tp;
    for (int shard = 0; shard < (divided ? tp : 1); ++shard) {
      const int column = divided ? shard : writer_tp;
      if (from.whole) {
        add(writer_dp * tp + column, shard, {0, to.place.local.count()});
        continue;
      }
      for (int d = 0; d < dp; ++d)
        add(d * tp + column, shard, from.owned[static_cast<std::size_t>(d)]);
    }
  }
  return plan;
}

}  // namespace troupe::train
