#include "troupe/train/engine/engine.hpp"

#include "troupe/kernels/cross_entropy/cross_entropy.hpp"
#include "troupe/kernels/denormals/denormals.hpp"
#include "troupe/runtime/base/clock.hpp"
#include "troupe/train/engine/internal/state.hpp"
#include "troupe/train/hash.hpp"
#include "troupe/train/internal/reject.hpp"
#include "troupe/train/optimizers/norm.hpp"

#include <algorithm>
#include <cmath>
#include <exception>
#include <functional>
#include <numeric>

namespace troupe::train {

using internal::Batches;
using internal::Counts;
using internal::Pass;
using internal::PassMode;
using internal::PassTerms;
using internal::reject;
using internal::require;
using internal::Totals;

namespace {

/// Returns the targets of a micro-batch that count: ids that are not ignored, or one for each
/// loss.
std::int64_t targets_of(const Pass& pass) {
  if (pass.plan == nullptr || pass.targets.data == nullptr) return 0;
  if (pass.targets.type != DType::i32) return pass.plan->out.count();
  const auto* ids = pass.targets.as<std::int32_t>();
  return pass.targets.count() - std::count(ids, ids + pass.targets.count(), kernels::kIgnore);
}

std::int64_t samples_of(const Pass& pass) {
  return pass.plan == nullptr ? 0 : pass.plan->in.shape[0];
}

template <class F>
std::int64_t sum_of(const std::vector<Pass>& passes, F&& of) {
  std::int64_t sum = 0;
  for (const Pass& pass : passes) sum += of(pass);
  return sum;
}

/// Numbers the samples of micro-batches that have no numbers, from `first`, batch after batch.
/// Returns the memory of the numbers, which the passes borrow.
std::vector<std::int64_t> number_samples(std::vector<Pass>& passes, std::int64_t first) {
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(sum_of(passes, samples_of)));
  std::iota(numbers.begin(), numbers.end(), first);
  std::size_t next = 0;
  for (Pass& pass : passes) {
    const auto count = static_cast<std::size_t>(samples_of(pass));
    if (pass.samples.empty()) pass.samples = std::span(numbers).subspan(next, count);
    next += count;
  }
  return numbers;
}

double sum_of_losses(kernels::Device& device, std::span<const float> losses) {
  device.compute().synchronize();
  return std::accumulate(losses.begin(), losses.end(), 0.0);
}

void clear_moments(internal::Parts& parts) {
  std::vector<float> zeros;
  for (int unit = 0; unit < parts.unit_count(); ++unit) {
    zeros.resize(
        static_cast<std::size_t>(parts.index.units()[static_cast<std::size_t>(unit)].size));
    if (zeros.empty()) continue;
    if (parts.optimizer.moments() > 0) parts.store.write_whole(unit, Part::first_moment, zeros);
    if (parts.optimizer.moments() > 1) parts.store.write_whole(unit, Part::second_moment, zeros);
  }
}

Spec largest_input(std::span<const MicroBatch> micros) {
  Spec largest{DType::i32, {0}};
  for (const MicroBatch& micro : micros)
    if (micro.input.count() > largest.count()) largest = micro.input.spec();
  return largest;
}

void require_step(std::span<const MicroBatch> micros, const StepOptions& options,
                  const Layout& layout) {
  if (std::ssize(micros) != layout.micro)
    reject("a step got " + std::to_string(micros.size()) + " micro-batches and the layout says " +
           std::to_string(layout.micro) + ": give as many, some of them empty if need be");
  require(!std::isnan(options.rate) && !std::isinf(options.rate),
          "StepOptions.rate is no finite number");
}

void require_targets(const Totals& totals) {
  require(totals.samples > 0, "no rank has a sample: give at least one rank a batch");
  require(totals.targets > 0,
          "every target of every rank is ignored: give at least one that counts");
}

}  // namespace

void Engine::State::require_running() const {
  if (!stopped.empty())
    throw Unavailable(Code::unavailable,
                      "this engine stopped " + stopped +
                          "; make a new engine over a new mesh and restore a snapshot");
}

void Engine::State::require_weights() const {
  require(has_weights,
          "this engine has no weights yet: call initialize(seed) or restore(snapshot) first");
}

void Engine::State::stop(const char* what) noexcept {
  std::string why = "an unknown exception";
  try {
    throw;
  } catch (const Error& e) {
    why = e.message();
  } catch (const std::exception& e) {
    why = e.what();
  } catch (...) {
  }
  stopped = "in " + std::string(what) + " after step " + std::to_string(steps) + ": " + why;
  if (collective::Communicator* all = internal::world_of(parts.mesh))
    all->abort("rank " + std::to_string(parts.mesh.rank()) + " stopped " + stopped);
}

void Engine::State::initialize(std::uint64_t with_seed) {
  guarded("initialize()", [&] {
    seed = with_seed;
    steps = 0;
    if (scaler) scaler->reset();
    passes.initialize({.seed = seed});
    pipeline.ties().publish();
    clear_moments(parts);
    update.begin_moments(0);
    parts.store.zero_gradients();
    has_weights = true;
  });
}

void Engine::State::run_step(std::vector<Pass>& all, const Totals& totals, float rate,
                             StepResult& result) {
  parts.store.zero_gradients();
  const PassTerms terms{
      .seed = seed, .step = steps + 1, .targets = totals.targets, .scale = result.scale};
  pipeline.step(terms, all, trace);
  trace.bytes_reduced = passes.submitted();
  trace.bytes_before_end = passes.before_end();
  result.loss = sum_of_losses(parts.device, passes.losses());
  collective::Work sum = internal::sum_over_dp(parts.mesh, result.loss);
  const Time before = steady_now();
  while (passes.reductions().finish_next() >= 0) {
  }
  trace.exposed = steady_now() - before;
  result.norm = global_norm(parts.device, parts.store, parts.norm_groups()) / result.scale;
  sum.wait();
  result.loss =
      internal::loss_of_model(parts.mesh, result.loss) / static_cast<double>(totals.targets);
  // A step is skipped on every rank or on none: the norm and the loss have equal bits on all.
  result.applied = std::isfinite(result.norm) && std::isfinite(result.loss);
  if (scaler && std::isfinite(result.loss)) scaler->update(result.applied);
  if (!result.applied) return;
  ++steps;
  const float clip = clip_factor(result.norm, parts.optimizer.max_norm);
  update.apply(rate, steps, clip / static_cast<float>(result.scale));
  pipeline.ties().publish();
}

Totals Engine::State::agree(const char* what, const char* common,
                            const std::function<Counts()>& prepare) {
  require_running();
  Counts mine;
  std::exception_ptr refusal;
  try {
    mine = prepare();
  } catch (...) {
    refusal = std::current_exception();  // thrown after the exchange, which the other ranks wait in
    mine.batches = internal::kRefused;
  }
  Totals totals = guarded(what, [&] { return internal::exchange(parts.mesh, mine); });
  if (refusal) std::rethrow_exception(refusal);
  if (totals.refused_by >= 0)
    reject("rank " + std::to_string(totals.refused_by) + " refused its inputs of " + what +
           ", and the call changed nothing on any rank: the error of that rank says why");
  if (totals.differs >= 0)
    reject("ranks 0 and " + std::to_string(totals.differs) + " called " + what +
           " with different " + common + ": give every rank the same");
  if (!totals.mismatch.empty()) reject(totals.mismatch);
  return totals;
}

Batches Engine::State::agree_on(const char* what, std::span<const MicroBatch> micros, PassMode mode,
                                const std::function<std::uint64_t()>& check) {
  Batches batches;
  batches.totals = agree(what, "options", [&] {
    require_weights();
    const std::uint64_t common = check ? check() : 0;
    batches.passes = passes.prepare(micros, mode);
    Counts counts{.targets = sum_of(batches.passes, targets_of),
                  .samples = sum_of(batches.passes, samples_of),
                  .batches = std::ssize(micros)};
    counts.common = common;
    internal::fingerprint(micros, parts.mesh.shape, counts);
    return counts;
  });
  return batches;
}

StepResult Engine::State::step(std::span<const MicroBatch> micros, const StepOptions& options) {
  Batches batches = agree_on("step()", micros, PassMode::training, [&] {
    require_step(micros, options, parts.layout);
    return hash_bytes(&options.rate, sizeof options.rate);
  });
  const Totals& totals = batches.totals;
  std::vector<Pass>& all = batches.passes;
  require_targets(totals);
  trace = {};
  StepResult result{.step = steps + 1, .targets = totals.targets};
  if (scaler) result.scale = static_cast<double>(scaler->scale());
  const std::vector<std::int64_t> numbers = number_samples(all, totals.first_sample);
  const float rate = options.rate < 0 ? parts.optimizer.rate : options.rate;
  guarded("step()", [&] { run_step(all, totals, rate, result); });
  if (!std::isfinite(result.loss))
    reject("the loss of step " + std::to_string(result.step) +
           " is not finite, and the step changed nothing: lower the learning rate and go on from "
           "an earlier snapshot, look for values in the batch that are not finite" +
           (scaler ? ", or use compute = bf16 where activations exceed f16's 65504" : ""));
  return result;
}

double Engine::State::evaluate(std::span<const MicroBatch> micros) {
  Batches batches = agree_on("evaluate()", micros, PassMode::inference);
  const Totals& totals = batches.totals;
  std::vector<Pass>& all = batches.passes;
  require_targets(totals);
  // This rank takes part when other ranks have more batches and gather weights for them.
  all.resize(static_cast<std::size_t>(totals.batches));
  const std::vector<std::int64_t> numbers = number_samples(all, totals.first_sample);
  return guarded("evaluate()", [&] {
    pipeline.forward({.seed = seed, .step = steps, .targets = totals.targets}, all);
    double sum = sum_of_losses(parts.device, passes.losses());
    internal::sum_over_dp(parts.mesh, sum).wait();
    return internal::loss_of_model(parts.mesh, sum) / static_cast<double>(totals.targets);
  });
}

TensorView Engine::State::predict(const TensorView& input) {
  const MicroBatch micro{.input = input, .targets = {}};
  const std::span<const MicroBatch> micros(&micro, 1);
  const auto run = [&](std::vector<Pass>& all) {
    const std::vector<std::int64_t> numbers = number_samples(all, 0);
    return pipeline.predict({.seed = seed, .step = steps}, all);
  };
  if (predicts_together()) {
    const collective::Call named = call("predict()");
    Batches batches = agree_on("predict()", micros, PassMode::prediction);
    return guarded("predict()", [&] { return run(batches.passes); });
  }
  require_running();
  require_weights();
  const kernels::FlushDenormals flush;
  std::vector<Pass> all = passes.prepare(micros, PassMode::prediction);
  return run(all);
}

Engine::Engine(Model model, const Layout& layout, collective::Mesh& mesh, kernels::Device& device,
               const OptimizerOptions& optimizer)
    : state_(std::make_unique<State>(std::move(model), layout, mesh, device, optimizer)) {}

Engine::~Engine() = default;

void Engine::initialize(std::uint64_t seed) {
  const collective::Call call = state_->call("initialize()");
  state_->with_plan(nullptr, [&] { state_->initialize(seed); });
}
StepResult Engine::step(std::span<const MicroBatch> micros, const StepOptions& options) {
  const collective::Call call = state_->call("step()");
  const Spec largest = largest_input(micros);
  return state_->with_plan(&largest, [&] { return state_->step(micros, options); });
}
double Engine::evaluate(std::span<const MicroBatch> micros) {
  const collective::Call call = state_->call("evaluate()");
  const Spec largest = largest_input(micros);
  return state_->with_plan(&largest, [&] { return state_->evaluate(micros); });
}
TensorView Engine::predict(const TensorView& input) {
  const Spec in = input.spec();
  return state_->with_plan(&in, [&] { return state_->predict(input); });
}
std::int64_t Engine::steps() const noexcept {
  return state_->steps;
}
const Index& Engine::index() const noexcept {
  return state_->parts.index;
}
const Layout& Engine::layout() const noexcept {
  return state_->parts.layout;
}
const Model& Engine::model() const noexcept {
  return state_->parts.model;
}
const collective::Mesh& Engine::mesh() const noexcept {
  return state_->parts.mesh;
}
kernels::Device& Engine::device() const noexcept {
  return state_->parts.device;
}
const StepTrace& Engine::trace() const noexcept {
  return state_->trace;
}
Engine::Bytes Engine::bytes() const noexcept {
  return {state_->parts.store.bytes(), state_->passes.arena_bytes()};
}
Snapshot Engine::snapshot(int root) {
  const collective::Call call = state_->reading_call("snapshot()");
  return state_->with_plan(nullptr, [&] { return state_->snapshot(root); });
}
void Engine::restore(const Snapshot& snapshot) {
  restore(view_of(snapshot));
}
void Engine::restore(const SnapshotView& snapshot, std::uint64_t identity) {
  const collective::Call call = state_->call("restore()");
  state_->with_plan(nullptr, [&] { state_->restore(snapshot, identity); });
}
std::uint64_t Engine::weights_hash() {
  const collective::Call call = state_->reading_call("weights_hash()");
  return state_->with_plan(nullptr, [&] { return state_->weights_hash(); });
}

}  // namespace troupe::train
