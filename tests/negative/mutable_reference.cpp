// expect: a function with a mutable reference parameter cannot be called in another process
#include "troupe/troupe.hpp"

#include <vector>

void sort_it(std::vector<int>& values) {
  values.clear();
}
void program(troupe::Context& ctx) {
  std::vector<int> values{3, 1, 2};
  ctx.submit<sort_it>(values);
}
