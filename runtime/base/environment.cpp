#include "troupe/runtime/base/environment.hpp"

#include "troupe/runtime/base/error.hpp"
#include "troupe/runtime/base/size_text.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

namespace troupe {

Environment::Environment() : lookup_([](const char* name) { return std::getenv(name); }) {}

Environment::Environment(Lookup lookup) : lookup_(std::move(lookup)) {}

const char* Environment::filled(const char* name) const {
  const char* text = lookup_(name);
  return text == nullptr || *text == 0 ? nullptr : text;
}

void Environment::refuse(const char* name, const std::string& advice) const {
  throw InvalidArgument(Code::invalid_argument,
                        std::string(name) + " is '" + text(name).value_or("") + "': " + advice);
}

std::optional<std::string> Environment::text(const char* name) const {
  const char* text = lookup_(name);
  if (text == nullptr) return std::nullopt;
  return text;
}

std::vector<std::string> Environment::list(const char* name) const {
  std::vector<std::string> parts;
  const std::string all = text(name).value_or("");
  for (std::size_t at = 0; at < all.size();) {
    const std::size_t end = std::min(all.find(':', at), all.size());
    if (end > at) parts.push_back(all.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

std::optional<Bytes> Environment::size(const char* name) const {
  const char* text = filled(name);
  if (text == nullptr) return std::nullopt;
  const std::optional<Bytes> size = parse_size(text);
  if (!size) refuse(name, "give a size such as 512MiB or 2GiB");
  return size;
}

std::optional<std::int64_t> Environment::number(const char* name, std::int64_t least,
                                                std::int64_t most, const char* unit) const {
  const char* text = filled(name);
  if (text == nullptr) return std::nullopt;
  std::int64_t value = 0;
  const char* end = text + std::strlen(text);
  const auto parsed = std::from_chars(text, end, value);
  if (parsed.ec != std::errc{} || parsed.ptr != end || value < least || value > most)
    refuse(name, std::string("give a number of ") + unit + " from " + std::to_string(least) +
                     " to " + std::to_string(most));
  return value;
}

std::optional<std::size_t> Environment::choice(const char* name,
                                               std::initializer_list<const char*> words) const {
  const char* text = filled(name);
  if (text == nullptr) return std::nullopt;
  std::string known;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const char* word = words.begin()[i];
    if (std::string_view(word) == text) return i;
    known += (i == 0 ? "" : i + 1 == words.size() ? " or " : ", ") + std::string(word);
  }
  refuse(name, "give " + known);
}

}  // namespace troupe
