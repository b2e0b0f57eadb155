/// An engine's state and its calls, each between a check that the engine still runs and a note of
/// what stopped it.
#pragma once

#include "troupe/kernels/denormals/denormals.hpp"
#include "troupe/train/engine/engine.hpp"
#include "troupe/train/engine/internal/parts.hpp"
#include "troupe/train/engine/internal/passes.hpp"
#include "troupe/train/engine/internal/pipeline.hpp"
#include "troupe/train/engine/internal/totals.hpp"
#include "troupe/train/engine/internal/update.hpp"
#include "troupe/train/engine/internal/with_plan.hpp"

#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace troupe::train {

namespace internal {

/// What all ranks go on with: this one's passes, and the numbers of all.
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

  /// Runs what talks with other ranks or changes values. An exception in it stops the engine: the
  /// ranks may have come to different places. It ends the group, so that no rank waits. So does an
  /// error of an operation that only the device has waited for.
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
  /// The call's result; an OutOfMemory of it says the plan as well. `in`: as memory_sentence().
  template <class F>
  auto with_plan(const Spec* in, F&& call) {
    return internal::with_plan(parts.model, parts.layout, parts.place(), in, parts.optimizer,
                               std::forward<F>(call));
  }
  void require_running() const;
  /// Inside a handler.
  void stop(const char* what) noexcept;

  /// Before a call in which all ranks take part: `prepare` checks what this rank was given and says
  /// its numbers. When it throws, its exception is thrown here and InvalidArgument on the other
  /// ranks. All ranks throw one when Counts::common differs, which is what `common` names, or when
  /// ranks of one dp index have different micro-batches. Then every rank has made the same calls,
  /// nothing has changed and the engine goes on.
  internal::Totals agree(const char* what, const char* common,
                         const std::function<internal::Counts()>& prepare);
  /// The same for micro-batches, behind a check of other arguments, which returns Counts::common;
  /// makes room for them.
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
  void restore(const SnapshotView& snapshot);
  std::uint64_t weights_hash();

  internal::Parts parts;
  internal::Passes passes;
  internal::Pipeline pipeline;
  internal::Update update;
  std::uint64_t seed = 0;
  std::int64_t steps = 0;
  std::optional<LossScaler> scaler;  ///< f16
  StepTrace trace;
  std::string stopped;  ///< why; empty while it runs
};

}  // namespace troupe::train
