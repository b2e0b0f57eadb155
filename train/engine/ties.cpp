#include "troupe/train/engine/internal/ties.hpp"

#include <algorithm>

namespace troupe::train::internal {
namespace {

/// Ranks in the group of the first and the last stage.
constexpr int kFirst = 0, kLast = 1;

}  // namespace

Ties::Ties(Parts& parts) : parts_(&parts) {
  if (parts.stages().ranks == 1) return;
  const Index& index = parts.index;
  for (TensorId id = 0; id < static_cast<TensorId>(index.tensors().size()); ++id) {
    const TensorId tensor = index[id].tied_to;
    if (tensor < 0 || !(index[id].remote || index[tensor].is_copy())) continue;
    uses_.push_back(id);
    if (std::find(tensors_.begin(), tensors_.end(), tensor) == tensors_.end())
      tensors_.push_back(tensor);
  }
}

collective::Terms Ties::terms() const {
  return {.after = parts_->device.record(parts_->device.compute())};
}

void Ties::reduce(Reductions& reductions) {
  for (const TensorId id : uses_) {
    const kernels::Buffer gradient = buffer_of(parts_->store.gradients_of(id));
    if (parts_->stages().has_last())
      parts_->mesh.tied->send(gradient, kFirst, terms()).wait(parts_->device);
    else
      parts_->mesh.tied->receive(gradient, kLast, terms()).wait(parts_->device);
  }
  if (!parts_->stages().has_first()) return;
  std::vector<int> units;
  for (const TensorId id : tensors_) units.push_back(parts_->index[id].unit);
  std::sort(units.begin(), units.end());
  units.erase(std::unique(units.begin(), units.end()), units.end());
  for (const int unit : units) reductions.finish_remote(unit);
}

void Ties::publish() {
  for (const TensorId id : tensors_) {
    const kernels::Buffer weights = buffer_of(parts_->store.weights_of(id));
    if (parts_->stages().has_last())
      parts_->mesh.tied->receive(weights, kFirst, terms()).wait(parts_->device);
    else
      parts_->mesh.tied->send(weights, kLast, terms()).wait(parts_->device);
  }
}

}  // namespace troupe::train::internal
