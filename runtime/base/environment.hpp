/// Variables of the environment, read with one sentence for each text that is of no use.
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
  /// The value of a variable; null when it is not set.
  using Lookup = std::function<const char*(const char* name)>;

  /// Of this process. Not while another thread changes the environment.
  Environment();
  /// Of a test.
  explicit Environment(Lookup lookup);

  /// Nothing when the variable is not set. An empty one is an empty text.
  std::optional<std::string> text(const char* name) const;
  /// The parts between colons, without those that are empty.
  std::vector<std::string> list(const char* name) const;
  // What follows gives nothing for a variable that is not set or is empty. It throws
  // InvalidArgument, in the words of refuse(), for any other text that does not fit.
  /// As parse_size() (size_text.hpp) takes it.
  std::optional<Bytes> size(const char* name) const;
  /// A whole number from `least` to `most`; `unit` is for the sentence: "milliseconds".
  std::optional<std::int64_t> number(const char* name, std::int64_t least, std::int64_t most,
                                     const char* unit) const;
  /// The index of its text among `words`.
  std::optional<std::size_t> choice(const char* name,
                                    std::initializer_list<const char*> words) const;
  /// Throws InvalidArgument: `name` is 'its text': `advice`, which begins with "give".
  [[noreturn]] void refuse(const char* name, const std::string& advice) const;

 private:
  const char* filled(const char* name) const;
  Lookup lookup_;
};

}  // namespace troupe
