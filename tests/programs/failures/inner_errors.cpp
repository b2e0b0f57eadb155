// Proves that an inner error which leaves user code does not hide that the user's code has run.
#include "tests/programs/program.hpp"

#include <unistd.h>
#include <cstdio>
#include <fstream>

namespace failures_inner_errors {
namespace {

using programs::Program;
using troupe::Context;
using troupe::Ref;
using troupe::Task;

int same(int x) {
  return x;
}
Ref<int> impossible(Context& ctx) {
  return ctx.with({.cpus = 1e6}).submit<same>(1);
}

/// Prints the error, whether its work was executed, and the innermost cause.
template <class Work>
void tell(const Work& work) {
  try {
    work();
    std::cout << "nothing\n";
  } catch (const troupe::Error& error) {
    auto inner = error.cause();
    while (inner && inner->cause()) inner = inner->cause();
    std::cout << name_of(error.code()) << ' ' << name_of(error.outcome()) << ' '
              << (inner ? name_of(inner->code()) : "alone")
              << (inner && error.message().find(inner->message()) != std::string::npos ? " told"
                                                                                       : "")
              << '\n';
  }
}

int task(Context& ctx) {
  return ctx.get(impossible(ctx));
}
Task<int> coroutine(Ref<int> inner) {
  co_return co_await inner;
}
Task<int> waits_first(Ref<int> first, Ref<int> second) {
  const int x = co_await first;
  co_return x + co_await second;
}
int throws_by_hand() {
  throw troupe::Unavailable(troupe::Code::unavailable, "my own server is away");
}
Ref<int> nothing() {
  return {};
}
int deep(Context& ctx, int levels) {
  return levels == 0 ? task(ctx) : ctx.get(ctx.submit<deep>(levels - 1));
}

struct Asker {
  explicit Asker(Ref<int> first) : asked(first) {}
  Ref<int> asked;
  Task<int> ask() { co_return co_await asked; }
  int refuse() { throw troupe::Infeasible(troupe::Code::infeasible, "not here"); }
};
struct NeverMade {
  explicit NeverMade(int x) {
    if (x > 0) throw troupe::Infeasible(troupe::Code::infeasible, "not with this");
  }
  int one() { return 1; }
};

/// Proves that inner errors of tasks, coroutines, methods, constructors and errors thrown by hand
/// become causes of the outer error.
const Program inner_error_kinds{
    "an_inner_error_of_every_kind",
    {.expect = "task_failed executed infeasible told\n"
               "task_failed executed infeasible told\n"
               "task_failed executed infeasible told\n"
               "task_failed executed unavailable told\n"
               "task_failed executed infeasible told\n"
               "task_failed executed infeasible told\n"
               "actor_died not_executed infeasible told\n"
               "invalid_argument executed alone\n"
               "infeasible not_executed alone\n",
     .seconds = 20},
    [](Context& ctx) {
      tell([&] { ctx.get(ctx.submit<task>()); });
      const Ref<int> never = impossible(ctx);
      tell([&] { ctx.get(ctx.submit<coroutine>(never)); });
      tell([&] { ctx.get(ctx.submit<waits_first>(ctx.put(1), never)); });
      tell([&] { ctx.get(ctx.submit<throws_by_hand>()); });
      auto asker = ctx.spawn<Asker>(never);
      tell([&] { ctx.get(asker.call<&Asker::ask>()); });
      tell([&] { ctx.get(asker.call<&Asker::refuse>()); });
      auto unmade = ctx.spawn<NeverMade>(1);
      tell([&] { ctx.get(unmade.call<&NeverMade::one>()); });
      tell([&] { ctx.get(ctx.submit<nothing>()); });
      tell([&] { ctx.get(ctx.submit<same>(never)); });  // an argument: the task never runs
    }};

/// Proves that an error through 12 levels of tasks keeps its origin, and that its chain and text
/// stay short.
const Program deep_errors{"an_inner_error_from_far_below",
                          {.expect = "infeasible 1 1\n", .seconds = 20},
                          [](Context& ctx) {
                            try {
                              ctx.get(ctx.submit<deep>(12));
                            } catch (const troupe::TaskFailed& error) {
                              int causes = 0;
                              auto inner = error.cause();
                              for (; inner && inner->cause(); inner = inner->cause()) ++causes;
                              std::cout
                                  << name_of(inner->code()) << ' ' << (causes <= 8) << ' '
                                  << (error.message().size() < 2 * inner->message().size() + 100)
                                  << '\n';
                            }
                          }};

int counts(Context& ctx, std::string file) {
  std::ofstream(file, std::ios::app) << 'x';
  return task(ctx);
}
/// Proves that retry_on compares the type of the inner error.
const Program retried_by_type{
    "an_inner_error_is_retried_by_its_type", {.expect = "1 3\n"}, [](Context& ctx) {
      const std::string file = "/tmp/" + std::to_string(::getpid()) + ".inner";
      const auto runs = [&file] {
        const auto size = static_cast<int>(std::ifstream(file, std::ios::ate).tellg());
        std::remove(file.c_str());
        return size;
      };
      troupe::TaskOptions options{.max_retries = 2};
      (void)ctx.try_get(ctx.with(options).submit<counts>(file));
      std::cout << runs() << ' ';
      options.retry_on = troupe::errors<troupe::Infeasible>();
      (void)ctx.try_get(ctx.with(options).submit<counts>(file));
      std::cout << runs() << '\n';
    }};

}  // namespace
}  // namespace failures_inner_errors
