// Ends in each of the ways that the README's table of exit codes lists.
#include "troupe/troupe.hpp"

#include <stdexcept>
#include <string>

int failing() {
  throw std::runtime_error("thrown by a task");
}

int seven(troupe::Context&) {
  return 7;
}

int main(int argc, char** argv) {
  const std::string way = argc > 1 ? argv[1] : "nothing";
  if (way == "nothing") return troupe::run(argc, argv, [](troupe::Context&) {});
  if (way == "seven") return troupe::run(argc, argv, seven);  // a function can be a body, too
  return troupe::run(argc, argv, [&](troupe::Context& ctx) {
    if (way == "exception") throw std::runtime_error("thrown by the body");
    if (way == "task") return ctx.get(ctx.submit<failing>());
    return 7;
  });
}
