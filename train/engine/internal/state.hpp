/// Engine::State: the state of an engine and its calls. Each call checks first that the engine is
/// running, and records the error that stops it.
#pragma once

#include "troupe/actors/collective/call.hpp"
#include "troupe/kernels/denormals/denormals.hpp"
#include "troupe/train/checkpoint/folder/staged_state.hpp"
#include "troupe/train/engine/engine.hpp"
#include "troupe/train/engine/internal/parts.hpp"
#include "troupe/train/engine/internal/passes.hpp"
#include "troupe/train/engine/internal/pipeline.hpp"
#include "troupe/train/engine/internal/totals.hpp"
#include "troupe/train/engine/internal/update.hpp"
#include "troupe/train/engine/internal/with_plan.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace troupe::train {

namespace internal {

/// The input of a call once all ranks agree: this rank's passes, and the totals over all ranks.
struct Batches {
  std::vector<Pass> passes;
  Totals totals;
};

}  // namespace internal

struct Engine::State {
  State(Model model, const Layout& layout, collective::Mesh& mesh, kernels::Device& device,
        const OptimizerOptions& optimizer)
      : parts(std::move(model), layout, mesh, device, optimizer),
        passes(parts),
        pipeline(parts, passes),
        update(parts) {
    if (layout.compute == DType::f16) scaler.emplace(optimizer.loss_scaler);
  }

  /// Runs a call that communicates or changes values. An exception in it stops the engine,
  /// because ranks may be at different places, and aborts the group so that no rank waits. An
  /// error of an operation that only the device has waited for does the same.
  template <class F>
  auto guarded(const char* what, F&& call) {
    require_running();
    const kernels::FlushDenormals flush;
    try {
      const auto check = [this] { parts.require_sound(); };
      if constexpr (std::is_void_v<std::invoke_result_t<F>>) {
        std::forward<F>(call)();
        return check();
      } else {
        auto result = std::forward<F>(call)();
        check();
        return result;
      }
    } catch (...) {
      stop(what);
      throw;
    }
  }
  /// Returns the result of the call. Adds memory_sentence() for `in` to the message of an
  /// OutOfMemory.
  template <class F>
  auto with_plan(const Spec* in, F&& call) {
    return internal::with_plan(parts.model, parts.layout, parts.place(), in, parts.optimizer,
                               std::forward<F>(call));
  }
  /// Begins a call that every rank makes. `made`: by some rank, if it involves no other.
  collective::Call call(const char* name,
                        collective::Call::Made made = collective::Call::Made::by_all_ranks) {
    return {internal::world_of(parts.mesh), name, made};
  }
  /// Like call(), for a call that reads whole tensors.
  collective::Call reading_call(const char* name) {
    const bool divided = (parts.mesh.dp != nullptr && parts.layout.zero > 0) ||
                         parts.layout.tp > 1 || parts.layout.pp > 1;
    return call(name, divided ? collective::Call::Made::by_all_ranks
                              : collective::Call::Made::by_some_rank);
  }
  /// Returns whether ranks predict together.
  bool predicts_together() const noexcept {
    return (parts.mesh.dp != nullptr && parts.layout.zero == 3) || parts.layout.tp > 1 ||
           parts.layout.pp > 1;
  }
  void require_running() const;
  /// Throws InvalidArgument before the first initialize() or restore().
  void require_weights() const;
  /// Records the exception in flight and aborts the group. Call it inside a catch block.
  void stop(const char* what) noexcept;

  /// Agrees with all ranks before a collective call. `prepare` checks this rank's arguments and
  /// returns its counts. When it throws, agree() rethrows the exception here and throws
  /// InvalidArgument on the other ranks. All ranks throw InvalidArgument when Counts::common
  /// differs (`common` names it), or when ranks of one dp index have different micro-batches.
  /// After any of these nothing has changed and the engine stays usable, since every rank has
  /// made the same calls.
  internal::Totals agree(const char* what, const char* common,
                         const std::function<internal::Counts()>& prepare);
  /// Like agree(), for micro-batches, and makes room for them. `check` checks other arguments
  /// first and returns Counts::common.
  internal::Batches agree_on(const char* what, std::span<const MicroBatch> micros,
                             internal::PassMode mode,
                             const std::function<std::uint64_t()>& check = {});

  void initialize(std::uint64_t with_seed);
  StepResult step(std::span<const MicroBatch> micros, const StepOptions& options);
  double evaluate(std::span<const MicroBatch> micros);
  TensorView predict(const TensorView& input);
  void run_step(std::vector<internal::Pass>& all, const internal::Totals& totals, float rate,
                StepResult& result);

  // snapshots.cpp
  Snapshot snapshot(int root);
  void restore(const SnapshotView& snapshot, std::uint64_t identity);
  std::uint64_t weights_hash();

  // staging.cpp
  void stage(StagedState& to);

  internal::Parts parts;
  internal::Passes passes;
  internal::Pipeline pipeline;
  internal::Update update;
  bool said_moments = false;  ///< that a snapshot had no moments; said once
  bool has_weights = false;   ///< since initialize() or restore()
  std::uint64_t seed = 0;
  std::int64_t steps = 0;
  std::optional<LossScaler> scaler;  ///< f16
  StepTrace trace;
  std::shared_ptr<const StagePlan> stage_plan;  ///< made by the first stage()
  std::string stopped;                          ///< why the engine stopped; empty while it runs
};

}  // namespace troupe::train
