// expect: an argument does not convert to the function's parameter
#include "troupe/troupe.hpp"

double area(double r) {
  return r;
}
void program(troupe::Context& ctx) {
  troupe::Ref<double> a = ctx.submit<area>("two");
}
