/// What has happened on a node, for `troupe events`. A plain state machine: NodeEvents writes what
/// it keeps to a file.
///
///     EventLog log(EventLog::Limits{});
///     const Event& kept = log.add({EventKind::node_dead, Severity::error, "…"}, unix_ns);
///     log.each([](const Event& event) { … });
///
/// Beyond its limits the log drops the oldest event of the kind that takes the most: a flood of one
/// kind keeps the others.
#pragma once

#include "troupe/runtime/base/ids.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

namespace troupe::agent {

enum class EventKind : std::uint8_t {
  node_joined,
  node_silent,
  node_heard,
  node_draining,
  node_left,
  node_dead,
  node_slow,
  node_ends,  ///< this one, since it cannot go on
  control_started,
  job_started,
  job_stopped,  ///< somebody told its driver to end
  job_ended,
  job_refused,  ///< this node cannot run its program
  worker_died,
  worker_not_started,
  actor_trouble,
  out_of_memory,
  spilling,
  disk_failed,
  refused,  ///< a message that its sender may not send, or that no link takes
};
inline constexpr std::size_t kEventKinds = 1 + static_cast<std::size_t>(EventKind::refused);
std::string_view name_of(EventKind kind) noexcept;

/// error: a failure, which `troupe status` counts.
enum class Severity : std::uint8_t { info, warning, error };
std::string_view name_of(Severity severity) noexcept;

struct Event {
  EventKind kind = EventKind::refused;
  Severity severity = Severity::info;
  std::string text;  ///< one sentence
  JobId job{};
  ActorId actor{};
  std::int64_t pid = 0;
  std::string stack{}, last_lines{};  ///< that a dead process left: see Death
  // add() sets these.
  std::uint64_t number = 0;  ///< from 1; never given twice
  std::int64_t time_unix_ns = 0;
};

class EventLog {
 public:
  struct Limits {
    std::size_t events = 4096;
    std::size_t bytes = 8 << 20;
  };
  static constexpr std::size_t kMaxText = 2000;           ///< code points
  static constexpr std::size_t kMaxStack = 16 * 1024;     ///< bytes
  static constexpr std::size_t kMaxLastLines = 4 * 1024;  ///< bytes

  explicit EventLog(Limits limits) : limits_(limits) {}

  /// Keeps the event. Its text gets no control characters and is cut. The result is valid until the
  /// next call.
  const Event& add(Event event, std::int64_t now_unix_ns);
  /// Visits all events, those of one kind in their order.
  template <class Visit>
  void each(Visit visit) const {
    for (const auto& kind : kinds_)
      for (const Event& event : kind.events) visit(event);
  }
  std::size_t size() const noexcept { return size_; }
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  struct Kept {
    std::deque<Event> events;
    std::size_t bytes = 0;
  };
  void make_room(const Event& newest);

  const Limits limits_;
  std::array<Kept, kEventKinds> kinds_;
  std::size_t size_ = 0, bytes_ = 0;
  std::uint64_t last_ = 0;
};

/// Returns the event as a line of JSON with its newline.
std::string line_of(const Event& event, const std::string& node);

}  // namespace troupe::agent
