/// Adds to OutOfMemory errors what a layout needs, and which layouts need less.
#pragma once

#include "troupe/runtime/base/error.hpp"
#include "troupe/train/engine/model_plan.hpp"

#include <exception>
#include <string>
#include <utility>

namespace troupe::train::internal {

/// Returns memory_sentence(), or an empty text when the model cannot be planned.
inline std::string plan_sentence(const Model& model, const Layout& layout, const RankPlace& rank,
                                 const Spec* in, const OptimizerOptions& optimizer) {
  try {
    return "; " + memory_sentence(model, layout, in, optimizer, rank);
  } catch (const std::exception&) {
    return {};
  }
}

/// Returns the result of the call. Adds the plan to the message of an OutOfMemory.
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
