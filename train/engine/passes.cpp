#include "troupe/train/engine/internal/passes.hpp"

#include "troupe/train/internal/reject.hpp"

#include <algorithm>
#include <utility>

namespace troupe::train::internal {
namespace {

/// A run has few shapes: micro-batches of one size, and a shorter one at the end.
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
  const std::int64_t rows = plan.out.count();
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

/// Throws for values that the model's ends on this rank do not take.
void require_values(const Parts& parts, const Pass& pass) {
  if (pass.plan == nullptr) return;
  if (parts.stages().has_first()) parts.model.front()->check_input(pass.input);
  if (parts.stages().has_last() && pass.plan->mode != PassMode::prediction)
    parts.model.back()->check_targets(pass.plan->stages.back().layers.back().in, pass.targets);
}

}  // namespace

Passes::Passes(Parts& parts)
    : parts_(&parts),
      weights_(parts.index, [&parts](TensorId id) { return parts.store.weights_of(id); }),
      gradients_(parts.index, [&parts](TensorId id) { return parts.store.gradients_of(id); }),
      arena_(parts.device),
      arena_plan_({}),
      gathers_(parts.store, parts.units),
      reductions_(parts.store, parts.units, parts.device, parts.mesh.tp.get()) {}

const PassPlan& Passes::plan_for(const Spec& in, PassMode mode) {
  for (const PassPlan& plan : plans_)
    if (plan.mode == mode && plan.in.type == in.type && plan.in.shape == in.shape) return plan;
  return plans_.emplace_back(
      plan_pass(parts_->model, parts_->layout, parts_->stages(), in, mode, parts_->pipeline.apart));
}

std::vector<Pass> Passes::prepare(std::span<const MicroBatch> micros, PassMode mode) {
  if (plans_.size() > kMostPlans) plans_.clear();
  arena_plan_ = ArenaPlan(mode == PassMode::training
                              ? parts_->pipeline.live
                              : std::vector<LiveParts>(parts_->stages().stages.size()));
  std::vector<Pass> passes;
  std::int64_t rows = 0, input = 0, target = 0;
  for (const MicroBatch& micro : micros) {
    Pass& pass = passes.emplace_back();
    if (is_empty(micro)) continue;
    const PassPlan& plan = plan_for(micro.input.spec(), mode);
    require_fit(micro, plan, parts_->model.back()->target_type());
    pass = {&plan, micro.input, micro.targets, micro.samples, static_cast<std::size_t>(rows)};
    arena_plan_.hold(plan);
    rows += plan.out.count();
    input = std::max(input, micro.input.bytes());
    if (mode != PassMode::prediction) target = std::max(target, micro.targets.bytes());
  }
  arena_.grow(arena_plan_.bytes());
  make_room(input_, parts_->stages().has_first() ? input : 0);
  make_room(target_, parts_->stages().has_last() ? target : 0);
  const bool has_losses = parts_->stages().has_last() && mode != PassMode::prediction;
  make_room_for_losses(static_cast<std::size_t>(has_losses ? rows : 0));
  for (const Pass& pass : passes) require_values(*parts_, pass);  // once all sizes are known to fit
  return passes;
}

void Passes::make_room_for_losses(std::size_t count) {
  if (parts_->device.is_cpu()) {
    losses_.values.resize(count);
    losses_.all = losses_.values;
  } else {
    const std::size_t bytes = count * sizeof(float);
    if (losses_.pinned.bytes() < bytes) losses_.pinned = {};  // free the old one first
    if (losses_.pinned.bytes() < bytes)
      losses_.pinned = parts_->device.allocate(bytes, kernels::Where::pinned);
    losses_.all = {static_cast<float*>(losses_.pinned.data()), count};
  }
  std::fill(losses_.all.begin(), losses_.all.end(), 0.0f);
}

void Passes::begin(const PassTerms& terms, PassMode mode, int passes) {
  terms_ = terms;
  mode_ = mode;
  shared_ = {};
  reductions_.reset();
  before_end_ = 0;
  gathers_.begin(mode == PassMode::training ? Walk::forward_and_backward : Walk::forward, passes);
}

Place Passes::place_of(const Slots& slots, std::size_t stage, int micro) const {
  std::array<std::int64_t, kRegions> bases{};
  for (std::size_t r = 1; r < kRegions; ++r) {
    const auto region = static_cast<Region>(r);
    const int index = slots.of(region, parts_->stages().number(stage), micro);
    if (index >= 0) bases[r] = arena_plan_.base(stage, region, index);
  }
  return {arena_, bases};
}

TensorView Passes::prediction_of(const Pass& pass) const {
  return Place(arena_, {}).view(pass.plan->prediction, pass.plan->out);
}

void Passes::make_room(kernels::Memory& staging, std::int64_t bytes) {
  if (parts_->device.is_cpu() || static_cast<std::int64_t>(staging.bytes()) >= bytes) return;
  staging = {};  // frees the old one first, so that both never exist at once
  staging = parts_->device.allocate(static_cast<std::size_t>(bytes));
}

TensorView Passes::copy_of(const TensorView& values, kernels::Memory& staging) {
  if (parts_->device.is_cpu() || values.count() == 0) return values;
  parts_->device.copy(parts_->device.compute(), staging.data(), values.data,
                      static_cast<std::size_t>(values.bytes()));
  return {staging.data(), values.spec()};
}

Run Passes::run_of(const Turn* turn, const Targets* targets) const {
  return {.device = parts_->device,
          .layout = parts_->layout,
          .tp = parts_->mesh.tp.get(),
          .type = parts_->layout.compute,
          .seed = terms_.seed,
          .step = terms_.step,
          .samples = turn == nullptr ? std::span<const std::int64_t>() : turn->pass.samples,
          .targets = targets,
          .training = mode_ == PassMode::training};
}

template <class F>
void Passes::on_device(const Turn& turn, F&& f) {
  if (shared_.micro != turn.micro || !parts_->stages().stages[turn.stage].has(shared_.layer))
    shared_ = {};  // other passes overwrite the shared saved memory
  Pass pass = turn.pass;
  Targets targets{{}, terms_.targets, terms_.scale};
  if (pass.plan != nullptr && parts_->stages().is_first(turn.stage))
    pass.input = copy_of(pass.input, input_);
  if (pass.plan != nullptr && parts_->stages().is_last(turn.stage))
    targets.values = copy_of(pass.targets, target_);
  const Turn local{pass, turn.stage, turn.micro, turn.place};
  f(run_of(&local, &targets), local);
}

TensorView Passes::input_of(const Turn& turn, int layer) const {
  const StagePlan& plan = turn.plan();
  if (layer == 0 && parts_->stages().is_first(turn.stage)) return turn.pass.input;
  if (layer == 0) return turn.place.view(plan.input, plan.in());
  const LayerPlan& before = plan.layers[static_cast<std::size_t>(layer) - 1];
  return turn.place.view(before.output, before.out);
}

void Passes::initialize(const PassTerms& terms) {
  // With master weights, begin_initial() has slabs of its own, and nothing is gathered.
  const bool gathers = parts_->layout.compute == DType::f32;
  begin(terms, PassMode::inference, gathers ? 1 : 0);
  Run run = run_of(nullptr, nullptr);
  run.type = DType::f32;  // 16-bit weights are these values, rounded
  Store& store = parts_->store;
  const Tensors initial(parts_->index, [&store](TensorId id) { return store.initial_of(id); });
  for (const Stage& stage : parts_->stages().stages)
    for (int l = stage.first; l < stage.end; ++l) {
      if (gathers) gathers_.enter(l);
      store.begin_initial(l);
      parts_->layer(l).initialize(run, initial);
      store.keep_weights(l);
      if (gathers) gathers_.leave(l);
    }
}

void Passes::run_forward(const Run& run, const Turn& turn, int layer, bool again) {
  const StagePlan& stage = turn.plan();
  const LayerPlan& plan = stage.layers[static_cast<std::size_t>(layer)];
  const int number = parts_->stages().stages[turn.stage].first + layer;
  const TensorView x = input_of(turn, layer),
                   y = turn.place.view(again ? plan.second_output : plan.output, plan.out),
                   temporary = turn.place.bytes_of(stage.temporary);
  if (mode_ == PassMode::prediction && parts_->layer(number).is_loss())
    return parts_->layer(number).predict(run, weights_, x, y, temporary);
  parts_->layer(number).forward(
      run, weights_, x, y, turn.place.bytes_of(again ? plan.saved : plan.first_saved), temporary);
  if (plan.again) shared_ = {turn.micro, number};
}

void Passes::keep_losses(const Turn& turn) {
  const LayerPlan& last = turn.plan().layers.back();
  parts_->device.copy(parts_->device.compute(), losses_.all.data() + turn.pass.first_loss,
                      turn.place.view(last.output, last.out).data,
                      static_cast<std::size_t>(last.out.count()) * sizeof(float));
}

void Passes::forward(const Turn& given) {
  const Stage& stage = parts_->stages().stages[given.stage];
  on_device(given, [&](const Run& run, const Turn& turn) {
    for (int l = stage.first; l < stage.end; ++l) {
      gathers_.enter(l);
      if (turn.pass.plan != nullptr) run_forward(run, turn, l - stage.first, false);
      gathers_.leave(l);
    }
    const bool gives_losses = mode_ != PassMode::prediction && parts_->stages().is_last(turn.stage);
    if (turn.pass.plan != nullptr && gives_losses) keep_losses(turn);
  });
}

void Passes::run_backward(const Run& run, const Turn& turn, int l, const Backward& how) {
  const StagePlan& stage = turn.plan();
  const auto at = static_cast<std::size_t>(l);
  const LayerPlan& plan = stage.layers[at];
  const int number = parts_->stages().stages[turn.stage].first + l;
  const bool is_there =
      plan.saved.region == Region::work && shared_.micro == turn.micro && shared_.layer == number;
  if (how.input && plan.again && !is_there) run_forward(run, turn, l, true);
  const Place& place = turn.place;
  const bool ends_model = at + 1 == stage.layers.size() && parts_->stages().is_last(turn.stage);
  const TensorView x = input_of(turn, l), saved = place.bytes_of(plan.saved),
                   carry = place.bytes_of(plan.carry), temporary = place.bytes_of(stage.temporary);
  const TensorView dy =
      ends_model ? TensorView()
                 : place.view(at + 1 == stage.layers.size() ? stage.dy : stage.layers[at + 1].dx,
                              plan.out);
  const TensorView dx = number == 0 ? TensorView(nullptr, plan.in) : place.view(plan.dx, plan.in);
  const Layer& layer = parts_->layer(number);
  if (how.input) layer.backward_input(run, weights_, dy, x, saved, carry, temporary, dx);
  if (how.weights) layer.backward_weight(run, gradients_, dy, x, saved, carry, temporary);
}

void Passes::backward(const Turn& given, const Backward& how) {
  const Stage& stage = parts_->stages().stages[given.stage];
  const bool reduces = how.weights && (how.ends_stage || parts_->layout.zero >= 2);
  on_device(given, [&](const Run& run, const Turn& turn) {
    for (int l = stage.end; l-- > stage.first;) {
      if (how.weights && parts_->has(l)) reductions_.begin(l);
      gathers_.enter(l);
      if (turn.pass.plan != nullptr) run_backward(run, turn, l - stage.first, how);
      gathers_.leave(l);
      // The reductions that this last layer of the rank submits follow the end of backward.
      if (how.ends_rank && l == stage.first) before_end_ = reductions_.submitted();
      if (reduces) reductions_.finish_layer(l, how.ends_stage);
    }
  });
}

}  // namespace troupe::train::internal
