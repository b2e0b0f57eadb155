// expect: an actor method may not take Context&
#include "troupe/troupe.hpp"

struct Counter {
  int add(troupe::Context&, int k) { return k; }
};
void program(troupe::Context& ctx) {
  auto counter = ctx.spawn<Counter>();
  auto r = counter.call<&Counter::add>(3);
}
