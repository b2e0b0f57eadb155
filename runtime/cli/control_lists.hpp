/// The lists of control, as far as it gives them in time. Verbs that have other sources, too, show
/// what they got and tell of control among the missing.
///
///     observe::Missing missing;
///     ControlLists control(asked, steady_now() + kControlAnswers, missing);
///     const auto jobs = control.list(control::ListRequest::What::jobs).jobs;
#pragma once

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/cli/verbs.hpp"
#include "troupe/runtime/observe/missing.hpp"

#include <functional>
#include <future>
#include <string_view>

namespace troupe::cli {

/// How long a verb waits: for lists of control, for rows of agents, and for a node's door.
inline constexpr Duration kControlAnswers = std::chrono::milliseconds(1500);
inline constexpr Duration kRowsAnswer = std::chrono::milliseconds(1700);
inline constexpr Duration kDoorAnswers = std::chrono::seconds(2);

/// What is missing of a node that control lists and does not hear from.
inline constexpr std::string_view kUnheard =
    "control has not heard from it for some seconds, so what is known of it is old";

/// Asks on a thread of its own. Without a thread the answer is an error that names the limit.
std::future<Result<observe::Answer>> ask_beside(std::function<Result<observe::Answer>()> ask);

/// Ends the sentence that no row has an id, where rows are missing.
inline constexpr const char* kMaySilent = "; it may be a row of those that do not answer";

class ControlLists {
 public:
  /// `until`: for all lists together. `asked` and `missing` must outlive this.
  ControlLists(Asked& asked, Time until, observe::Missing& missing)
      : asked_(asked), until_(until), missing_(missing) {}

  /// Returns an empty reply when control does not answer. It is then asked no more. With the nodes,
  /// those that control does not hear from are missing.
  control::ListReply list(control::ListRequest::What what);
  bool is_silent() const noexcept { return is_silent_; }

 private:
  Asked& asked_;
  const Time until_;
  observe::Missing& missing_;
  bool is_silent_ = false;
};

}  // namespace troupe::cli
