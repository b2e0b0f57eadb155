// expect: a span or string_view cannot be stored in a value or returned
#include "troupe/troupe.hpp"

#include <string_view>

std::string_view name(int) {
  return "x";
}
void program(troupe::Context& ctx) {
  auto r = ctx.submit<name>(1);
}
