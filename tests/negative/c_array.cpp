// expect: an aggregate with a C array
#include "troupe/troupe.hpp"

struct Row {
  int n;
  double values[4];
};
double f(const Row& r) {
  return r.values[0];
}
void program(troupe::Context& ctx) {
  auto r = ctx.submit<f>(Row{});
}
