// expect: the actor's class cannot be made from these arguments
#include "troupe/troupe.hpp"

#include <string>

struct Counter {
  int n = 0;
};
void program(troupe::Context& ctx) {
  auto c = ctx.spawn<Counter>(std::string("ten"));
}
