#include "troupe/train/layout.hpp"

#include "troupe/train/internal/reject.hpp"

namespace troupe::train {
namespace {

using internal::reject;

void check_size(const char* name, int value) {
  if (value < 1)
    reject("layout: " + std::string(name) + " is " + std::to_string(value) +
           "; it must be at least 1");
}

std::string mesh_of(const Layout& layout) {
  return "dp = " + std::to_string(layout.dp) + ", tp = " + std::to_string(layout.tp) +
         ", pp = " + std::to_string(layout.pp);
}

}  // namespace

void check(const Layout& layout, int ranks) {
  check_size("dp", layout.dp);
  check_size("tp", layout.tp);
  check_size("pp", layout.pp);
  check_size("micro", layout.micro);
  if (layout.zero < 0 || layout.zero > 3)
    reject("layout: zero is " + std::to_string(layout.zero) + "; choose 0, 1, 2 or 3");
  if (layout.pp > 1 && layout.zero >= 2)
    reject("layout: zero = " + std::to_string(layout.zero) +
           " does not go with pp > 1: choose zero = 1, or pp = 1");
  if (layout.sequence && layout.tp == 1)
    reject("layout: sequence divides activations over tp; choose tp > 1, or sequence = false");
  // Exact up to 2^53, and too large for any number of ranks beyond.
  if (static_cast<double>(layout.dp) * layout.tp * layout.pp != ranks)
    reject("layout: " + mesh_of(layout) + " do not make up the " + std::to_string(ranks) +
           " ranks that there are: choose sizes whose product is " + std::to_string(ranks));
}

}  // namespace troupe::train
