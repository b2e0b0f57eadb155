// expect: wrong number of arguments for this function
#include "troupe/troupe.hpp"

double scale(double x, double by = 2) {
  return x * by;
}
void program(troupe::Context& ctx) {
  auto a = ctx.submit<scale>(1.0);
}
