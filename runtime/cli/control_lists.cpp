#include "troupe/runtime/cli/control_lists.hpp"

#include <algorithm>
#include <string>

namespace troupe::cli {

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
