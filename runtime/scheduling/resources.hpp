/// Amounts of resources that a node has or a demand needs, in fixed point, so that sums are
/// exact.
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
/// The largest amount: sums of a few of them do not overflow, and no node has as much.
inline constexpr std::int64_t kMostAmount = std::int64_t{1} << 61;

/// Returns an amount from outside, cut to kMostAmount.
constexpr std::int64_t at_most_amount(std::uint64_t amount) {
  constexpr auto kMost = static_cast<std::uint64_t>(kMostAmount);
  return static_cast<std::int64_t>(amount < kMost ? amount : kMost);
}

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

  /// Returns the amount of a custom resource; zero when there is none.
  Amount custom_amount(const std::string& name) const {
    for (const auto& [key, amount] : custom)
      if (key == name) return amount;
    return 0;
  }
};

/// Brings a need from outside into the form that the policy and the lease table expect: amounts
/// within ±kMostAmount, custom resources sorted by name, each name once (amounts of equal names
/// add up).
void normalize(Resources& need);

/// Format an amount for a sentence: "2 GPU", "0.5 CPU", "3 license", "512 MiB".
std::string amount_text(Amount amount, const std::string& unit);
std::string memory_text(std::int64_t bytes);

}  // namespace troupe::scheduling
