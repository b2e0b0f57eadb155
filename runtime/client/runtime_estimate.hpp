/// The usual run time of a function, from its last runs. A plain state machine, used by
/// TaskManager.
///
///     usual.add(ran);
///     if (usual.known() && running >= usual.too_long()) …
#pragma once

#include "troupe/runtime/base/clock.hpp"

#include <algorithm>
#include <array>
#include <cstddef>

namespace troupe::client {

class RuntimeEstimate {
 public:
  static constexpr std::size_t kEnough = 5;
  static constexpr int kTimes = 3;
  static constexpr Duration kAtLeast = std::chrono::milliseconds(100);

  void add(Duration ran) noexcept { last_[count_++ % last_.size()] = ran; }
  bool known() const noexcept { return count_ >= kEnough; }
  /// Returns three times the median, at least kAtLeast: below that a second attempt gains
  /// nothing.
  Duration too_long() const noexcept {
    auto sorted = last_;
    const auto end = sorted.begin() + static_cast<std::ptrdiff_t>(std::min(count_, last_.size()));
    const auto middle = sorted.begin() + (end - sorted.begin()) / 2;
    std::nth_element(sorted.begin(), middle, end);
    return std::max(kAtLeast, kTimes * *middle);
  }

 private:
  std::array<Duration, 31> last_{};
  std::size_t count_ = 0;
};

}  // namespace troupe::client
