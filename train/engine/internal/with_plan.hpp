/// Errors of memory that say what a layout needs and which others need less.
#pragma once

#include "troupe/runtime/base/error.hpp"
#include "troupe/train/engine/model_plan.hpp"

#include <exception>
#include <string>
#include <utility>

namespace troupe::train::internal {

/// memory_sentence(), or nothing when the model cannot be planned.
inline std::string plan_sentence(const Model& model, const Layout& layout, const RankPlace& rank,
                                 const Spec* in, const OptimizerOptions& optimizer) {
  try {
    return "; " + memory_sentence(model, layout, in, optimizer, rank);
  } catch (const std::exception&) {
    return {};
  }
}

/// The call's result; an OutOfMemory of it says the plan as well.
template <class F>
auto with_plan(const Model& model, const Layout& layout, const RankPlace& rank, const Spec* in,
               const OptimizerOptions& optimizer, F&& call) {
  try {
    return std::forward<F>(call)();
  } catch (const OutOfMemory& error) {
    throw OutOfMemory(error.code(),
                      error.message() + plan_sentence(model, layout, rank, in, optimizer));
  }
}

}  // namespace troupe::train::internal
