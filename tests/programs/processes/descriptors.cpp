// Proves that standard input, output and error belong to the program, even when they are closed.
#include "tests/programs/program.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <numeric>
#include <optional>
#include <string_view>
#include <vector>

namespace processes_descriptors {
namespace {

using programs::Program;
using troupe::Context;

/// Returns the target of the descriptor, or an empty text when it is closed.
std::string what_is_at(int fd) {
  char path[64] = {};
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  return ::readlink(link.c_str(), path, sizeof path - 1) < 0 ? "" : path;
}
/// Returns whether the descriptor is none of troupe's: closed, /dev/null, a terminal, or what the
/// program was given.
bool is_no_descriptor_of_troupe(int fd) {
  const std::string to = what_is_at(fd);
  return to.rfind("socket:", 0) != 0 && to.rfind("/memfd:", 0) != 0 &&
         to.rfind("anon_inode:", 0) != 0;
}
bool standard_ones_are_free_of_troupe() {
  return is_no_descriptor_of_troupe(0) && is_no_descriptor_of_troupe(1) &&
         is_no_descriptor_of_troupe(2);
}

/// Writes garbage to the standard descriptors, as a program does that does not know that they are
/// closed. It must not reach one of troupe's descriptors. Pipes are left out, since some workers
/// have the runner's.
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
  /// Descriptors that this process gets afterwards get the lowest free numbers.
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

/// Uses shared memory, workers and an actor, each of which brings descriptors.
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

/// Saves the runner's standard output, and runs a `main` that closes all three descriptors.
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

/// Proves that troupe uses no standard descriptor which is closed before troupe::run.
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

/// Proves that troupe uses no standard descriptor which is closed inside the body.
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

/// Proves that a file which the program opened as its standard input stays there.
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

/// Opens files until the process may have no more.
class AllDescriptors {
 public:
  AllDescriptors() {
    rlimit limits{};
    if (::getrlimit(RLIMIT_NOFILE, &limits) != 0) return;
    limits.rlim_cur = std::min<rlim_t>(limits.rlim_cur, 512);
    ::setrlimit(RLIMIT_NOFILE, &limits);
    for (int fd = 0; (fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;) taken_.push_back(fd);
  }
  AllDescriptors(const AllDescriptors&) = delete;
  AllDescriptors& operator=(const AllDescriptors&) = delete;
  ~AllDescriptors() {
    for (const int fd : taken_) ::close(fd);
  }

 private:
  std::vector<int> taken_;
};

int one() {
  return 1;
}

/// Returns -1 for an error that names the limit.
int names_limit(const troupe::Unavailable& error) {
  return std::string_view(error.what()).find("ulimit -n") != std::string_view::npos ? -1 : -2;
}

/// Returns the sum of 20 tasks, or names_limit().
int start_20(Context& ctx) {
  std::vector<troupe::Ref<int>> ones;
  for (int i = 0; i < 20; ++i) ones.push_back(ctx.submit<one>());
  try {
    int sum = 0;
    for (const auto& ref : ones) sum += ctx.get(ref);
    return sum;
  } catch (const troupe::Unavailable& error) {
    return names_limit(error);
  }
}

struct Hoard {
  troupe::Task<int> start(troupe::ActorContext& ctx, bool without) {
    std::optional<AllDescriptors> all;
    if (without) all.emplace();
    std::vector<troupe::Ref<int>> ones;
    for (int i = 0; i < 20; ++i) ones.push_back(ctx.submit<one>());
    try {
      int sum = 0;
      for (const auto& ref : ones) sum += co_await ref;
      co_return sum;
    } catch (const troupe::Unavailable& error) {
      co_return names_limit(error);
    }
  }
};

/// Proves that a process without a free descriptor is told so, and goes on when it has some.
const Program no_descriptor_is_left{
    "no_descriptor_is_left", {.expect = "-1 20\n-1 20\n", .seconds = 20}, [](Context& ctx) {
      int without = 0;
      {
        const AllDescriptors all;
        without = start_20(ctx);
      }
      std::cout << without << ' ' << start_20(ctx) << '\n';
      const auto actor = ctx.spawn<Hoard>();
      without = ctx.get(actor.call<&Hoard::start>(true));
      std::cout << without << ' ' << ctx.get(actor.call<&Hoard::start>(false)) << '\n';
    }};

}  // namespace
}  // namespace processes_descriptors
