/// The value of CUDA_VISIBLE_DEVICES for a process that has some of its node's GPUs.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace troupe::client {

/// Returns the names of `gpus`, which are numbers of this node's devices. `inherited` is the
/// variable's value for the whole node, if it had one. The n-th device of the node is the n-th
/// that `inherited` names, by number or by UUID.
inline std::string visible_devices(const std::vector<int>& gpus, const char* inherited) {
  std::vector<std::string> names;
  for (std::string_view left = inherited != nullptr ? inherited : ""; !left.empty();) {
    const std::size_t comma = left.find(',');
    names.emplace_back(left.substr(0, comma));
    left.remove_prefix(comma == std::string_view::npos ? left.size() : comma + 1);
  }
  std::string text;
  for (const int gpu : gpus) {
    const auto place = static_cast<std::size_t>(gpu);
    if (!text.empty()) text += ',';
    text += place < names.size() ? names[place] : std::to_string(gpu);
  }
  return text;
}

}  // namespace troupe::client
