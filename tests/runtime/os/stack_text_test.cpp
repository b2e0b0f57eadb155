// Tests the text of a crash that crosses processes, and that forged texts do no harm.
#include "troupe/runtime/os/stack_text.hpp"

#include <gtest/gtest.h>
#include <string>

namespace troupe::os {
namespace stack_text_test {
namespace {

CrashReport report_with(std::size_t frames) {
  CrashReport report;
  report.signal = 11;
  report.address = 0x10;
  report.thread = "mix";
  report.thread_id = 7;
  report.whole = true;
  for (std::size_t i = 0; i < frames; ++i)
    report.frames.push_back({"/lib/li\x1b\nb.so", i == 0 ? "2f01" : "", 0x1000 + i});
  return report;
}

TEST(StackText, NamesSignalThreadModulesAndBuilds) {
  EXPECT_EQ(stack_text(report_with(2)),
            "    killed by SIGSEGV at address 0x10 in thread 'mix' (7)\n"
            "    #0 /lib/li??b.so+0x1000 [2f01]\n"
            "    #1 /lib/li??b.so+0x1001");
}

TEST(StackText, KeepsWholeFramesWithinItsBound) {
  const std::string text = stack_text(report_with(kMaxCrashFrames));
  EXPECT_LE(text.size(), kMostStackText);
  const std::string all = stack_text(report_with(200));
  EXPECT_LE(all.size(), kMostStackText);
  const auto last = all.substr(all.rfind('\n'));
  EXPECT_EQ(last.find("    #"), 1u) << last;
  EXPECT_NE(last.find(".so+0x"), std::string::npos) << last;
}

// No frame of these has a build-id, so no child is started.
TEST(StackText, WithoutDebugInformationAFrameIsModuleAndOffset) {
  EXPECT_EQ(readable_stack("    killed\n    #0 /lib/a+b.so+0x12\n    #1 +0xff"),
            "    killed\n    #0 a+b.so+0x12\n    #1 ?+0xff");
}

TEST(StackText, OtherTextsStay) {
  for (const char* text : {"", "    f(int) (a.so+0x12)", "    #", "    #x /a+0x1", "    #1",
                           "    #1 /a+0x", "#1 /a+0xg", "    #99999999999999999999999 /a+0x1",
                           "    #1 /a+0x11111111111111111", "    #1 [2f]"})
    EXPECT_EQ(readable_stack(text), text);
}

}  // namespace
}  // namespace stack_text_test
}  // namespace troupe::os
