#include "troupe/train/layout.hpp"

#include "troupe/train/internal/reject.hpp"
#include "troupe/train/pipeline/text.hpp"

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

/// Returns N for a part like "dp=N"; 0 for any other text.
int size_of(std::string_view part, std::string_view name) {
  int size = 0;
  if (!part.starts_with(name)) return 0;
  part.remove_prefix(name.size());
  const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), size);
  return error == std::errc() && end == part.data() + part.size() ? size : 0;
}

}  // namespace

void set_mesh(Layout& layout, std::string_view sizes) {
  const std::string text(sizes);
  int dp = 0, tp = 0, pp = 0;
  while (!sizes.empty()) {
    const std::string_view part = sizes.substr(0, sizes.find(','));
    sizes.remove_prefix(std::min(sizes.size(), part.size() + 1));
    bool known = false;
    for (const auto& [name, size] : {std::pair{"dp=", &dp}, {"tp=", &tp}, {"pp=", &pp}})
      if (const int given = size_of(part, name); given > 0) {
        if (std::exchange(*size, given) != 0)
          reject("the mesh \"" + text + "\" says a size twice: say each once");
        known = true;
      }
    if (!known)
      reject("a mesh takes sizes of at least 1 like dp=2,tp=2,pp=1, not \"" + std::string(part) +
             "\"");
  }
  layout.dp = std::max(dp, 1), layout.tp = std::max(tp, 1), layout.pp = std::max(pp, 1);
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
  parse_schedule_choice(layout.schedule);
  // A double holds products up to 2^53 exactly, and larger ones exceed any number of ranks.
  if (static_cast<double>(layout.dp) * layout.tp * layout.pp != ranks)
    reject("layout: " + mesh_of(layout) + " do not make up the " + std::to_string(ranks) +
           " ranks that there are: choose sizes whose product is " + std::to_string(ranks));
}

}  // namespace troupe::train
