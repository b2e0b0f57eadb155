/// Proves that the error of a crash names the line, in a task and in an actor.
#include "tests/leeway.hpp"
#include "tests/programs/program.hpp"

#include <sys/resource.h>
#include <string>

namespace failures_crash {
namespace {

using programs::Program;
using troupe::Context;

constexpr bool kSanitized = kLeeway > 2;  // a sanitizer handles the signal

int* volatile g_nowhere = nullptr;
constexpr int kLine = __LINE__ + 4;
[[gnu::noinline]] int falls() {
  const rlimit no_core{};
  setrlimit(RLIMIT_CORE, &no_core);
  *g_nowhere = 1;
  return 0;
}

class Fragile {
 public:
  int fall() { return falls(); }
};

/// Returns "line", or what the error has instead.
template <class Ask>
std::string place_of(const Ask& ask) {
  try {
    ask();
  } catch (const troupe::Error& error) {
    const std::string& stack = error.remote_stack();
#ifdef TROUPE_HAS_LIBDW
    const bool named = stack.find("crash.cpp:" + std::to_string(kLine)) != std::string::npos;
#else
    const bool named = stack.find("programs_failures+0x") != std::string::npos;
#endif
    return named || kSanitized ? "line\n" : error.what() + ("\n" + stack) + "\n";
  }
  return "no error\n";
}

const Program in_task{"a_crash_in_a_task_has_its_line", {.expect = "line\n"}, [](Context& ctx) {
                        const auto once = ctx.with(troupe::TaskOptions{.max_retries = 0});
                        std::cout << place_of([&] { (void)ctx.get(once.submit<falls>()); });
                      }};

const Program in_actor{"a_crash_in_an_actor_has_its_line", {.expect = "line\n"}, [](Context& ctx) {
                         auto actor = ctx.spawn<Fragile>();
                         std::cout
                             << place_of([&] { (void)ctx.get(actor.call<&Fragile::fall>()); });
                       }};

/// Proves that a crash that nobody catches is printed with its stack.
const Program uncaught{"a_crash_that_nobody_catches_is_printed_with_its_stack",
                       {.exit_code = 1, .says = kSanitized ? "worker_died" : "    #0 "},
                       [](Context& ctx) {
                         const auto once = ctx.with(troupe::TaskOptions{.max_retries = 0});
                         (void)ctx.get(once.submit<falls>());
                       }};

}  // namespace
}  // namespace failures_crash
