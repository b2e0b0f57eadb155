// expect: a lambda that captures cannot cross to another process
#include "troupe/troupe.hpp"

void program(troupe::Context& ctx) {
  int n = 3;
  auto a = ctx.submit([&n](int x) { return x + n; }, 4);
}
