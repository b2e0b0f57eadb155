/// Waits until a condition holds, and returns whether it did within the limit.
#pragma once

#include <chrono>
#include <thread>

template <class IsSo>
bool eventually(const IsSo& is_so, std::chrono::milliseconds limit = std::chrono::seconds(20)) {
  for (const auto until = std::chrono::steady_clock::now() + limit; !is_so();
       std::this_thread::sleep_for(std::chrono::milliseconds(2)))
    if (std::chrono::steady_clock::now() > until) return false;
  return true;
}
