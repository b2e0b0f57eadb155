// Proves that errors of a task with a name give that name.
#include "tests/programs/program.hpp"

#include <csignal>
#include <stdexcept>

namespace failures_named_tasks {
namespace {

using programs::Program;
using troupe::Context;

int same(int x) {
  return x;
}
int throws(int) {
  throw std::runtime_error("no input of today");
}
int waits(Context& ctx) {
  return ctx.get(ctx.with({.cpus = 1e6}).submit<same>(1));
}
int dies(int) {
  ::raise(SIGKILL);
  return 0;
}
/// Proves that inner errors, exceptions, deaths and infeasible requests give the task's name.
const Program named_tasks{
    "errors_name_the_task",
    {.expect = "nightly: 1\nnightly: 1\nnightly: 1\nnightly: 1\n0\n"},
    [](Context& ctx) {
      const auto place = [](const auto& work) {
        try {
          work();
          std::cout << "nothing\n";
        } catch (const troupe::Error& error) {
          const std::string& where = error.where().function;
          std::cout << where.substr(0, 9)
                    << (std::string(error.what()).find("[nightly: ") != std::string::npos) << '\n';
        }
      };
      const troupe::TaskOptions nightly{.name = "nightly", .max_retries = 0};
      place([&] { ctx.get(ctx.with(nightly).submit<waits>()); });
      place([&] { ctx.get(ctx.with(nightly).submit<throws>(1)); });
      place([&] { ctx.get(ctx.with(nightly).submit<dies>(1)); });
      place([&] { ctx.get(ctx.with({.name = "nightly", .cpus = 1e6}).submit<same>(1)); });
      const auto unnamed = ctx.try_get(ctx.submit<throws>(1));
      std::cout << (unnamed.error().where().function.find("nightly") != std::string::npos) << '\n';
    }};

}  // namespace
}  // namespace failures_named_tasks
