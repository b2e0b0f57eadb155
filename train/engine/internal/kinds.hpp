/// The kinds of tensors in a snapshot. Each kind has every tensor, under a name with its prefix.
#pragma once

#include "troupe/train/optimizers/optimizer.hpp"
#include "troupe/train/params/store.hpp"

#include <cstddef>
#include <span>
#include <string_view>

namespace troupe::train::internal {

struct Kind {
  Part part;
  std::string_view prefix;
};
inline constexpr Kind kKinds[] = {{Part::weights, ""},
                                  {Part::first_moment, "optimizer.m."},
                                  {Part::second_moment, "optimizer.v."}};

/// Returns the kinds that an engine with this optimizer has.
inline std::span<const Kind> kinds_of(const OptimizerOptions& optimizer) {
  return std::span(kKinds).first(std::size_t{1} + static_cast<std::size_t>(optimizer.moments()));
}

}  // namespace troupe::train::internal
