#include "troupe/runtime/agent/node_events.hpp"

#include "troupe/runtime/base/log.hpp"
#include "troupe/runtime/base/wall_clock.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace troupe::agent {
namespace {

constexpr auto kRows = observe::RowKind::events;
/// 4 MiB on disk; the oldest quarter goes first.
constexpr LogStore::Limits kFiles{.file = 1 << 20, .files_of_job = 4, .total = 4 << 20, .files = 8};
constexpr const char* kFileName = "events";

}  // namespace

NodeEvents::NodeEvents(std::string node, NodeId id, EventLog::Limits limits)
    : node_(std::move(node)), id_(id.str().substr(0, 8)), log_(limits), news_(id) {}

void NodeEvents::keep_in(std::unique_ptr<LogFiles> files) {
  file_ = std::make_unique<LogWriter>(std::move(files), kFiles, node_);
}

void NodeEvents::note(Event event) {
  const Event& kept = log_.add(std::move(event), unix_nanoseconds());
  if (file_ && file_->has_room()) file_->write({kFileName, line_of(kept, node_), 1});
}

void NodeEvents::tell(Event event) {
  log_line("%s: %s", node_.c_str(), event.text.c_str());
  note(std::move(event));
}

void NodeEvents::worker_gone(const WorkerEnd& end) {
  if (end.expected) return;
  Event event;
  event.kind = EventKind::worker_died;
  event.severity = Severity::error;
  event.text = std::string(end.actor ? "an actor's worker" : "a worker") + " died" +
               (end.function.empty() ? "" : ", it ran " + end.function) + ": " + end.reason;
  event.job = end.job;
  event.actor = end.actor;
  event.pid = end.pid;
  event.stack = end.stack;
  event.last_lines = end.last_lines;
  note(std::move(event));
}

void NodeEvents::job_started(const control::JobRecord& job, std::int64_t pid) {
  Event event{EventKind::job_started, Severity::info,
              "job " + job.id.str().substr(0, 8) + " (" + job.name + ") has started, driver " +
                  node_ + "/" + std::to_string(pid)};
  event.job = job.id;
  event.pid = pid;
  note(std::move(event));
}

void NodeEvents::job_ended(const control::JobEnded& ended) {
  if (auto event = news_.job_ended(ended)) note(*std::move(event));
}

void NodeEvents::registered(Epoch control_epoch) {
  if (auto event = news_.registered(control_epoch, steady_now())) note(*std::move(event));
}

void NodeEvents::nodes(const std::vector<control::ClusterRow>& rows) {
  for (Event& event : news_.nodes(rows, steady_now())) note(std::move(event));
}

void NodeEvents::node_dead(NodeId node, const std::string& why) {
  if (auto event = news_.node_dead(node, why)) note(*std::move(event));
}

void NodeEvents::heard(const control::Notice& notice) {
  using Kind = control::Notice::Kind;
  Event event{EventKind::refused, Severity::warning, notice.text};
  if (notice.kind == Kind::actor_trouble) event.kind = EventKind::actor_trouble;
  if (notice.kind == Kind::slow_node) event.kind = EventKind::node_slow;
  note(std::move(event));
}

bool NodeEvents::is_spill_due(Time now) noexcept {
  if (now < next_spill_) return false;
  next_spill_ = now + std::chrono::seconds(1);
  return true;
}

void NodeEvents::spilled(const SpillNews::Seen& seen) {
  for (Event& event : spills_.look(seen)) note(std::move(event));
}

observe::Row NodeEvents::row_of(const Event& event, std::int64_t as_of) const {
  observe::Row row = observe::make_row(kRows, id_ + "-" + std::to_string(event.number));
  const auto cell = [&row](std::string_view field) -> observe::Cell& {
    return row.cells[observe::column_of(kRows, field)];
  };
  cell("time") = event.time_unix_ns;
  cell("since") = std::max<std::int64_t>(as_of - event.time_unix_ns, 0);
  cell("node") = node_;
  cell("kind") = std::string(name_of(event.kind));
  cell("severity") = std::string(name_of(event.severity));
  if (event.job) cell("job") = event.job.str();
  if (event.actor) cell("actor") = event.actor.str();
  if (event.pid != 0) cell("pid") = event.pid;
  cell("text") = event.text;
  if (!event.stack.empty()) cell("stack") = event.stack;
  if (!event.last_lines.empty()) cell("last_lines") = event.last_lines;
  return row;
}

void NodeEvents::offer(const observe::Query& query, observe::Selection& selection) const {
  const std::int64_t as_of = query.as_of(unix_nanoseconds());
  log_.each([&](const Event& event) { selection.offer(row_of(event, as_of)); });
}

}  // namespace troupe::agent
