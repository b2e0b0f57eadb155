// Entry point of the training tests on real processes. This program is driver, agent, zygote and
// workers in turn.
#include "troupe/troupe.hpp"

#include <gtest/gtest.h>
#include <unistd.h>
#include <cstdio>

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  try {
    troupe::enter(argc, argv);
  } catch (const troupe::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
  return RUN_ALL_TESTS();
}
