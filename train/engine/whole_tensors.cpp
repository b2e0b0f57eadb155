#include "troupe/train/engine/internal/whole_tensors.hpp"

#include "troupe/train/engine/internal/totals.hpp"
#include "troupe/train/params/shards.hpp"

#include <array>
#include <cstring>

namespace troupe::train::internal {
namespace {

std::size_t elements(const Shape& shape) {
  return static_cast<std::size_t>(shape.count());
}

}  // namespace

WholeTensors::WholeTensors(Parts& parts) : parts_(&parts) {
  const int ranks = parts.stages().ranks;
  const int count = ranks * static_cast<int>(parts.stages().stages.size());
  int number = 0;
  for (const Stage& stage : stages_of(parts.model, count))
    ranks_.insert(ranks_.end(), static_cast<std::size_t>(stage.size()),
                  rank_of_stage(number++, ranks));
}

std::vector<std::vector<float>> WholeTensors::read(int unit, Part part) {
  const UnitPlace& place = parts_->index.units()[static_cast<std::size_t>(unit)];
  std::vector<std::vector<float>> tensors;
  if (place.size == 0) return tensors;
  const auto size = static_cast<std::size_t>(place.size);
  slab_.resize(size);
  parts_->store.read_whole(unit, part, slab_);
  collective::Communicator* tp = parts_->mesh.tp.get();
  if (tp != nullptr) {
    all_.resize(size * static_cast<std::size_t>(tp->size()));
    tp->all_gather(slab_, all_).wait();
  }
  const std::vector<float>& shards = tp == nullptr ? slab_ : all_;
  for (const TensorId id : place.tensors) {
    const TensorPlace& tensor = parts_->index[id];
    std::vector<float>& whole = tensors.emplace_back(elements(tensor.global));
    const std::size_t shards_of = tensor.shard.axis < 0 ? 1 : shards.size() / size;
    for (std::size_t r = 0; r < shards_of; ++r)
      add_shard(tensor, static_cast<int>(r),
                std::span(shards).subspan(r * size + static_cast<std::size_t>(tensor.offset),
                                          elements(tensor.local)),
                whole);
    compare(tensor, shards);
  }
  return tensors;
}

void WholeTensors::compare(const TensorPlace& tensor, std::span<const float> shards) {
  if (tensor.shard.axis >= 0 || !differs_.empty()) return;
  const float* first = shards.data() + tensor.offset;
  for (std::size_t at = slab_.size(); at < shards.size(); at += slab_.size()) {
    if (std::memcmp(first, first + at, elements(tensor.local) * sizeof(float)) == 0) continue;
    differs_ = tensor.name;
    differing_rank_ = static_cast<int>(at / slab_.size());
    return;
  }
}

std::string WholeTensors::difference() {
  const collective::MeshShape& shape = parts_->mesh.shape;
  if (shape.tp == 1) return {};
  // Send the tensor's number in the catalogue, which is the same on all ranks; -1 for none.
  std::int64_t number = 0, mine = -1;
  for (const auto& unit : parts_->catalogue)
    for (const CatalogueTensor& tensor : unit) {
      if (tensor.name == differs_) mine = number;
      ++number;
    }
  const std::array<std::int64_t, 2> sent = {mine, differing_rank_};
  std::vector<std::int64_t> all(sent.size() * static_cast<std::size_t>(shape.ranks()));
  world_of(parts_->mesh)
      ->all_gather(std::span<const std::int64_t>(sent), all,
                   {.purpose = collective::Purpose::count})
      .wait();
  for (std::size_t at = 0; at < all.size(); at += sent.size()) {
    if (all[at] < 0) continue;
    const int row = static_cast<int>(at / sent.size()) / shape.tp * shape.tp;
    number = all[at];
    for (const auto& unit : parts_->catalogue) {
      if (number < std::ssize(unit))
        return "tensor " + unit[static_cast<std::size_t>(number)].name +
               " is not the same on rank " + std::to_string(row) + " and rank " +
               std::to_string(row + all[at + 1]) +
               ", and tensor parallelism keeps it whole on both: look for a layer that leaves out "
               "a sum over Run::tp, as check_layouts() does, and restore a snapshot";
      number -= std::ssize(unit);
    }
  }
  return {};
}

}  // namespace troupe::train::internal
