/// Amounts of what a node has and a shape needs, in fixed point, so that sums are exact.
///
///     Resources node{.cpus = 8 * kUnit, .gpus = 2 * kUnit, .memory = 64ull << 30};
///     Resources need{.cpus = kUnit / 2};
///     node.custom = {{"license", 3 * kUnit}};            // sorted by name
///     Amount half = amount_of(0.5);                       // 5000
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace troupe::scheduling {

/// 1/10000 of a unit.
using Amount = std::int64_t;
inline constexpr Amount kUnit = 10'000;

/// Rounds to the nearest 1/10000. Precondition: finite and within ±9e14.
inline Amount amount_of(double units) {
  return static_cast<Amount>(std::llround(units * static_cast<double>(kUnit)));
}

using Labels = std::vector<std::pair<std::string, std::string>>;

struct Resources {
  Amount cpus = 0;
  Amount gpus = 0;
  std::int64_t memory = 0;  ///< bytes
  std::vector<std::pair<std::string, Amount>> custom;
  friend bool operator==(const Resources&, const Resources&) = default;

  /// Zero when there is none.
  Amount custom_amount(const std::string& name) const {
    for (const auto& [key, amount] : custom)
      if (key == name) return amount;
    return 0;
  }
};

/// "2 GPU", "0.5 CPU", "3 license", "512 MiB memory": for sentences.
std::string amount_text(Amount amount, const std::string& unit);
std::string memory_text(std::int64_t bytes);

}  // namespace troupe::scheduling
