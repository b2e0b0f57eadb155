// Entry point of the tests on real processes. This program is driver, agent, zygote and workers
// in turn.
#include "troupe/troupe.hpp"

#include <gtest/gtest.h>
#include <unistd.h>
#include <cstdio>
#include <cstdlib>

int main(int argc, char** argv) {
  if (std::getenv("TROUPE_TEST_EXIT_EARLY") != nullptr) return 5;  // Cleanup: an early end
  testing::InitGoogleTest(&argc, argv);
  if (std::getenv("TROUPE_TEST_CHILD") == nullptr)
    (void)::setsid();  // distinguishes this program's processes from those of other tests
  try {
    troupe::enter(argc, argv);
  } catch (const troupe::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
  return RUN_ALL_TESTS();
}
