// Tests the lines of the log: their prefix and their limit, and that no writer waits for a reader.
#include "troupe/runtime/base/log.hpp"

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/fd.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <string>

namespace troupe {
namespace {

using namespace std::chrono_literals;

TEST(LogLine, IsOneLineWithItsPrefix) {
  testing::internal::CaptureStderr();
  log_line("%s ends: %d", "node1", 7);
  flush_log();
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "troupe: node1 ends: 7\n");
}

TEST(LogLine, IsCutAtItsLimitAndStillEnds) {
  testing::internal::CaptureStderr();
  log_line("%s", std::string(10'000, 'x').c_str());
  flush_log();
  const std::string line = testing::internal::GetCapturedStderr();
  EXPECT_EQ(line.size(), 8 + 4095 + 1u);
  EXPECT_EQ(line.back(), '\n');
  EXPECT_EQ(line.find('\n'), line.size() - 1);
}

TEST(LogLine, AFloodBecomesOneLine) {
  testing::internal::CaptureStderr();
  for (int i = 0; i < 30'000; ++i) log_counted("calls", "call %d failed", i);
  flush_log();
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "troupe: call 0 failed (the first of 30000 such lines)\n");
}

/// The error output of this process, as a pipe that is full.
class FullPipe {
 public:
  FullPipe() {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    read_ = Fd(ends[0]);
    before_ = Fd(::dup(STDERR_FILENO));
    ::dup2(ends[1], STDERR_FILENO);
    ::close(ends[1]);
    ::fcntl(STDERR_FILENO, F_SETFL, O_NONBLOCK);
    const std::string piece(4096, '.');
    while (::write(STDERR_FILENO, piece.data(), piece.size()) > 0) {
    }
    EXPECT_EQ(errno, EAGAIN);
    ::fcntl(STDERR_FILENO, F_SETFL, 0);
  }
  FullPipe(const FullPipe&) = delete;
  FullPipe& operator=(const FullPipe&) = delete;
  ~FullPipe() { restore(); }
  void restore() {
    if (before_) ::dup2(before_.get(), STDERR_FILENO);
    before_ = {};
  }
  /// Reads until the text comes, or the writer has nothing more for a while.
  std::string read_until(const std::string& wanted) {
    std::string all;
    pollfd entry{read_.get(), POLLIN, 0};
    char buffer[4096];
    while (all.find(wanted) == std::string::npos && ::poll(&entry, 1, 20'000) == 1) {
      const ssize_t n = ::read(read_.get(), buffer, sizeof buffer);
      if (n <= 0) break;
      all.append(buffer, static_cast<std::size_t>(n));
    }
    return all;
  }

 private:
  Fd read_, before_;
};

TEST(LogLine, WaitsForNoReaderAndCountsWhatIsLost) {
  FullPipe pipe;
  const Time from = steady_now();
  for (int i = 0; i < 20'000; ++i) log_line("line %d of many", i);
  log_line_now("no room");
  EXPECT_LT(steady_now() - from, 10s);  // it took for ever
  const Time flushed = steady_now();
  flush_log(10ms);
  EXPECT_LT(steady_now() - flushed, 10s);
  const std::string said = pipe.read_until("lines are lost here");
  EXPECT_NE(said.find("troupe: line 0 of many\ntroupe: line 1 of many\n"), std::string::npos);
  EXPECT_EQ(said.find("line 19999 of many"), std::string::npos);
  EXPECT_EQ(said.find("no room"), std::string::npos);
  flush_log();
}

// ThreadSanitizer starts no threads after a fork.
#if defined(__SANITIZE_THREAD__)
#define TROUPE_SKIP_FORKS GTEST_SKIP()
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TROUPE_SKIP_FORKS GTEST_SKIP()
#endif
#endif
#if !defined(TROUPE_SKIP_FORKS)
#define TROUPE_SKIP_FORKS
#endif

/// Returns the child's exit code, or 128 and the number of its signal.
template <class Body>
int in_a_child(const Body& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    body();
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

TEST(LogLine, AFullPipeKeepsNoProcessFromItsEnd) {
  TROUPE_SKIP_FORKS;
  FullPipe pipe;
  EXPECT_EQ(in_a_child([] {
              log_line("before the end");
              log_last_words("last words\n");
              std::exit(7);
            }),
            7);
  EXPECT_EQ(in_a_child([] { assert_failed("x", "why", "file", 1); }), 128 + SIGABRT);
}

TEST(LogLine, AForkHasALogOfItsOwn) {
  TROUPE_SKIP_FORKS;
  testing::internal::CaptureStderr();
  log_line("the parent's");
  flush_log();
  EXPECT_EQ(in_a_child([] {
              log_line("the child's");
              flush_log();
              _exit(0);  // exit() would look for leaks, which prints lines of its own
            }),
            0);
  log_line("the parent's last");
  flush_log();
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "troupe: the parent's\ntroupe: the child's\ntroupe: the parent's last\n");
}

TEST(LogLine, ExitWritesWhatIsQueued) {
  TROUPE_SKIP_FORKS;
  testing::internal::CaptureStderr();
  EXPECT_EQ(in_a_child([] {
              for (int i = 0; i < 100; ++i) log_line("line %d", i);
              log_counted("calls", "a call failed");
              std::exit(0);
            }),
            0);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("troupe: line 99\ntroupe: a call failed\n"), std::string::npos) << said;
}

}  // namespace
}  // namespace troupe
