// expect: a function with a pointer parameter cannot be called in another process
#include "troupe/troupe.hpp"

double sum(const double* values, int n) {
  return n > 0 ? values[0] : 0;
}
void program(troupe::Context& ctx) {
  double values[3] = {1, 2, 3};
  auto a = ctx.submit<sum>(values, 3);
}
