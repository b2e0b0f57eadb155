#include "troupe/train/params/index.hpp"

#include "troupe/train/internal/reject.hpp"
#include "troupe/train/internal/sizes.hpp"

#include <algorithm>

namespace troupe::train {
namespace {

using internal::reject;
using internal::require;
using internal::round_up;

constexpr std::int64_t kMostElements = std::int64_t{1} << 48;
constexpr std::int64_t kMostOfAll = std::int64_t{1} << 52;

void check_shape(const std::string& name, const Shape& shape) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) {
    if (size < 1) reject("tensor " + name + " has a dimension below 1: " + shape.text());
    if (count > kMostElements / size) reject("tensor " + name + " has more than 2^48 elements");
    count *= size;
  }
}

/// Returns the shape of this rank's part of the tensor.
Shape local_shape(const std::string& name, const Shape& global, const TensorShard& shard) {
  if (shard.axis < 0) return global;
  const auto refuse = [&](const std::string& why) { reject("tensor " + name + ": " + why); };
  if (shard.axis >= global.rank())
    refuse("axis " + std::to_string(shard.axis) + " is not one of " + global.text());
  if (shard.parts < 1 || shard.groups < 1 || shard.index < 0 || shard.index >= shard.parts)
    refuse("its shard is not one of a number of parts");
  if (shard.padded && shard.groups != 1) refuse("a padded shard has one group");
  const std::int64_t size = global[shard.axis];
  const std::int64_t pieces = static_cast<std::int64_t>(shard.parts) * shard.groups;
  if (size % pieces != 0 && !shard.padded)
    refuse("axis " + std::to_string(shard.axis) + " of " + global.text() + " does not divide by " +
           std::to_string(pieces));
  Shape local = global;
  local.set(shard.axis, (size + shard.parts - 1) / shard.parts);
  return local;
}

Shape zeros(int rank) {
  Shape shape;
  for (int i = 0; i < rank; ++i) shape.push_back(0);
  return shape;
}

}  // namespace

std::int64_t TensorPlace::size(int axis) const noexcept {
  if (!shard.padded || axis != shard.axis) return local[axis];
  return std::clamp<std::int64_t>(global[axis] - shard.index * local[axis], 0, local[axis]);
}

std::int64_t TensorPlace::count() const noexcept {
  std::int64_t count = 1;
  for (int axis = 0; axis < local.rank(); ++axis) count *= size(axis);
  return count;
}

int Index::begin_unit(std::string name) {
  require(!is_sealed(), "a unit was added to an index that is sealed");
  units_.push_back({.name = std::move(name), .tensors = {}, .tied = {}});
  return static_cast<int>(units_.size()) - 1;
}

UnitPlace& Index::open_unit(int unit) {
  require(!is_sealed(), "a tensor was added to an index that is sealed");
  if (unit < 0 || unit >= static_cast<int>(units_.size()))
    reject("the index has no unit " + std::to_string(unit));
  return units_[static_cast<std::size_t>(unit)];
}

TensorId Index::add(int unit, std::string name, const Shape& global, Group group,
                    const TensorShard& shard) {
  UnitPlace& place = open_unit(unit);
  if (find(name)) reject("two tensors are named " + name);
  check_shape(name, global);
  const Shape local = local_shape(name, global, shard);
  const auto id = static_cast<TensorId>(tensors_.size());
  names_.emplace(name, id);
  tensors_.push_back({std::move(name), global, local, group, shard, unit});
  place.tensors.push_back(id);
  return id;
}

TensorId Index::tie(int unit, TensorId tensor) {
  UnitPlace& place = open_unit(unit);
  if (tensor < 0 || tensor >= static_cast<TensorId>(tensors_.size()))
    reject("the index has no tensor " + std::to_string(tensor));
  TensorPlace use = (*this)[tensor];
  if (use.tied_to >= 0) reject("tensor " + use.name + " is a tied one itself");
  use.name += " in " + place.name;
  use.unit = unit;
  use.tied_to = tensor;
  const auto id = static_cast<TensorId>(tensors_.size());
  tensors_.push_back(std::move(use));
  place.tied.push_back(id);
  return id;
}

TensorId Index::add_copy(const TensorPlace& of) {
  require(!is_sealed(), "a tensor was added to an index that is sealed");
  if (find(of.name)) reject("two tensors are named " + of.name);
  const auto id = static_cast<TensorId>(tensors_.size());
  names_.emplace(of.name, id);
  TensorPlace& copy = tensors_.emplace_back(of);
  copy.unit = -1;
  copy.tied_to = -1;
  return id;
}

TensorId Index::tie_remote(TensorId tensor) {
  const TensorId id = tie((*this)[tensor].unit, tensor);
  tensors_[static_cast<std::size_t>(id)].remote = true;
  return id;
}

void Index::seal(const SealOptions& options) {
  require(!is_sealed(), "an index is sealed once");
  require(options.dp >= 1, "SealOptions.dp must be at least 1");
  dp_ = options.dp;
  std::int64_t all = 0;
  const auto count = [&all](std::int64_t elements) {
    all += elements;
    require(all <= kMostOfAll, "the tensors of a model have more than 2^52 elements");
  };
  for (const TensorPlace& tensor : tensors_) count(tensor.local.count());
  for (TensorPlace& tensor : tensors_) {
    if (!tensor.is_copy()) continue;
    tensor.offset = copy_size_;
    copy_size_ += round_up(tensor.local.count(), kAlign);
  }
  all = 0;
  for (UnitPlace& unit : units_) {
    std::int64_t end = 0;
    for (const TensorId id : unit.tensors) {
      TensorPlace& tensor = tensors_[static_cast<std::size_t>(id)];
      tensor.offset = round_up(end, kAlign);
      end = tensor.offset + tensor.local.count();
      unit.used += tensor.count();
    }
    unit.size = round_up(end, kChunk * dp_);
    count(unit.size);
  }
}

std::optional<TensorId> Index::find(std::string_view name) const {
  const auto found = names_.find(name);
  return found == names_.end() ? std::nullopt : std::optional(found->second);
}

Range Index::owned(int unit, int dp_rank) const {
  require(is_sealed(), "an index that is not sealed has no owners");
  require(dp_rank >= 0 && dp_rank < dp_, "the rank is not one of those that share the index");
  const std::int64_t count = units_.at(static_cast<std::size_t>(unit)).size / dp_;
  return {dp_rank * count, count};
}

std::vector<Box> Index::global(TensorId id) const {
  const TensorPlace& tensor = (*this)[id];
  Box box{zeros(tensor.global.rank()), tensor.global};
  const TensorShard& shard = tensor.shard;
  if (shard.axis < 0) return {box};
  const std::int64_t group = tensor.global[shard.axis] / shard.groups;
  const std::int64_t size = tensor.local[shard.axis] / shard.groups;
  box.size.set(shard.axis, shard.padded ? tensor.size(shard.axis) : size);
  std::vector<Box> boxes;
  if (box.size[shard.axis] == 0) return boxes;
  for (int g = 0; g < shard.groups; ++g) {
    box.first.set(shard.axis, g * group + shard.index * size);
    boxes.push_back(box);
  }
  return boxes;
}

std::int64_t Index::parameter_count() const noexcept {
  std::int64_t count = 0;
  for (const TensorPlace& tensor : tensors_)
    if (tensor.tied_to < 0 && !tensor.is_copy()) count += tensor.count();
  return count;
}

std::int64_t Index::slab_size() const noexcept {
  std::int64_t size = 0;
  for (const UnitPlace& unit : units_) size += unit.size;
  return size;
}

std::int64_t Index::tied_size() const noexcept {
  std::int64_t size = 0;
  for (const TensorPlace& tensor : tensors_)
    if (tensor.tied_to >= 0) size += tensor.local.count();
  return size;
}

}  // namespace troupe::train
