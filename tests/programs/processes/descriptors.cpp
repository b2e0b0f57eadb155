// Standard input, output and error belong to the program, also when they are closed.
#include "tests/programs/program.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <numeric>

namespace processes_descriptors {
namespace {

using programs::Program;
using troupe::Context;

/// Empty when it is closed.
std::string what_is_at(int fd) {
  char path[64] = {};
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  return ::readlink(link.c_str(), path, sizeof path - 1) < 0 ? "" : path;
}
/// What a program may find there: nothing, /dev/null, a terminal, or what it was given.
bool is_no_descriptor_of_troupe(int fd) {
  const std::string to = what_is_at(fd);
  return to.rfind("socket:", 0) != 0 && to.rfind("/memfd:", 0) != 0 &&
         to.rfind("anon_inode:", 0) != 0;
}
bool standard_ones_are_free_of_troupe() {
  return is_no_descriptor_of_troupe(0) && is_no_descriptor_of_troupe(1) &&
         is_no_descriptor_of_troupe(2);
}

/// Garbage for whoever reads there, as a program writes it that does not know that they are closed.
/// (Not into the runner's pipes, which workers of some of these programs have.)
void write_everywhere() {
  const std::string garbage(5000, 'x');
  for (const int fd : {0, 1, 2})
    if (what_is_at(fd).rfind("pipe:", 0) != 0 && ::write(fd, garbage.data(), garbage.size()) < 0)
      continue;
}

long noisy_sum(std::vector<long> values) {
  write_everywhere();
  return standard_ones_are_free_of_troupe() ? std::accumulate(values.begin(), values.end(), 0L)
                                            : -1;
}

struct Closing {
  long sum = 0;
  /// What comes for this process afterwards gets the lowest number that is free.
  bool close_standard_ones() {
    for (const int fd : {0, 1, 2}) ::close(fd);
    return true;
  }
  long add(std::vector<long> values) {
    write_everywhere();
    if (!standard_ones_are_free_of_troupe()) return -1;
    return sum += static_cast<long>(values.size());
  }
};

/// Shared memory, workers, an actor: each brings descriptors.
long work(Context& ctx) {
  const auto actor = ctx.spawn<Closing>();
  if (!ctx.get(actor.call<&Closing::close_standard_ones>())) return -1;
  const std::vector<long> ones(100'000, 1);
  long sum = 0;
  for (int i = 0; i < 4; ++i) {
    write_everywhere();
    const auto shared = ctx.put(ones);
    const long tasks = ctx.get(ctx.submit<noisy_sum>(shared));
    const long calls = ctx.get(actor.call<&Closing::add>(shared));
    if (tasks < 0 || calls < 0 || !standard_ones_are_free_of_troupe()) return -1;
    sum += tasks;
  }
  return sum;
}

/// Keeps the runner's standard output, and closes all three.
int closed_until(int (*main)(int&, char**, long&), int& argc, char** argv) {
  const int output = ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 10);
  long sum = -2;
  const int code = main(argc, argv, sum);
  if (output >= 0) ::dup2(output, STDOUT_FILENO);
  std::cout.clear();
  std::cout << sum << '\n';
  return code;
}

long* g_sum = nullptr;

const Program closed_before_run{
    "closed_before_run", {.expect = "400000\n", .plain_only = true}, [](int& argc, char** argv) {
      return closed_until(
          [](int& c, char** v, long& sum) {
            g_sum = &sum;
            for (const int fd : {0, 1, 2}) ::close(fd);
            return troupe::run(c, v, [](Context& ctx) { *g_sum = work(ctx); });
          },
          argc, argv);
    }};

const Program closed_in_the_body{
    "closed_in_the_body", {.expect = "400000\n", .plain_only = true}, [](int& argc, char** argv) {
      return closed_until(
          [](int& c, char** v, long& sum) {
            g_sum = &sum;
            return troupe::run(c, v, [](Context& ctx) {
              for (const int fd : {0, 1, 2}) ::close(fd);
              *g_sum = work(ctx);
            });
          },
          argc, argv);
    }};

/// A file that the program has opened as its standard input stays there.
const Program own_standard_input{
    "own_standard_input", {.expect = "100000\n", .plain_only = true}, [](int& argc, char** argv) {
      return closed_until(
          [](int& c, char** v, long& sum) {
            g_sum = &sum;
            char name[] = "/tmp/troupe-programs-XXXXXX";
            ::close(STDIN_FILENO);
            const int fd = ::mkstemp(name);
            ::unlink(name);
            if (fd != STDIN_FILENO) return 3;
            const std::string_view text = "the program's own";
            if (::write(fd, text.data(), text.size()) < 0) return 4;
            return troupe::run(c, v, [](Context& ctx) {
              for (const int one : {1, 2}) ::close(one);
              const long sum = ctx.get(ctx.submit<noisy_sum>(std::vector<long>(100'000, 1)));
              char read_back[64] = {};
              const bool same = ::pread(STDIN_FILENO, read_back, sizeof read_back - 1, 0) == 17 &&
                                std::string_view(read_back) == "the program's own";
              *g_sum = same ? sum : -1;
            });
          },
          argc, argv);
    }};

}  // namespace
}  // namespace processes_descriptors
