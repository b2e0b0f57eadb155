/// The verb `troupe drain`, and what SIGTERM starts on a node with --grace.
#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/size_text.hpp"
#include "troupe/runtime/base/visible_text.hpp"
#include "troupe/runtime/cli/internal/print.hpp"
#include "troupe/runtime/cli/verbs.hpp"

#include <algorithm>
#include <cstdio>
#include <thread>

namespace troupe::cli {
namespace {

[[noreturn]] void refuse_usage(const std::string& why) {
  throw Failure{Exit::usage, Error(Code::invalid_argument, why)};
}

using namespace std::chrono_literals;
using What = control::ListRequest::What;

constexpr Duration kLooks = 100ms;
constexpr Duration kLeaves = 10s;  ///< from the deadline to the end of the node's processes

const control::ClusterRow* row_of(const control::ListReply& reply, NodeId node) {
  const auto found = std::find_if(reply.nodes.begin(), reply.nodes.end(),
                                  [&](const auto& row) { return row.description.id == node; });
  return found != reply.nodes.end() ? &*found : nullptr;
}

}  // namespace

Duration duration_of(const std::string& flag, const std::string& text) {
  const auto duration = parse_duration(text);
  if (!duration)
    refuse_usage(flag + ": '" + text +
                 "' is no time: give a number and its unit (ms, s, m or h), like 60s");
  return *duration;
}

Exit drain(const Request& request, const std::string& meant, const std::string& within_text) {
  const Duration within = duration_of("--within", within_text);
  Asked asked(request);
  const auto nodes = asked.list(What::nodes);
  const auto& description = find_node(nodes, meant).description;
  const NodeId node = description.id;
  const std::string name = visible_text(description.name, 80);
  const Time begin = steady_now();
  asked.drain(node, within);
  if (!request.json) {
    std::printf("troupe: %s takes nothing new; it leaves when it is empty, in %s at the latest\n",
                name.c_str(), within_text.c_str());
    std::fflush(stdout);
  }
  const bool asks_itself = node == asked.node();
  for (bool gone = false; !gone;) {
    if (steady_now() - begin >= within + kLeaves)
      throw Failure{Exit::failed,
                    Error(Code::timed_out, name + " drains, and has not left in time: look at "
                                                  "'troupe list nodes'")};
    std::this_thread::sleep_for(kLooks);
    try {
      gone = row_of(asked.list(What::nodes), node) == nullptr;
    } catch (const Unavailable&) {
      if (!asks_itself) throw;
      gone = true;  // the node that was asked has ended
    }
  }
  const auto seconds = std::chrono::duration<double>(steady_now() - begin).count();
  if (request.json)
    print(Json{{"node", description.name}, {"id", node.str()}, {"seconds", seconds}});
  else
    std::printf("troupe: %s has left after %.1f s\n", name.c_str(), seconds);
  return Exit::ok;
}

}  // namespace troupe::cli
