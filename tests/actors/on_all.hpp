/// Runs the ranks of a group side by side, and compares what they threw.
#pragma once

#include "troupe/actors/collective/communicator.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace troupe::collective {

/// Runs f(the rank's communicator) on a thread for each rank; returns the text of each rank's first
/// exception.
inline std::vector<std::string> on_all(std::vector<std::unique_ptr<Communicator>>& group,
                                       const std::function<void(Communicator&)>& f) {
  std::vector<std::string> errors(group.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < group.size(); ++r)
    threads.emplace_back([&, r] {
      try {
        f(*group[r]);
      } catch (const Error& e) {
        errors[r] = std::string(name_of(e.code())) + ": " + e.message();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

inline void expect_none(const std::vector<std::string>& errors) {
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

}  // namespace troupe::collective
