// expect: for actors say max_restarts
#include "troupe/troupe.hpp"

struct Counter {
  int n = 0;
};
void program(troupe::Context& ctx) {
  auto c = ctx.with({.max_retries = 3}).spawn<Counter>(1);
}
