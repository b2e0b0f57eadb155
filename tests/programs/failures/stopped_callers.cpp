/// Proves that a stopped process keeps no resources that it does not use, and loses no task.
#include "tests/programs/program.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <chrono>
#include <csignal>
#include <string>
#include <thread>
#include <vector>

namespace failures_stopped_callers {
namespace {

using namespace std::chrono_literals;
using programs::Program;
using troupe::ActorContext;
using troupe::Context;
using troupe::Ref;

/// Adds a byte to the file, so that its size counts the runs.
int count_in(const std::string& file) {
  std::this_thread::sleep_for(5ms);
  const int fd = ::open(file.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  const bool counted = fd >= 0 && ::write(fd, "x", 1) == 1;
  ::close(fd);
  return counted ? 1 : 0;
}
int one() {
  return 1;
}

struct Caller {
  std::vector<Ref<int>> counts;
  int begin(ActorContext& ctx, const std::string& file, int tasks) {
    for (int i = 0; i < tasks; ++i) counts.push_back(ctx.submit<count_in>(file));
    return ::getpid();
  }
  troupe::Task<int> sum() {
    int all = 0;
    for (const Ref<int>& count : counts) all += co_await count;
    co_return all;
  }
};

const Program stopped_caller{"the_leases_of_a_stopped_caller_go_to_others",
                             {.expect = "1\n400 400\n", .seconds = 30},
                             [](Context& ctx) {
                               const std::string file =
                                   "/tmp/troupe-stopped-caller-" + std::to_string(::getpid());
                               const auto caller = ctx.spawn<Caller>();
                               const int pid = ctx.get(caller.call<&Caller::begin>(file, 400));
                               ::kill(pid, SIGSTOP);
                               try {
                                 std::cout << ctx.get(ctx.submit<one>(), 5s) << std::endl;
                               } catch (const troupe::TimedOut& error) {
                                 std::cout << error.what() << std::endl;
                               }
                               ::kill(pid, SIGCONT);
                               const int sum = ctx.get(caller.call<&Caller::sum>());
                               struct stat runs{};
                               ::stat(file.c_str(), &runs);
                               ::unlink(file.c_str());
                               std::cout << sum << ' ' << runs.st_size << '\n';
                             }};

}  // namespace
}  // namespace failures_stopped_callers
