#include "troupe/train/engine/internal/partials.hpp"

#include <algorithm>

namespace troupe::train::internal {
namespace {

std::vector<Range> partial_ranges(const Index& index, const UnitPlace& unit) {
  std::vector<Range> ranges;
  for (const TensorId id : unit.tensors) {
    const TensorPlace& tensor = index[id];
    if (tensor.shard.partial) ranges.push_back({tensor.offset, tensor.local.count()});
  }
  return ranges;
}

std::int64_t count_of(const std::vector<Range>& ranges) {
  std::int64_t count = 0;
  for (const Range& range : ranges) count += range.count;
  return count;
}

}  // namespace

Partials::Partials(Store& store, kernels::Device& device, collective::Communicator* tp)
    : store_(&store), device_(&device), tp_(tp) {
  if (tp == nullptr) return;
  std::int64_t most = 0;
  for (const UnitPlace& unit : store.index().units()) {
    units_.push_back(partial_ranges(store.index(), unit));
    if (units_.back().size() > 1) most = std::max(most, count_of(units_.back()));
  }
  packed_ = device.allocate(static_cast<std::size_t>(most) * sizeof(float));
}

void Partials::copy(float* to, const float* from, std::int64_t count) {
  device_->copy(device_->compute(), to, from, static_cast<std::size_t>(count) * sizeof(float));
}

void Partials::pack(float* slab, const Ranges& ranges) {
  auto* next = static_cast<float*>(packed_.data());
  for (const Range& range : ranges) {
    copy(next, slab + range.first, range.count);
    next += range.count;
  }
}

void Partials::unpack(float* slab, const Ranges& ranges) {
  const auto* next = static_cast<const float*>(packed_.data());
  for (const Range& range : ranges) {
    copy(slab + range.first, next, range.count);
    next += range.count;
  }
}

void Partials::sum(int unit) {
  if (tp_ == nullptr) return;
  const Ranges& ranges = units_[static_cast<std::size_t>(unit)];
  if (ranges.empty()) return;
  auto* slab = static_cast<float*>(store_->gradients(unit).data);
  const bool packs = ranges.size() > 1;
  if (packs) pack(slab, ranges);
  const kernels::Buffer all{packs ? packed_.data() : slab + ranges.front().first, DType::f32,
                            count_of(ranges)};
  tp_->all_reduce(all, collective::Reduce::sum, {.after = device_->record(device_->compute())})
      .wait(*device_);
  if (packs) unpack(slab, ranges);
}

}  // namespace troupe::train::internal
