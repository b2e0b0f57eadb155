// expect: a function that returns a pointer cannot be called in another process
#include "troupe/troupe.hpp"

int* make(int) {
  return nullptr;
}
void program(troupe::Context& ctx) {
  auto r = ctx.submit<make>(1);
}
