#include "troupe/runtime/cli/control_lists.hpp"

#include "troupe/runtime/base/process_limits.hpp"

#include <algorithm>
#include <string>
#include <system_error>
#include <utility>

namespace troupe::cli {

std::future<Result<observe::Answer>> ask_beside(std::function<Result<observe::Answer>()> ask) {
  try {
    return std::async(std::launch::async, std::move(ask));
  } catch (const std::system_error& error) {
    std::promise<Result<observe::Answer>> none;
    none.set_value(Error(Code::overloaded, "this host gives the command no thread to ask with: " +
                                               why_no_process(error.code().value())));
    return none.get_future();
  }
}

control::ListReply ControlLists::list(control::ListRequest::What what) {
  if (is_silent_) return {};
  const auto left = std::max<Duration>(until_ - steady_now(), std::chrono::milliseconds(1));
  auto reply = asked_.try_list(what, left);
  if (!reply) {
    is_silent_ = true;
    missing_.add(observe::kControlSource, 0, reply.error().message());
    return {};
  }
  if (reply->left_off > 0)
    missing_.add(observe::kControlSource, 0,
                 "its answer has no room for " + std::to_string(reply->left_off) + " more", false);
  if (what == control::ListRequest::What::nodes)
    for (const auto& row : reply->nodes)
      if (row.suspect) missing_.add(row.description.name, 0, kUnheard);
  return std::move(*reply);
}

}  // namespace troupe::cli
