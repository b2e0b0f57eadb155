/// The verb `troupe drain`, and what SIGTERM starts on a node with --grace.
#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/size_text.hpp"
#include "troupe/runtime/base/visible_text.hpp"
#include "troupe/runtime/cli/internal/print.hpp"
#include "troupe/runtime/cli/verbs.hpp"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <thread>
#include <utility>

namespace troupe::cli {
namespace {

using namespace std::chrono_literals;
using What = control::ListRequest::What;

constexpr Duration kLooks = 100ms;
constexpr Duration kLeaves = 10s;  ///< from the deadline to the end of the node's processes
constexpr Duration kAnswers = 2s;

const control::ClusterRow* row_of(const control::ListReply& reply, NodeId node) {
  const auto found = std::find_if(reply.nodes.begin(), reply.nodes.end(),
                                  [&](const auto& row) { return row.description.id == node; });
  return found != reply.nodes.end() ? &*found : nullptr;
}

/// Throws Failure when the node is dead and has not left.
void check_has_left(const control::ListReply& reply, NodeId node, const std::string& name) {
  const control::DeadNode* last = nullptr;
  for (const auto& dead : reply.dead_nodes)
    if (dead.description.id == node && (last == nullptr || dead.died_unix_ns > last->died_unix_ns))
      last = &dead;
  if (last == nullptr || last->left) return;
  throw Failure{
      Exit::failed,
      Error(Code::unavailable, name + " died while it drained: " + visible_text(last->why, 200) +
                                   "; 'troupe events' tells what was lost with it")};
}

/// Connects anew to a node of this host. Returns false when there is none any more.
bool reconnect(std::unique_ptr<Asked>& asked) {
  try {
    asked = ask_anew(asked->target, kAnswers);
    return true;
  } catch (const TimedOut&) {
    return true;  // it has its door still
  } catch (const Error&) {
    return false;
  }
}

/// Waits until the cluster has the node no more. Control, and the node that is asked, may be silent
/// for a while.
void await_leave(std::unique_ptr<Asked> asked, NodeId node, const std::string& name, Time until) {
  const bool asks_itself = node == asked->node();
  for (;;) {
    if (steady_now() >= until)
      throw Failure{Exit::failed,
                    Error(Code::timed_out, name + " drains, and has not left in time: look at "
                                                  "'troupe list nodes'")};
    std::this_thread::sleep_for(kLooks);
    const auto reply = asked->try_list(What::nodes, kAnswers);
    if (reply && row_of(*reply, node) == nullptr) return check_has_left(*reply, node, name);
    if (reply || reconnect(asked)) continue;
    if (asks_itself) return;  // it was the last node of this host
    raise(named(asked->target, reply.error()));
  }
}

}  // namespace

Duration duration_of(const std::string& flag, const std::string& text) {
  const auto duration = parse_duration(text);
  if (!duration)
    throw_usage(flag + ": '" + text +
                "' is no time: give a number and its unit (ms, s, m or h), like 60s");
  return *duration;
}

Exit drain(const Request& request, const std::string& meant, const std::string& within_text) {
  const Duration within = duration_of("--within", within_text);
  auto asked = std::make_unique<Asked>(request);
  const auto nodes = asked->list(What::nodes);
  const auto& description = find_node(nodes, meant).description;
  const NodeId node = description.id;
  const std::string name = visible_text(description.name, 80);
  const Time begin = steady_now();
  asked->drain(node, within);
  if (!request.json) {
    std::printf("troupe: %s takes nothing new; it leaves when it is empty, in %s at the latest\n",
                name.c_str(), within_text.c_str());
    std::fflush(stdout);
  }
  await_leave(std::move(asked), node, name, begin + within + kLeaves);
  const auto seconds = std::chrono::duration<double>(steady_now() - begin).count();
  if (request.json)
    print(Json{{"node", description.name}, {"id", node.str()}, {"seconds", seconds}});
  else
    std::printf("troupe: %s has left after %.1f s\n", name.c_str(), seconds);
  return Exit::ok;
}

}  // namespace troupe::cli
