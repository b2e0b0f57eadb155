#include "troupe/train/engine/estimate.hpp"

#include "troupe/train/engine/internal/gathers.hpp"

#include <algorithm>

namespace troupe::train {
namespace {

/// How often each unit is gathered.
std::vector<std::int64_t> gathers_of(const Index& index, int micro) {
  const internal::UnitsOfLayers units = internal::units_of_layers(index);
  std::vector<std::int64_t> count(units.size());
  const std::vector<int>* before = nullptr;
  for (const int layer : internal::visits_of(static_cast<int>(units.size()),
                                             internal::Walk::forward_and_backward, micro)) {
    const std::vector<int>& now = units[static_cast<std::size_t>(layer)];
    if (now.empty()) continue;
    for (const int unit : now)
      if (before == nullptr || std::find(before->begin(), before->end(), unit) == before->end())
        ++count[static_cast<std::size_t>(unit)];
    before = &now;
  }
  return count;
}

}  // namespace

std::uint64_t StepTraffic::payload(int ranks) const noexcept {
  const std::int64_t factor = ranks - 1;
  return static_cast<std::uint64_t>((2 * all_reduced + scattered + gathered) * factor / ranks);
}

StepTraffic step_traffic(const Index& index, const Layout& layout) {
  StepTraffic traffic;
  if (layout.dp == 1) return traffic;
  const std::vector<std::int64_t> gathers = gathers_of(index, layout.micro);
  for (std::size_t u = 0; u < index.units().size(); ++u) {
    const std::int64_t bytes = index.units()[u].used * kernels::size_of(DType::f32);
    if (layout.zero == 0) traffic.all_reduced += bytes;
    if (layout.zero >= 1) traffic.scattered += bytes * (layout.zero >= 2 ? layout.micro : 1);
    if (layout.zero >= 1) traffic.gathered += bytes * (layout.zero == 3 ? gathers[u] : 1);
  }
  return traffic;
}

}  // namespace troupe::train
