#include "troupe/runtime/base/short_name.hpp"

#include <cctype>
#include <cstddef>

namespace troupe {
namespace {

/// Returns the position after the bracket that closes the one at `at`. The `>` of an arrow `->` is
/// no bracket.
std::size_t behind(std::string_view text, std::size_t at) {
  std::size_t open = 0;
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '<' || c == '(' || c == '{') ++open;
    if ((c == '>' && text[at - 1] != '-') || c == ')' || c == '}')
      if (--open == 0) return at + 1;
  }
  return text.size();
}

/// Removes the qualifier at the end of `name`, which stood before a "::": an identifier, a function
/// with its parameters, or both.
void drop_qualifier(std::string& name) {
  if (!name.empty() && name.back() == ')') {
    std::size_t open = 0;
    do {
      open += name.back() == ')' ? 1u : 0u;
      open -= name.back() == '(' ? 1u : 0u;
      name.pop_back();
    } while (open != 0 && !name.empty());
  }
  while (!name.empty() &&
         (std::isalnum(static_cast<unsigned char>(name.back())) != 0 || name.back() == '_'))
    name.pop_back();
}

}  // namespace

std::string short_name(std::string_view full) {
  std::string name;
  for (std::size_t at = 0; at < full.size();) {
    const std::string_view rest = full.substr(at);
    if (rest.starts_with("::")) {
      drop_qualifier(name);
      at += 2;
    } else if (rest.starts_with("<lambda") || rest.starts_with("(lambda")) {
      name += "lambda";
      at = behind(full, at);
    } else if (full[at] == '<') {
      at = behind(full, at);
    } else {
      name += full[at++];
    }
  }
  return name;
}

}  // namespace troupe
