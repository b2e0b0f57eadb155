/// The sources that answers lack, and the sentence by which every verb tells of one.
///
///     Missing missing;
///     missing.add(answer);                          // of several questions; each source once
///     missing.add("control", 0, "no answer in 1.5 s");
///     for (const std::string& line : missing.lines()) show(line);
#pragma once

#include "troupe/runtime/base/json.hpp"
#include "troupe/runtime/observe/answer.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::observe {

/// The name of control among the sources.
inline constexpr std::string_view kControlSource = "control";
/// The most sources that lines() names.
inline constexpr std::size_t kMostNamed = 10;

/// Returns a sentence: whose rows are missing, why, and for a silent source which command says more.
/// No control character passes. `what`: what is missing, like lines. Of events, no events are advised.
std::string missing_text(const Unanswered& source, std::string_view what = "rows");

class Missing {
 public:
  Missing() = default;
  explicit Missing(const Answer& answer) { add(answer); }

  /// Adds a source. One that is known already stays as it is.
  void add(std::string_view node, std::int64_t pid, std::string_view why, bool is_silent = true);
  void add(const Answer& answer);
  bool empty() const noexcept { return sources_.empty() && more_ == 0; }

  const std::vector<Unanswered>& sources() const noexcept { return sources_; }
  /// Returns how many sources there are beyond those.
  std::uint64_t more() const noexcept { return more_; }
  /// Returns a sentence for each source, at most kMostNamed, and one that counts the others.
  /// `has_json`: the verb names them all with --json.
  std::vector<std::string> lines(std::string_view what = "rows", bool has_json = true) const;
  /// Returns the sources as the list `unanswered` of a document.
  Json json() const;

 private:
  std::vector<Unanswered> sources_;
  std::uint64_t more_ = 0;  ///< sources that no answer names
};

}  // namespace troupe::observe
