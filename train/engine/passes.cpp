#include "troupe/train/engine/internal/passes.hpp"

#include "troupe/train/internal/reject.hpp"

#include <algorithm>
#include <utility>

namespace troupe::train::internal {
namespace {

/// Shapes that a run meets are few: micro-batches of one size, a shorter one at the end.
constexpr std::size_t kMostPlans = 16;

bool is_empty(const MicroBatch& micro) noexcept {
  return micro.input.shape.rank() == 0 || micro.input.count() == 0;
}

void require_targets(const TensorView& targets, const PassPlan& plan, DType type) {
  const std::string of = "a micro-batch of shape " + plan.in.shape.text();
  if (targets.data == nullptr) reject(of + " has no targets: give one for each of its losses");
  if (targets.type != type)
    reject(of + " has targets of type " + std::string(kernels::name_of(targets.type)) +
           ", and the model's loss compares with " + std::string(kernels::name_of(type)));
  const std::int64_t rows = plan.layers.back().out.count();
  if (type == DType::i32 && targets.count() != rows)
    reject(of + " has targets of shape " + targets.shape.text() + ": give one for each of its " +
           std::to_string(rows) + " losses");
}

void require_fit(const MicroBatch& micro, const PassPlan& plan, DType target_type) {
  const std::string of = "a micro-batch of shape " + plan.in.shape.text();
  if (micro.input.data == nullptr) reject(of + " has no memory: MicroBatch.input.data is null");
  const auto batch = static_cast<std::size_t>(plan.in.shape[0]);
  if (!micro.samples.empty() && micro.samples.size() != batch)
    reject(of + " has " + std::to_string(micro.samples.size()) +
           " sample numbers: give one for each of its " + std::to_string(batch) +
           " samples, or none");
  if (plan.mode != PassMode::prediction) require_targets(micro.targets, plan, target_type);
}

}  // namespace

Passes::Passes(Parts& parts)
    : parts_(&parts),
      weights_(parts.index, [&parts](TensorId id) { return parts.store.weights_of(id); }),
      gradients_(parts.index, [&parts](TensorId id) { return parts.store.gradients_of(id); }),
      arena_(parts.device),
      gathers_(parts.store, parts.units),
      reductions_(parts.store, parts.device, parts.mesh.tp.get()),
      last_layers_(last_layers(parts.index)) {}

const PassPlan& Passes::plan_for(const Spec& in, PassMode mode) {
  for (const PassPlan& plan : plans_)
    if (plan.mode == mode && plan.in.type == in.type && plan.in.shape == in.shape) return plan;
  return plans_.emplace_back(plan_pass(parts_->model, parts_->layout, in, mode));
}

std::vector<Pass> Passes::prepare(std::span<const MicroBatch> micros, PassMode mode) {
  if (plans_.size() > kMostPlans) plans_.clear();
  std::vector<Pass> passes;
  std::int64_t bytes = 0, rows = 0, input = 0, target = 0;
  for (const MicroBatch& micro : micros) {
    Pass& pass = passes.emplace_back();
    if (is_empty(micro)) continue;
    const PassPlan& plan = plan_for(micro.input.spec(), mode);
    require_fit(micro, plan, parts_->model.back()->target_type());
    pass = {&plan, micro.input, micro.targets, micro.samples};
    bytes = std::max(bytes, plan.bytes);
    rows += plan.layers.back().out.count();
    input = std::max(input, micro.input.bytes());
    if (mode != PassMode::prediction) target = std::max(target, micro.targets.bytes());
  }
  arena_.grow(bytes);
  make_room(input_, input);
  make_room(target_, target);
  losses_.clear();
  losses_.reserve(static_cast<std::size_t>(rows));
  return passes;
}

void Passes::begin(const PassTerms& terms, Walk walk, int passes) {
  terms_ = terms;
  mode_ = walk == Walk::forward ? PassMode::inference : PassMode::training;
  losses_.clear();
  reductions_.reset();
  before_end_ = 0;
  gathers_.begin(walk, passes);
}

void Passes::make_room(kernels::Memory& staging, std::int64_t bytes) {
  if (parts_->device.is_cpu() || static_cast<std::int64_t>(staging.bytes()) >= bytes) return;
  staging = {};  // first the old, so that both are never there
  staging = parts_->device.allocate(static_cast<std::size_t>(bytes));
}

TensorView Passes::on_device(const TensorView& values, kernels::Memory& staging) {
  if (parts_->device.is_cpu() || values.count() == 0) return values;
  parts_->device.copy(parts_->device.compute(), staging.data(), values.data,
                      static_cast<std::size_t>(values.bytes()));
  return {staging.data(), values.spec()};
}

Run Passes::run_of(const Pass& pass, const Targets* targets) const {
  return {.device = parts_->device,
          .layout = parts_->layout,
          .tp = parts_->mesh.tp.get(),
          .type = parts_->layout.compute,
          .seed = terms_.seed,
          .step = terms_.step,
          .samples = pass.samples,
          .targets = targets,
          .training = mode_ == PassMode::training};
}

TensorView Passes::input_of(const Pass& pass, int layer) const {
  if (layer == 0) return pass.input;
  const LayerPlan& before = pass.plan->layers[static_cast<std::size_t>(layer) - 1];
  return arena_.view(before.output, before.out);
}

void Passes::initialize(const PassTerms& terms) {
  const bool gathers = parts_->layout.compute == DType::f32;  // a master has slabs of its own
  begin(terms, Walk::forward, gathers ? 1 : 0);
  Run run = run_of({}, nullptr);
  run.type = DType::f32;  // 16-bit weights are the same ones, rounded
  Store& store = parts_->store;
  const Tensors initial(parts_->index, [&store](TensorId id) { return store.initial_of(id); });
  for (int l = 0; l < parts_->layer_count(); ++l) {
    if (gathers) gathers_.enter(l);
    store.begin_initial(l);
    parts_->layer(l).initialize(run, initial);
    store.keep_weights(l);
    if (gathers) gathers_.leave(l);
  }
}

void Passes::run_forward(const Run& run, const Pass& pass, int layer) {
  const LayerPlan& plan = pass.plan->layers[static_cast<std::size_t>(layer)];
  parts_->layer(layer).forward(run, weights_, input_of(pass, layer),
                               arena_.view(plan.output, plan.out), arena_.bytes_of(plan.saved),
                               arena_.bytes_of(pass.plan->temporary));
  if (plan.again) shared_saved_of_ = layer;
}

void Passes::keep_losses(const Pass& pass) {
  const LayerPlan& last = pass.plan->layers.back();
  const auto before = losses_.size(), rows = static_cast<std::size_t>(last.out.count());
  losses_.resize(before + rows);
  parts_->device.copy(parts_->device.compute(), losses_.data() + before,
                      arena_.view(last.output, last.out).data, rows * sizeof(float));
}

void Passes::forward(const Pass& given) {
  Pass pass = given;
  Targets targets{on_device(given.targets, target_), terms_.targets, terms_.scale};
  pass.input = on_device(given.input, input_);
  const Run run = run_of(pass, &targets);
  for (int l = 0; l < parts_->layer_count(); ++l) {
    gathers_.enter(l);
    if (pass.plan != nullptr) run_forward(run, pass, l);
    gathers_.leave(l);
  }
  if (pass.plan != nullptr) keep_losses(pass);
}

void Passes::run_backward(const Run& run, const Pass& pass, int l) {
  const std::vector<LayerPlan>& layers = pass.plan->layers;
  const auto at = static_cast<std::size_t>(l);
  const LayerPlan& plan = layers[at];
  if (plan.again && shared_saved_of_ != l) run_forward(run, pass, l);
  const TensorView x = input_of(pass, l);
  const TensorView dy =
      at + 1 == layers.size() ? TensorView() : arena_.view(layers[at + 1].dx, plan.out);
  const TensorView dx = l == 0 ? TensorView(nullptr, plan.in) : arena_.view(plan.dx, plan.in);
  const TensorView saved = arena_.bytes_of(plan.saved), carry = arena_.bytes_of(pass.plan->carry),
                   temporary = arena_.bytes_of(pass.plan->temporary);
  const Layer& layer = parts_->layer(l);
  layer.backward_input(run, weights_, dy, x, saved, carry, temporary, dx);
  layer.backward_weight(run, gradients_, dy, x, saved, carry, temporary);
}

void Passes::backward(const Pass& given, bool last) {
  Pass pass = given;
  Targets targets{on_device(given.targets, target_), terms_.targets, terms_.scale};
  pass.input = on_device(given.input, input_);
  const Run run = run_of(pass, &targets);
  const bool reduces = last || parts_->layout.zero >= 2;
  for (int l = parts_->layer_count(); l-- > 0;) {
    if (parts_->has(l)) reductions_.begin(l);
    gathers_.enter(l);
    if (pass.plan != nullptr) run_backward(run, pass, l);
    gathers_.leave(l);
    if (last && l == 0) before_end_ = reductions_.submitted();
    for (int u = 0; reduces && u < parts_->unit_count(); ++u)
      if (last_layers_[static_cast<std::size_t>(u)] == l && parts_->has(u))
        reductions_.submit(u, last);
  }
  shared_saved_of_ = -1;
}

TensorView Passes::predict(const Pass& pass) {
  Pass local = pass;
  local.input = on_device(pass.input, input_);
  const Run run = run_of(local, nullptr);
  const int last = parts_->layer_count() - 1;
  for (int l = 0; l < last; ++l) {
    gathers_.enter(l);
    if (local.plan != nullptr) run_forward(run, local, l);
    gathers_.leave(l);
  }
  gathers_.enter(last);
  TensorView y;
  if (local.plan != nullptr) {
    const LayerPlan& plan = local.plan->layers.back();
    y = arena_.view(plan.output, plan.out);
    parts_->layer(last).predict(run, weights_, input_of(local, last), y,
                                arena_.bytes_of(local.plan->temporary));
  }
  gathers_.leave(last);
  return y;
}

}  // namespace troupe::train::internal
