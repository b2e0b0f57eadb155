#include "troupe/train/engine/internal/plan.hpp"

#include "troupe/train/internal/sizes.hpp"

#include <algorithm>

namespace troupe::train::internal {
namespace {

/// Hands out parts of an arena from its beginning.
class Layouter {
 public:
  Extent take(std::int64_t bytes) {
    const Extent place{end_, bytes};
    end_ = add_rounded(end_, bytes, kArenaAlign, "the memory of activations");
    return place;
  }
  std::int64_t end() const noexcept { return end_; }

 private:
  std::int64_t end_ = 0;
};

/// What all layers share is as large as the largest wants it.
void raise(Extent& shared, std::int64_t bytes) noexcept {
  shared.bytes = std::max(shared.bytes, bytes);
}

/// A gradient that does not fit into the layer's output lies in one of two shared places: not in
/// that of the gradient which the layer reads.
void place_gradients(std::vector<LayerPlan>& layers, Layouter& space) {
  Extent shared[2];
  std::vector<int> place(layers.size(), -1);
  int last = 1;
  for (std::size_t l = layers.size(); l-- > 1;) {
    if (layers[l].in.bytes() <= layers[l].output.bytes) continue;
    place[l] = last = 1 - last;
    raise(shared[last], layers[l].in.bytes());
  }
  for (Extent& each : shared) each = space.take(each.bytes);
  for (std::size_t l = 1; l < layers.size(); ++l) {
    layers[l].dx = place[l] < 0 ? layers[l].output : shared[place[l]];
    layers[l].dx.bytes = layers[l].in.bytes();
  }
}

void place_training(PassPlan& plan, Layouter& space) {
  Extent shared;
  for (LayerPlan& layer : plan.layers) {
    layer.output = space.take(layer.out.bytes());
    if (layer.again)
      raise(shared, layer.saved.bytes);
    else
      layer.saved = space.take(layer.saved.bytes);
  }
  shared = space.take(shared.bytes);
  for (LayerPlan& layer : plan.layers)
    if (layer.again) layer.saved.at = shared.at;
  place_gradients(plan.layers, space);
}

void place_inference(PassPlan& plan, Layouter& space) {
  Extent outputs[2], saved;
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    raise(outputs[l % 2], plan.layers[l].out.bytes());
    raise(saved, plan.layers[l].saved.bytes);
  }
  for (Extent& each : outputs) each = space.take(each.bytes);
  saved = space.take(saved.bytes);
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    plan.layers[l].output = {outputs[l % 2].at, plan.layers[l].out.bytes()};
    plan.layers[l].saved.at = saved.at;
  }
}

}  // namespace

PassPlan plan_pass(const Model& model, const Layout& layout, const Spec& in, PassMode mode) {
  PassPlan plan{.in = in, .mode = mode};
  if (in.bytes() > kMostBytes)
    reject("a micro-batch of shape " + in.shape.text() + " is too large");
  const bool full = layout.recompute == Recompute::full && mode == PassMode::training;
  Spec x = in;
  for (const auto& layer : model) {
    const bool predicts = mode == PassMode::prediction && layer->is_loss();
    const Need need = predicts ? layer->prediction_need(x, layout) : layer->need(x, layout);
    plan.layers.push_back({.in = x,
                           .out = need.out,
                           .saved = {0, need.saved},
                           .again = full && !layer->keeps_saved()});
    raise(plan.temporary, need.temporary);
    if (mode == PassMode::training) raise(plan.carry, need.carry);
    x = need.out;
  }
  Layouter space;
  plan.carry = space.take(plan.carry.bytes);
  plan.temporary = space.take(plan.temporary.bytes);
  if (mode == PassMode::training)
    place_training(plan, space);
  else
    place_inference(plan, space);
  plan.bytes = space.end();
  return plan;
}

void Arena::grow(std::int64_t bytes) {
  if (bytes <= this->bytes()) return;
  memory_ = {};  // first the old, so that both are never there
  memory_ = device_->allocate(static_cast<std::size_t>(bytes));
}

}  // namespace troupe::train::internal
