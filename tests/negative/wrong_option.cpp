// expect: these options are for actors
#include "troupe/troupe.hpp"

int f(int x) {
  return x;
}
void program(troupe::Context& ctx) {
  auto r = ctx.with({.max_restarts = 3}).submit<f>(1);
}
