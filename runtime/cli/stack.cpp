/// The verb `troupe stack`: the stacks of a process, of an actor's process, or of all processes of a
/// job.
#include "troupe/runtime/base/visible_text.hpp"
#include "troupe/runtime/cli/internal/print.hpp"
#include "troupe/runtime/cli/verbs.hpp"
#include "troupe/runtime/observe/missing.hpp"
#include "troupe/runtime/observe/table.hpp"

#include <algorithm>
#include <charconv>
#include <cstdio>

namespace troupe::cli {
namespace {

using What = control::ListRequest::What;

/// A question for one node.
struct Part {
  NodeId node;
  std::string name;
  wire::StackQuestion question;
};

std::string node_name_of(const control::ListReply& nodes, NodeId id) {
  for (const auto& row : nodes.nodes)
    if (row.description.id == id) return row.description.name;
  return id.str();
}

Part part_of_process(const control::ListReply& nodes, const std::string& text) {
  const auto slash = text.rfind('/');
  const std::string digits = text.substr(slash + 1);
  Part part;
  const auto parsed =
      std::from_chars(digits.data(), digits.data() + digits.size(), part.question.pid);
  if (parsed.ec != std::errc{} || parsed.ptr != digits.data() + digits.size() ||
      part.question.pid <= 0)
    throw_usage("'" + visible_text(digits, 40) + "' is no pid: give NODE/PID, like node-0/8185");
  const auto& row = find_node(nodes, text.substr(0, slash));
  part.node = row.description.id;
  part.name = row.description.name;
  return part;
}

/// Returns whether an id begins or ends with the text.
bool fits_any(const std::string& text, const std::vector<std::string>& ids) {
  return std::any_of(ids.begin(), ids.end(), [&](const std::string& id) {
    return !text.empty() && (id.starts_with(text) || id.ends_with(text));
  });
}

/// Returns the questions about an actor or a job that the text names.
std::vector<Part> parts_of(Asked& asked, const control::ListReply& nodes, const std::string& text) {
  const auto actors = asked.list(What::actors).actors;
  std::vector<std::string> ids;
  for (const auto& row : actors) ids.push_back(row.actor.str());
  const auto actor = observe::id_meant(text, ids, "actors");
  const control::ActorRow* meant = nullptr;  // of several with one name, the one that lives
  for (const auto& row : actors)
    if ((actor && row.actor.str() == *actor) || (!row.name.empty() && row.name == text))
      if (meant == nullptr || meant->state != control::ActorState::alive) meant = &row;
  std::vector<Part> parts;
  if (meant != nullptr) {
    if (meant->state != control::ActorState::alive)
      throw_usage("the actor has no process now: see 'troupe list actors'");
    Part& part = parts.emplace_back();
    part.node = meant->node;
    part.name = node_name_of(nodes, meant->node);
    part.question.actor = meant->actor;
    return parts;
  }
  const auto jobs = asked.list(What::jobs);
  const bool names_job = std::any_of(jobs.jobs.begin(), jobs.jobs.end(),
                                     [&](const auto& row) { return row.name == text; });
  if (!names_job && fits_any(text, ids)) throw_usage(actor.error().message());
  std::vector<std::string> known;
  for (const auto& row : jobs.jobs) {
    known.push_back(row.id.str());
    if (row.name == text) known.push_back(text);
  }
  if (!fits_any(text, known))
    throw_usage("'" + visible_text(text, 40) +
                "' is no process, actor or job: give NODE/PID as in 'troupe list processes', or "
                "an id or name as in 'troupe list actors' or 'troupe list jobs'");
  const control::JobRecord& job = find_job(jobs, text);
  for (const auto& row : nodes.nodes) {
    Part& part = parts.emplace_back();
    part.node = row.description.id;
    part.name = row.description.name;
    part.question.job = job.id;
  }
  return parts;
}

}  // namespace

Exit stack(const Request& request, const std::string& what) {
  Asked asked(request);
  const auto nodes = asked.list(What::nodes);
  const std::vector<Part> parts = what.find('/') != std::string::npos
                                      ? std::vector<Part>{part_of_process(nodes, what)}
                                      : parts_of(asked, nodes, what);
  bool is_answered = false;
  for (const Part& part : parts) {
    const auto text = asked.stacks(part.node, part.question);
    if (text) {
      is_answered = true;
      std::string shown = escaped_lines(*text);
      if (!shown.empty() && shown.back() != '\n') shown += '\n';
      std::printf("%s", shown.c_str());
      continue;
    }
    const Error& error = text.error();
    const bool is_silent = error.code() == Code::unavailable || error.code() == Code::timed_out;
    const std::string why = observe::missing_text({part.name, 0, error.message()}, "stacks");
    if (parts.size() == 1 && is_silent) throw Failure{Exit::unreachable, Error(error.code(), why)};
    if (parts.size() == 1) throw Failure{Exit::failed, error};
    std::fflush(stdout);
    std::fprintf(stderr, "troupe: %s\n", why.c_str());
  }
  if (!is_answered)
    throw Failure{Exit::unreachable,
                  Error(Code::unavailable,
                        "no node told of stacks: 'troupe list nodes' shows which "
                        "live")};
  return Exit::ok;
}

}  // namespace troupe::cli
