// expect: an aggregate with a base class cannot be walked
#include "troupe/troupe.hpp"

struct Base {
  int a;
};
struct Derived : Base {
  int b;
};
int f(const Derived& d) {
  return d.b;
}
void program(troupe::Context& ctx) {
  auto r = ctx.submit<f>(Derived{{1}, 2});
}
