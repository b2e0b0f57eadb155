#include "troupe/train/engine/internal/plan.hpp"
#include "troupe/train/internal/sizes.hpp"

#include <algorithm>

namespace troupe::train::internal {
namespace {

constexpr const char* kActivations = "the memory of activations";

/// Hands out parts of a region from its beginning.
class Layouter {
 public:
  explicit Layouter(Region region) noexcept : region_(region) {}
  Extent take(std::int64_t bytes) {
    const Extent place{end_, bytes, region_};
    end_ = add_rounded(end_, bytes, kArenaAlign, kActivations);
    return place;
  }
  std::int64_t end() const noexcept { return end_; }

 private:
  Region region_;
  std::int64_t end_ = 0;
};

/// Grows memory that layers share to the largest need.
void raise(Extent& shared, std::int64_t bytes) noexcept {
  shared.bytes = std::max(shared.bytes, bytes);
}

/// Places the memory of one stage in its regions.
class StageLayouter {
 public:
  StageLayouter(StagePlan& plan, bool first, bool last) noexcept
      : plan_(plan), first_(first), last_(last) {}

  void training(bool apart) {
    for (const LayerPlan& layer : plan_.layers) raise(carry_, layer.carry.bytes);
    if (!apart) carry_ = work_.take(carry_.bytes);
    plan_.temporary = work_.take(plan_.temporary.bytes);
    if (!first_) plan_.input = slot_.take(plan_.in().bytes());
    place_kept();
    if (!last_) plan_.dy = plan_.layers.back().output;
    if (!first_) plan_.layers.front().dx = outgoing_.take(plan_.in().bytes());
    if (apart)
      place_pairs();
    else
      place_gradients();
    place_second_outputs();
    finish();
  }

  void inference() {
    Extent outputs[2], saved;
    for (std::size_t l = 0; l < plan_.layers.size(); ++l) {
      raise(outputs[l % 2], plan_.layers[l].out.bytes());
      raise(saved, plan_.layers[l].saved.bytes);
    }
    plan_.temporary = work_.take(plan_.temporary.bytes);
    if (!first_) plan_.input = work_.take(plan_.in().bytes());
    for (Extent& each : outputs) each = work_.take(each.bytes);
    saved = work_.take(saved.bytes);
    for (std::size_t l = 0; l < plan_.layers.size(); ++l) {
      LayerPlan& layer = plan_.layers[l];
      layer.output = {outputs[l % 2].at, layer.out.bytes()};
      layer.saved.at = saved.at;
      layer.first_saved = layer.saved;
    }
    finish();
  }

 private:
  /// Places outputs and saved memory. Layers with full recompute share one place for the latter.
  void place_kept() {
    Extent shared;
    for (LayerPlan& layer : plan_.layers) {
      layer.output = slot_.take(layer.out.bytes());
      if (layer.again)
        raise(shared, layer.saved.bytes);
      else
        layer.saved = slot_.take(layer.saved.bytes);
    }
    shared = work_.take(shared.bytes);
    for (LayerPlan& layer : plan_.layers) {
      if (layer.again) layer.saved.at = shared.at;
      layer.first_saved = layer.saved;
    }
  }

  /// Places gradients and carried memory when I and W are apart. W reads what I has read, so
  /// nothing may be overwritten between them.
  void place_pairs() {
    for (std::size_t l = 0; l < plan_.layers.size(); ++l) {
      LayerPlan& layer = plan_.layers[l];
      layer.carry = pair_.take(layer.carry.bytes);
      if (layer.again) layer.saved = pair_.take(layer.saved.bytes);
      if (l > 0) layer.dx = pair_.take(layer.in.bytes());
    }
  }

  /// Places gradients of inputs when the backward pass is one action. A gradient takes the place
  /// of the layer's output, unless it does not fit or that place holds the gradient from the next
  /// stage. Otherwise it takes one of two shared places in turn, because the layer still reads
  /// the other.
  void place_gradients() {
    std::vector<LayerPlan>& layers = plan_.layers;
    Extent shared[2];
    std::vector<int> place(layers.size(), -1);
    int last = 1;
    for (std::size_t l = layers.size(); l-- > 1;) {
      const bool taken = !last_ && l + 1 == layers.size();
      if (!taken && layers[l].in.bytes() <= layers[l].output.bytes) continue;
      place[l] = last = 1 - last;
      raise(shared[last], layers[l].in.bytes());
    }
    for (Extent& each : shared) each = work_.take(each.bytes);
    for (std::size_t l = 0; l < layers.size(); ++l) {
      layers[l].carry = {carry_.at, layers[l].carry.bytes};
      if (l == 0) continue;
      layers[l].dx = place[l] < 0 ? layers[l].output : shared[place[l]];
      layers[l].dx.bytes = layers[l].in.bytes();
    }
  }

  /// Places the outputs of recomputed forward passes, which no layer reads. The last layer's
  /// output place may hold dy, and then dx's place takes the output, since dx is written later.
  void place_second_outputs() {
    for (LayerPlan& layer : plan_.layers) layer.second_output = layer.output;
    LayerPlan& last = plan_.layers.back();
    if (last_ || !last.again) return;
    const bool fits = last.dx.bytes >= last.output.bytes;
    last.second_output = fits ? last.dx : work_.take(last.output.bytes);
  }

  void finish() { plan_.bytes = {work_.end(), slot_.end(), outgoing_.end(), pair_.end()}; }

  StagePlan& plan_;
  bool first_, last_;
  Extent carry_;
  Layouter work_{Region::work}, slot_{Region::slot}, outgoing_{Region::outgoing},
      pair_{Region::pair};
};

/// Returns the needs of all layers of the model, and fills in their temporary bytes.
std::vector<LayerPlan> plan_layers(const Model& model, const Layout& layout, const Spec& in,
                                   PassMode mode, std::vector<std::int64_t>& temporary) {
  const bool full = layout.recompute == Recompute::full && mode == PassMode::training;
  std::vector<LayerPlan> layers;
  Spec x = in;
  for (const auto& layer : model) {
    const bool predicts = mode == PassMode::prediction && layer->is_loss();
    const Need need = predicts ? layer->prediction_need(x, layout) : layer->need(x, layout);
    LayerPlan& plan = layers.emplace_back();
    plan.in = x;
    plan.out = need.out;
    plan.saved.bytes = need.saved;
    plan.carry.bytes = mode == PassMode::training ? need.carry : 0;
    plan.again = full && !layer->keeps_saved();
    temporary.push_back(need.temporary);
    x = need.out;
  }
  return layers;
}

}  // namespace

PassPlan plan_pass(const Model& model, const Layout& layout, const RankStages& stages,
                   const Spec& in, PassMode mode, bool apart) {
  if (in.bytes() > kMostBytes)
    reject("a micro-batch of shape " + in.shape.text() + " is too large");
  std::vector<std::int64_t> temporary;
  const std::vector<LayerPlan> layers = plan_layers(model, layout, in, mode, temporary);
  PassPlan plan{.in = in, .out = layers.back().out, .mode = mode};
  for (std::size_t i = 0; i < stages.stages.size(); ++i) {
    const Stage& stage = stages.stages[i];
    StagePlan& own = plan.stages.emplace_back();
    own.layers.assign(layers.begin() + stage.first, layers.begin() + stage.end);
    for (int l = stage.first; l < stage.end; ++l)
      raise(own.temporary, temporary[static_cast<std::size_t>(l)]);
    StageLayouter layouter(own, stages.is_first(i), stages.is_last(i));
    if (mode == PassMode::training)
      layouter.training(apart);
    else
      layouter.inference();
    plan.work = std::max(plan.work, own.bytes[0]);
  }
  if (mode != PassMode::prediction) return plan;
  if (stages.has_last()) {
    plan.prediction = plan.stages.back().layers.back().output;
  } else {
    plan.prediction = {plan.work, plan.out.bytes()};
    plan.work = add_rounded(plan.work, plan.out.bytes(), kArenaAlign, kActivations);
  }
  return plan;
}

void ArenaPlan::hold(const PassPlan& plan) {
  work_ = std::max(work_, plan.work);
  for (std::size_t i = 0; i < sizes_.size(); ++i)
    for (std::size_t r = 1; r < kRegions; ++r)
      sizes_[i][r] = std::max(sizes_[i][r], plan.stages[i].bytes[r]);
}

std::int64_t ArenaPlan::bytes() const {
  std::int64_t all = work_;
  for (std::size_t i = 0; i < sizes_.size(); ++i)
    for (std::size_t r = 1; r < kRegions; ++r)
      all = add_product(all, live_[i][r], sizes_[i][r], kActivations);
  if (all > kMostBytes) reject_size(kActivations, " takes more than 2^58 bytes: use less of it");
  return all;
}

std::int64_t ArenaPlan::base(std::size_t stage, Region region, int index) const {
  const auto wanted = static_cast<std::size_t>(region);
  if (wanted == 0) return 0;
  std::int64_t at = work_;
  for (std::size_t i = 0; i < sizes_.size(); ++i)
    for (std::size_t r = 1; r < kRegions; ++r) {
      if (i == stage && r == wanted) return at + index * sizes_[i][r];
      at += live_[i][r] * sizes_[i][r];
    }
  return at;
}

void Arena::grow(std::int64_t bytes) {
  if (bytes <= this->bytes()) return;
  memory_ = {};  // frees the old one first, so that both never exist at once
  memory_ = device_->allocate(static_cast<std::size_t>(bytes));
}

}  // namespace troupe::train::internal
