#include "troupe/runtime/agent/event_log.hpp"

#include "troupe/runtime/base/json.hpp"
#include "troupe/runtime/base/visible_text.hpp"

#include <utility>

namespace troupe::agent {
namespace {

std::size_t size_of(const Event& event) {
  return sizeof(Event) + event.text.size() + event.stack.size() + event.last_lines.size();
}

}  // namespace

std::string_view name_of(EventKind kind) noexcept {
  switch (kind) {
    case EventKind::node_joined: return "node_joined";
    case EventKind::node_silent: return "node_silent";
    case EventKind::node_heard: return "node_heard";
    case EventKind::node_draining: return "node_draining";
    case EventKind::node_left: return "node_left";
    case EventKind::node_dead: return "node_dead";
    case EventKind::node_slow: return "node_slow";
    case EventKind::node_ends: return "node_ends";
    case EventKind::control_started: return "control_started";
    case EventKind::job_started: return "job_started";
    case EventKind::job_stopped: return "job_stopped";
    case EventKind::job_ended: return "job_ended";
    case EventKind::job_refused: return "job_refused";
    case EventKind::worker_died: return "worker_died";
    case EventKind::worker_not_started: return "worker_not_started";
    case EventKind::actor_trouble: return "actor_trouble";
    case EventKind::out_of_memory: return "out_of_memory";
    case EventKind::spilling: return "spilling";
    case EventKind::disk_failed: return "disk_failed";
    case EventKind::refused: return "refused";
  }
  return "?";
}

std::string_view name_of(Severity severity) noexcept {
  switch (severity) {
    case Severity::info: return "info";
    case Severity::warning: return "warning";
    case Severity::error: return "error";
  }
  return "?";
}

const Event& EventLog::add(Event event, std::int64_t now_unix_ns) {
  event.text = visible_text(event.text, kMaxText);
  if (event.stack.size() > kMaxStack) event.stack.resize(kMaxStack);
  if (event.last_lines.size() > kMaxLastLines)
    event.last_lines.erase(0, event.last_lines.size() - kMaxLastLines);
  event.number = ++last_;
  event.time_unix_ns = now_unix_ns;
  Kept& kind = kinds_.at(static_cast<std::size_t>(event.kind));
  const std::size_t bytes = size_of(event);
  kind.bytes += bytes;
  bytes_ += bytes;
  ++size_;
  kind.events.push_back(std::move(event));
  make_room(kind.events.back());
  return kind.events.back();
}

/// Drops old events until the log keeps within its limits. The newest event stays.
void EventLog::make_room(const Event& newest) {
  while (size_ > 1 && (size_ > limits_.events || bytes_ > limits_.bytes)) {
    const bool by_bytes = bytes_ > limits_.bytes;
    Kept* largest = nullptr;
    for (Kept& kind : kinds_) {
      if (kind.events.empty() || &kind.events.front() == &newest) continue;
      if (largest == nullptr ||
          (by_bytes ? kind.bytes > largest->bytes : kind.events.size() > largest->events.size()))
        largest = &kind;
    }
    if (largest == nullptr) return;
    const std::size_t bytes = size_of(largest->events.front());
    largest->bytes -= bytes;
    bytes_ -= bytes;
    --size_;
    largest->events.pop_front();
  }
}

std::string line_of(const Event& event, const std::string& node) {
  Json line{{"time_unix_ns", event.time_unix_ns},
            {"node", node},
            {"kind", std::string(name_of(event.kind))},
            {"severity", std::string(name_of(event.severity))},
            {"text", event.text}};
  if (event.job) line["job"] = event.job.str();
  if (event.actor) line["actor"] = event.actor.str();
  if (event.pid != 0) line["pid"] = event.pid;
  if (!event.stack.empty()) line["stack"] = event.stack;
  if (!event.last_lines.empty()) line["last_lines"] = event.last_lines;
  return line.dump(-1, Json::Order::as_added) + "\n";
}

}  // namespace troupe::agent
