// expect: a function stands in angle brackets
#include "troupe/troupe.hpp"

int f(int x) {
  return x;
}
void program(troupe::Context& ctx) {
  auto r = ctx.submit(f, 1);
}
