// Tests the page that a worker shares with its agent: names, crashes, and what a hostile worker
// writes there.
#include "troupe/runtime/os/process_page.hpp"

#include "tests/leeway.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>
#include <cstring>
#include <string>
#include <utility>

namespace troupe::os {
namespace process_page_test {
namespace {

/// Runs in a child and returns its status.
template <class Work>
int in_child(const Work& work) {
  const pid_t pid = fork();
  if (pid == 0) {
    const rlimit no_core{};
    setrlimit(RLIMIT_CORE, &no_core);
    work();
    _exit(0);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return status;
}

TEST(ProcessPage, ShowsNamesOfAnotherProcess) {
  Fd fd;
  const ProcessPage page = ProcessPage::create(fd).value();
  EXPECT_EQ(page.name(), "");
  EXPECT_EQ(in_child([&] {
              ProcessPage own = ProcessPage::attach(std::move(fd)).value();
              own.show("first");
              own.show("mix(int)");
            }),
            0);
  EXPECT_EQ(page.name(), "mix(int)");
}

TEST(ProcessPage, BoundsWhatAHostileProcessWrites) {
  Fd fd;
  const ProcessPage page = ProcessPage::create(fd).value();
  EXPECT_NE(ftruncate(fd.get(), 0), 0) << "the size is sealed";
  ProcessPage own = ProcessPage::attach(Fd(dup(fd.get()))).value();
  own.show(std::string(10'000, 'x').c_str());
  EXPECT_EQ(page.name(), std::string(ProcessPage::kMostName, 'x'));
  void* bytes = mmap(nullptr, 4096, PROT_WRITE, MAP_SHARED, fd.get(), 0);
  ASSERT_NE(bytes, MAP_FAILED);
  std::memset(bytes, 0xfe, 4096);  // even: the name counts as written
  EXPECT_LE(page.name().size(), ProcessPage::kMostName);
  std::memset(bytes, 0xff, 4096);
  EXPECT_EQ(page.name(), "");
  munmap(bytes, 4096);
}

TEST(ProcessPage, KeepsTheCrashOfAnotherProcess) {
  if (kLeeway > 2) GTEST_SKIP() << "a sanitizer handles the signals";
  Fd fd;
  const ProcessPage page = ProcessPage::create(fd).value();
  const auto none = page.crash();
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code(), Code::unavailable);
  const int status = in_child([&] {
    ProcessPage own = ProcessPage::attach(std::move(fd)).value();
    own.show("mix(int)");
    record_crashes(own.crash_area());
    (void)::raise(SIGSEGV);
  });
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGSEGV);
  const auto report = page.crash();
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_EQ(report->signal, SIGSEGV);
  EXPECT_TRUE(report->whole);
  EXPECT_FALSE(report->frames.empty());
  EXPECT_EQ(page.name(), "mix(int)") << "the record lies beside the name";
}

TEST(ProcessPage, AForgedCrashIsDamaged) {
  Fd fd;
  const ProcessPage page = ProcessPage::create(fd).value();
  ProcessPage own = ProcessPage::attach(std::move(fd)).value();
  std::memset(own.crash_area().data(), 0xff, own.crash_area().size());
  const auto report = page.crash();
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code(), Code::invalid_argument);
}

}  // namespace
}  // namespace process_page_test
}  // namespace troupe::os
