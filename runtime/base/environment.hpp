/// Reads variables of the environment. An invalid text causes an error of one sentence.
///
///     const Environment environment;                                 // this process's
///     const auto most = environment.size(kSpillBytes);               // std::optional<Bytes>
///     // TROUPE_SPILL_BYTES is 'lots': give a size such as 512MiB or 2GiB
///
/// Each variable is read in one place; runtime/docs/environment.md lists them all.
#pragma once

#include "troupe/runtime/base/assert.hpp"
#include "troupe/runtime/base/units.hpp"

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

class Environment {
 public:
  /// Returns the value of a variable; null when it is not set.
  using Lookup = std::function<const char*(const char* name)>;

  /// Reads this process's environment. Not while another thread changes it.
  Environment();
  /// Reads a test's variables.
  explicit Environment(Lookup lookup);

  /// Returns the text, which may be empty; nothing when the variable is not set.
  std::optional<std::string> text(const char* name) const;
  /// Returns the non-empty parts between colons.
  std::vector<std::string> list(const char* name) const;
  // The next three return nothing for a variable that is not set or is empty. For any other text
  // that does not fit they throw InvalidArgument, with the sentence of refuse().
  /// Reads a size, as parse_size() (size_text.hpp) does.
  std::optional<Bytes> size(const char* name) const;
  /// Reads a whole number from `least` to `most`. `unit` is for the error: "milliseconds".
  std::optional<std::int64_t> number(const char* name, std::int64_t least, std::int64_t most,
                                     const char* unit) const;
  /// Returns the index of the text among `words`.
  std::optional<std::size_t> choice(const char* name,
                                    std::initializer_list<const char*> words) const;
  /// Throws InvalidArgument with "`name` is 'its text': `advice`". `advice` begins with "give".
  [[noreturn]] void refuse(const char* name, const std::string& advice) const;

 private:
  const char* filled(const char* name) const;
  Lookup lookup_;
};

}  // namespace troupe
