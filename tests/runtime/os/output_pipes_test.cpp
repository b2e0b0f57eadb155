// Tests the pipes of workers' output.
#include "troupe/runtime/os/output_pipes.hpp"

#include "troupe/runtime/os/launch.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

namespace troupe::os {
namespace {

std::string read_some(const Fd& fd) {
  char buffer[256];
  const ssize_t n = read(fd.get(), buffer, sizeof buffer);
  return n < 0 ? (errno == EAGAIN ? "empty" : "error")
               : std::string(buffer, static_cast<std::size_t>(n));
}

/// Runs in a child whose output is the pipes' and returns its exit code.
template <class Work>
int in_child(const Work& work) {
  const pid_t pid = fork();
  if (pid == 0) {
    work();
    _exit(0);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(OutputPipes, CarryOutputAndErrorApartWithoutBlocking) {
  OutputPipes pipes = make_output_pipes().value();
  EXPECT_EQ(read_some(pipes.out), "empty");
  EXPECT_EQ(in_child([&] {
              take_output(pipes.ends);
              (void)!write(STDOUT_FILENO, "one\n", 4);
              (void)!write(STDERR_FILENO, "two\n", 4);
            }),
            0);
  EXPECT_EQ(read_some(pipes.out), "one\n");
  EXPECT_EQ(read_some(pipes.err), "two\n");
  pipes.ends = {};
  EXPECT_EQ(read_some(pipes.out), "") << "all ends are closed";
}

TEST(OutputPipes, CloseAtExecAndHoldAtMost64KiB) {
  const OutputPipes pipes = make_output_pipes().value();
  for (const Fd* fd : {&pipes.out, &pipes.err, &pipes.ends.out, &pipes.ends.err}) {
    EXPECT_EQ(fcntl(fd->get(), F_GETFD), FD_CLOEXEC);
    EXPECT_LE(fcntl(fd->get(), F_GETPIPE_SZ), 64 * 1024);
    EXPECT_GE(fd->get(), 3);
  }
}

TEST(OutputPipes, LeaveWhatTheProgramHasPutInTheirPlace) {
  const OutputPipes zygote = make_output_pipes().value();
  OutputPipes worker = make_output_pipes().value();
  worker.ends.instead_of_out = pipe_inode(zygote.ends.out.get());
  worker.ends.instead_of_err = pipe_inode(zygote.ends.err.get());
  ASSERT_NE(worker.ends.instead_of_out, 0U);
  EXPECT_EQ(in_child([&] {
              take_output(zygote.ends);
              const int own = open("/dev/null", O_WRONLY);
              dup2(own, STDERR_FILENO);  // as a program does that writes to a file of its own
              take_output(worker.ends);
              (void)!write(STDOUT_FILENO, "one\n", 4);
              (void)!write(STDERR_FILENO, "two\n", 4);
            }),
            0);
  EXPECT_EQ(read_some(worker.out), "one\n");
  EXPECT_EQ(read_some(worker.err), "empty");
  EXPECT_EQ(read_some(zygote.err), "empty");
}

TEST(OutputPipes, NameTheLimitWhenNoDescriptorIsLeft) {
  EXPECT_EQ(in_child([] {
              rlimit limit{};
              getrlimit(RLIMIT_NOFILE, &limit);
              limit.rlim_cur = 5;
              setrlimit(RLIMIT_NOFILE, &limit);
              const auto pipes = make_output_pipes();
              if (pipes || pipes.error().code() != Code::out_of_memory) _exit(1);
              if (pipes.error().message().find("ulimit -n") == std::string::npos) _exit(2);
            }),
            0);
  EXPECT_FALSE(is_in_upper_half(-1));
  EXPECT_FALSE(is_in_upper_half(3));
  EXPECT_TRUE(is_in_upper_half(static_cast<int>(file_limit() / 2)));
}

}  // namespace
}  // namespace troupe::os
