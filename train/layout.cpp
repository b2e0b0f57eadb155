#include "troupe/train/layout.hpp"

#include "troupe/train/internal/reject.hpp"

#include <algorithm>
#include <charconv>
#include <utility>

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

/// "tp=2" as the axis' member and its size.
std::pair<int Layout::*, int> axis_of(std::string_view part, std::string_view text) {
  const std::size_t equals = part.find('=');
  const std::string_view name = part.substr(0, equals);
  int Layout::* axis = name == "dp"   ? &Layout::dp
                       : name == "tp" ? &Layout::tp
                       : name == "pp" ? &Layout::pp
                                      : nullptr;
  int size = 0;
  const std::string_view number =
      equals == std::string_view::npos ? std::string_view() : part.substr(equals + 1);
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), size);
  const bool whole = error == std::errc() && end == number.data() + number.size() && size >= 1;
  if (axis == nullptr || !whole)
    reject("a mesh is sizes like dp=2,tp=2,pp=1, and \"" + std::string(part) + "\" in \"" +
           std::string(text) + "\" is none");
  return {axis, size};
}

}  // namespace

Layout with_mesh(std::string_view text, Layout base) {
  Layout seen{.dp = 0, .tp = 0, .pp = 0};
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view part = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), part.size() + 1));
    const auto [axis, size] = axis_of(part, text);
    if (std::exchange(seen.*axis, size) != 0)
      reject("the mesh \"" + std::string(text) + "\" says a size twice: say each once");
    base.*axis = size;
  }
  return base;
}

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
