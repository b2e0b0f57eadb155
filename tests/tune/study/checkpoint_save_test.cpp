// Tests the texts about checkpoints that become files.
#include "troupe/tune/study/checkpoint_save.hpp"

#include <gtest/gtest.h>

namespace troupe::tune {
namespace {

TEST(CheckpointSave, CheckpointsThatWillNotFitAreToldWithNeededAndFree) {
  EXPECT_EQ(why_not_all_fit(1 << 20, 4, 9 << 20), "");
  const std::string text = why_not_all_fit(1ull << 30, 256, 100ull << 30);
  EXPECT_NE(text.find("256 trials need 525312 MiB, and 102400 MiB are free"), std::string::npos)
      << text;
  EXPECT_NE(text.find("save_every"), std::string::npos) << text;
}

}  // namespace
}  // namespace troupe::tune
