// expect: this is a method of another class than the actor's
#include "troupe/troupe.hpp"

struct Counter {
  int add(int k) { return k; }
};
struct Robot {
  int walk(int steps) { return steps; }
};
void program(troupe::Context& ctx) {
  auto counter = ctx.spawn<Counter>();
  auto r = counter.call<&Robot::walk>(3);
}
