#include "troupe/runtime/client/demand.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>

namespace troupe::client {

wire::ResourceDemand demand_of(const detail::Request& request, double default_cpus) {
  const auto fixed = [](double amount) {
    return static_cast<std::int64_t>(std::llround(amount * 10'000));
  };
  wire::ResourceDemand demand;
  demand.cpus = fixed(request.cpus.value_or(default_cpus));
  demand.gpus = fixed(request.gpus);
  demand.memory_bytes = request.memory.count;
  for (const auto& [name, amount] : request.resources)
    demand.resources.emplace_back(name, fixed(amount));
  demand.labels = request.labels;
  demand.placement = static_cast<std::uint8_t>(request.placement);
  demand.node = request.node;
  demand.soft = request.soft;
  return demand;
}

void check_amounts(const detail::Request& request) {
  constexpr double kMost = 1e9, kLeast = 0.0001;
  const auto check = [](const char* what, double amount) {
    if (amount == 0 || (amount >= kLeast && amount <= kMost)) return;
    char text[32];
    std::snprintf(text, sizeof text, "%.6g", amount);
    throw InvalidArgument(Code::invalid_argument,
                          std::string("option '") + what + "' is " + text +
                              ": give 0, or a number from 0.0001 to 1e9",
                          Outcome::not_executed);
  };
  check("cpus", request.cpus.value_or(0));
  check("gpus", request.gpus);
  for (const auto& [name, amount] : request.resources) check(name.c_str(), amount);
  if (request.max_restarts < -1 || request.max_retries < -1)
    throw InvalidArgument(
        Code::invalid_argument,
        "options 'max_restarts' and 'max_retries' are -1 (without limit), 0 or more, not " +
            std::to_string(std::min(request.max_restarts, request.max_retries)),
        Outcome::not_executed);
}

}  // namespace troupe::client
