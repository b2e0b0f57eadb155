#include "troupe/runtime/observe/rows.hpp"

#include "troupe/runtime/base/assert.hpp"
#include "troupe/runtime/base/visible_text.hpp"

#include <array>
#include <iterator>
#include <utility>

namespace troupe::observe {
namespace {

constexpr auto text = FieldKind::text;
constexpr auto number = FieldKind::number;
constexpr auto time = FieldKind::time;
constexpr auto bytes = FieldKind::bytes;

using Texts = std::string_view[];
constexpr Texts kTaskStates = {"waits_for_arguments", "waits_for_resources", "at_worker", "running",
                               "blocked_in_get"};
constexpr Texts kNodeStates = {"alive",       "slow", "draining", "suspect",
                               "unreachable", "left", "dead"};
constexpr Texts kProcessStates = {"runs", "sleeps", "in_kernel", "stopped", "ended", "other"};
constexpr Texts kActorStates = {"pending", "placing", "alive", "restarting", "dead"};
constexpr Texts kJobStates = {"running", "finished", "failed", "stopped"};
constexpr Texts kObjectStates = {"pending", "error",     "inline",    "memory",
                                 "disk",    "elsewhere", "forwarded", "private"};
constexpr Texts kSeverities = {"info", "warning", "error"};

// since: how long the row has been in its state.
constexpr Column kTasks[] = {{"id", "id", text, Show::id, "TASK"},
                             {"function", "function", text, Show::name, "FUNCTION"},
                             {"name", "name", text, Show::hidden, {}},
                             {"state", "state", text, Show::plain, "STATE", kTaskStates},
                             {"since_ns", "since", time, Show::age, "SINCE"},
                             {"job", "job", text, Show::id, "JOB"},
                             {"caller", "caller", text, Show::plain, "CALLER"},
                             {"worker", "worker", text, Show::plain, "WORKER"},
                             {"attempt", "attempt", number, Show::hidden, {}},
                             {"needs", "needs", text, Show::hidden, {}},
                             {"waits_for", "waits_for", text, Show::hidden, {}},
                             {"why", "why", text, Show::plain, "WHY"}};
constexpr Column kFunctions[] = {{"function", "function", text, Show::name, "FUNCTION"},
                                 {"waiting", "waiting", number, Show::plain, "WAITING"},
                                 {"running", "running", number, Show::plain, "RUNNING"},
                                 {"done", "done", number, Show::plain, "DONE"},
                                 {"failed", "failed", number, Show::plain, "FAILED"},
                                 {"retried", "retried", number, Show::plain, "RETRIED"},
                                 {"run_ns", "run", time, Show::age, "RUN TIME"}};
constexpr Column kProcesses[] = {{"kind", "kind", text, Show::plain, "KIND"},
                                 {"pid", "pid", number, Show::plain, "PID"},
                                 {"node", "node", text, Show::plain, "NODE"},
                                 {"job", "job", text, Show::id, "JOB"},
                                 {"function", "function", text, Show::name, "FUNCTION"},
                                 {"since_ns", "since", time, Show::age, "SINCE"},
                                 {"cpu_seconds", "cpu_seconds", number, Show::plain, "CPU SECONDS"},
                                 {"anonymous_bytes", "anonymous", bytes, Show::size, "OWN MEMORY"},
                                 {"shared_bytes", "shared", bytes, Show::size, "SHARED"},
                                 {"state", "state", text, Show::plain, "STATE", kProcessStates}};
constexpr Column kNodes[] = {{"id", "id", text, Show::id, "ID"},
                             {"name", "name", text, Show::plain, "NODE"},
                             {"state", "state", text, Show::plain, "STATE", kNodeStates},
                             {"since_ns", "since", time, Show::age, "SINCE"},
                             {"cpus", "cpus", number, Show::plain, "CPUS"},
                             {"cpus_used", "cpus_used", number, Show::plain, "IN USE"},
                             {"gpus", "gpus", number, Show::plain, "GPUS"},
                             {"gpus_used", "gpus_used", number, Show::plain, "IN USE"},
                             {"store_bytes", "store", bytes, Show::size, "STORE"},
                             {"store_used_bytes", "store_used", bytes, Show::size, "IN USE"},
                             {"workers", "workers", number, Show::plain, "WORKERS"},
                             {"resources", "resources", text, Show::hidden, {}},
                             {"labels", "labels", text, Show::hidden, {}},
                             {"why", "why", text, Show::plain, "WHY"}};
constexpr Column kActors[] = {{"id", "id", text, Show::id, "ACTOR"},
                              {"class", "class", text, Show::name, "CLASS"},
                              {"name", "name", text, Show::plain, "NAME"},
                              {"namespace", "namespace", text, Show::hidden, {}},
                              {"state", "state", text, Show::plain, "STATE", kActorStates},
                              {"since_ns", "since", time, Show::age, "SINCE"},
                              {"node", "node", text, Show::plain, "NODE"},
                              {"queue", "queue", number, Show::plain, "QUEUE"},
                              {"restarts", "restarts", number, Show::plain, "RESTARTS"},
                              {"job", "job", text, Show::id, "JOB"},
                              {"detached", "detached", text, Show::hidden, {}},
                              {"why", "why", text, Show::plain, "WHY"}};
constexpr Column kJobs[] = {{"id", "id", text, Show::id, "JOB"},
                            {"name", "name", text, Show::plain, "NAME"},
                            {"state", "state", text, Show::plain, "STATE", kJobStates},
                            {"user", "user", text, Show::plain, "USER"},
                            {"node", "node", text, Show::plain, "DRIVER ON"},
                            {"pid", "pid", number, Show::plain, "PID"},
                            {"program", "program", text, Show::hidden, {}},
                            {"started_unix_ns", "started", number, Show::hidden, {}},
                            {"ended_unix_ns", "ended", number, Show::hidden, {}},
                            {"since_ns", "since", time, Show::age, "SINCE"},
                            {"why", "why", text, Show::plain, "WHY"}};
constexpr Column kObjects[] = {{"id", "id", text, Show::id, "OBJECT"},
                               {"bytes", "bytes", bytes, Show::size, "SIZE"},
                               {"state", "state", text, Show::plain, "STATE", kObjectStates},
                               {"node", "node", text, Show::plain, "NODE"},
                               {"owner", "owner", text, Show::plain, "OWNER"},
                               {"maker", "maker", text, Show::plain, "MADE BY"},
                               {"job", "job", text, Show::id, "JOB"},
                               {"held", "held", number, Show::plain, "REFS"},
                               {"pins", "pins", number, Show::hidden, {}},
                               {"since_ns", "since", time, Show::age, "AGE"},
                               {"unused_ns", "unused", time, Show::age, "UNUSED"},
                               {"site", "site", text, Show::plain, "LINE"},
                               {"name", "name", text, Show::plain, "NAME"},
                               {"holders", "holders", text, Show::plain, "HELD BY"},
                               {"suspicion", "suspicion", text, Show::plain, "SUSPICION"}};

constexpr Column kReasons[] = {{"reason", "reason", text, Show::plain, "REASON"},
                               {"state", "state", text, Show::plain, "STATE"},
                               {"tasks", "tasks", number, Show::plain, "TASKS"}};
constexpr Column kQueues[] = {{"actor", "actor", text, Show::id, "ACTOR"},
                              {"calls", "calls", number, Show::plain, "CALLS"}};
// The members of Fact; wait_rows.cpp writes and reads them.
constexpr Column kWaits[] = {{"id", "id", text, Show::hidden, {}},
                             {"thing", "thing", text, Show::plain, "THING"},
                             {"of", "of", text, Show::plain, "OF"},
                             {"owner", "owner", text, Show::plain, "OWNER"},
                             {"state", "state", text, Show::plain, "STATE"},
                             {"since_ns", "since", time, Show::age, "SINCE"},
                             {"waits_for", "waits_for", text, Show::plain, "WAITS FOR"},
                             {"any", "any", text, Show::hidden, {}},
                             {"name", "name", text, Show::plain, "NAME"},
                             {"actor", "actor", text, Show::hidden, {}},
                             {"place", "place", text, Show::hidden, {}},
                             {"needs", "needs", text, Show::hidden, {}},
                             {"why", "why", text, Show::plain, "WHY"},
                             {"count", "count", number, Show::plain, "COUNT"}};

// severity: info, warning, or error, which is a failure.
constexpr Column kEvents[] = {{"id", "id", text, Show::plain, "EVENT"},
                              {"time_unix_ns", "time", number, Show::hidden, {}},
                              {"since_ns", "since", time, Show::age, "AGO"},
                              {"node", "node", text, Show::plain, "NODE"},
                              {"kind", "kind", text, Show::plain, "KIND"},
                              {"severity", "severity", text, Show::plain, "SEVERITY", kSeverities},
                              {"job", "job", text, Show::id, "JOB"},
                              {"actor", "actor", text, Show::hidden, {}},
                              {"pid", "pid", number, Show::hidden, {}},
                              {"text", "text", text, Show::plain, "WHAT"},
                              {"stack", "stack", text, Show::hidden, {}},
                              {"last_lines", "last_lines", text, Show::hidden, {}}};

bool is_form(FieldKind kind, const Cell& cell) {
  if (std::holds_alternative<std::monostate>(cell)) return true;
  const bool is_text = std::holds_alternative<std::string>(cell);
  switch (kind) {
    case FieldKind::text: return is_text || std::holds_alternative<bool>(cell);
    case FieldKind::any: return true;
    case FieldKind::number:
    case FieldKind::time:
    case FieldKind::bytes: return !is_text && !std::holds_alternative<bool>(cell);
  }
  return false;
}

}  // namespace

std::string_view name_of(RowKind kind) noexcept {
  switch (kind) {
    case RowKind::tasks: return "tasks";
    case RowKind::functions: return "functions";
    case RowKind::processes: return "processes";
    case RowKind::nodes: return "nodes";
    case RowKind::actors: return "actors";
    case RowKind::jobs: return "jobs";
    case RowKind::objects: return "objects";
    case RowKind::reasons: return "reasons";
    case RowKind::waits: return "waits";
    case RowKind::queues: return "queues";
    case RowKind::events: return "events";
  }
  return "?";
}

Result<RowKind> parse_row_kind(std::string_view name) {
  std::string kinds;
  for (const RowKind kind : kRowKinds) {
    if (name == name_of(kind)) return kind;
    kinds += (kinds.empty() ? "" : ", ") + std::string(name_of(kind));
  }
  return Error(Code::invalid_argument,
               "'" + visible_text(name, 40) + "' is no kind of list; the kinds are " + kinds);
}

std::optional<RowKind> row_kind_of(std::uint8_t number) noexcept {
  if (number >= kAllRowKinds) return std::nullopt;
  return static_cast<RowKind>(number);
}

std::span<const Column> columns_of(RowKind kind) noexcept {
  switch (kind) {
    case RowKind::tasks: return kTasks;
    case RowKind::functions: return kFunctions;
    case RowKind::processes: return kProcesses;
    case RowKind::nodes: return kNodes;
    case RowKind::actors: return kActors;
    case RowKind::jobs: return kJobs;
    case RowKind::objects: return kObjects;
    case RowKind::reasons: return kReasons;
    case RowKind::waits: return kWaits;
    case RowKind::queues: return kQueues;
    case RowKind::events: return kEvents;
  }
  return {};
}

std::span<const WhereField> fields_of(RowKind kind) {
  static const auto kFields = [] {
    std::array<std::vector<WhereField>, kAllRowKinds> all;
    for (std::size_t each = 0; each < kAllRowKinds; ++each)
      for (const Column& column : columns_of(static_cast<RowKind>(each)))
        all.at(each).push_back({std::string(column.field), column.kind, column.values});
    return all;
  }();
  return kFields.at(static_cast<std::size_t>(kind));
}

std::size_t column_of(RowKind kind, std::string_view field) noexcept {
  const auto columns = columns_of(kind);
  for (std::size_t i = 0; i < columns.size(); ++i)
    if (columns[i].field == field) return i;
  TROUPE_ASSERT(false, "this kind of row has no such field");
  return 0;
}

Row make_row(RowKind kind, std::string id) {
  Row row;
  row.cells.resize(columns_of(kind).size());
  if (kind != RowKind::processes) row.cells.front() = id;
  row.id = std::move(id);
  return row;
}

FieldValue value_of(const Cell& cell) noexcept {
  if (const auto* words = std::get_if<std::string>(&cell)) return std::string_view(*words);
  if (const auto* whole = std::get_if<std::int64_t>(&cell)) return static_cast<double>(*whole);
  if (const auto* real = std::get_if<double>(&cell)) return *real;
  if (const auto* flag = std::get_if<bool>(&cell))
    return std::string_view(*flag ? "true" : "false");
  return {};
}

std::optional<std::string> problem_of(RowKind kind, const Row& row) {
  const auto columns = columns_of(kind);
  if (row.id.empty() || row.id.size() > kMaxIdBytes) return "a row without a proper id";
  if (row.cells.size() != columns.size())
    return "a row of " + std::to_string(row.cells.size()) + " values instead of " +
           std::to_string(columns.size());
  for (std::size_t i = 0; i < columns.size(); ++i) {
    if (!is_form(columns[i].kind, row.cells[i]))
      return "a value of the wrong type in " + std::string(columns[i].name);
    if (const auto* words = std::get_if<std::string>(&row.cells[i]);
        words != nullptr && words->size() > kMaxTextBytes)
      return "a text that is too long in " + std::string(columns[i].name);
  }
  return std::nullopt;
}

}  // namespace troupe::observe
