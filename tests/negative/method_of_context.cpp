// expect: a method is called on an actor
#include "troupe/troupe.hpp"

struct Counter {
  int add(int k) { return k; }
};
void program(troupe::Context& ctx) {
  auto r = ctx.submit<&Counter::add>(1);
}
