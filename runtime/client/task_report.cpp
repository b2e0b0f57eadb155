#include "troupe/runtime/client/task_report.hpp"

#include "troupe/runtime/client/objects.hpp"
#include "troupe/runtime/client/wait_path.hpp"
#include "troupe/runtime/observe/wait_rows.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>

namespace troupe::client {
namespace {

using observe::Cell;
using observe::Fact;
using observe::Row;
using observe::RowKind;
using observe::Thing;
using At = TaskManager::Place::At;

constexpr std::size_t kPiece = 12 * 1024;  ///< of an answer, in one frame
constexpr std::size_t kMostName = 512;     ///< bytes of a function's name
constexpr Duration kRoomComes = std::chrono::milliseconds(1);

std::string_view function_of(const detail::Call& call) {
  if (call.callable == nullptr) return "";
  return std::string_view(call.callable->name).substr(0, kMostName);
}

std::string number_text(double number) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.10g", number);
  return text.data();
}

/// Returns what a task needs: "1 CPU, 2 GPU, 1 license".
std::string needs_of(const detail::Request* request) {
  if (request == nullptr) return "1 CPU";
  std::string text;
  const auto add = [&text](double amount, const std::string& unit) {
    if (amount > 0) text += (text.empty() ? "" : ", ") + number_text(amount) + " " + unit;
  };
  add(request->cpus.value_or(1), "CPU");
  add(request->gpus, "GPU");
  add(static_cast<double>(request->memory.count), "bytes of memory");
  for (const auto& [name, amount] : request->resources) add(amount, name);
  return text;
}

std::string id_of(const Task& task) {
  return task.results.empty() ? std::string() : entry_of(task.results.front()).id.str();
}

/// Returns the time whose last 32 bits these milliseconds are.
Time time_of(std::uint32_t ms, Time now) {
  const auto whole = std::chrono::floor<std::chrono::milliseconds>(now);
  return whole - std::chrono::milliseconds(milliseconds_of(now) - ms);
}

std::string node_in(const std::string& process) {
  return process.substr(0, process.find('/'));
}

Cell cell_of(const FieldValue& value) {
  if (const auto* words = std::get_if<std::string_view>(&value)) return std::string(*words);
  if (const auto* number = std::get_if<double>(&value)) return static_cast<std::int64_t>(*number);
  return {};
}

}  // namespace

/// Reads what a filter asks of a task, and no more.
class TaskReport::TaskFields {
 public:
  TaskFields(TaskReport& report, const Open& open, const Task& task, Time now)
      : report_(report), open_(open), task_(task), now_(now) {}

  const TaskManager::Place& place() {
    if (!place_) place_ = report_.tasks_.find(task_);
    return *place_;
  }
  bool runs() {
    if (place().at == At::here) return true;
    if (place().at != At::worker) return false;
    const Out::Begun begun = report_.out_.has_begun(place().worker, task_);
    return begun == Out::Begun::yes || (begun == Out::Begun::unknown && place().is_oldest);
  }
  std::string_view state() {
    switch (place().at) {
      case At::arguments: return "waits_for_arguments";
      case At::ready: return "waits_for_resources";
      case At::here: return "running";
      case At::worker: break;
    }
    if (!runs()) return "at_worker";
    const auto* worker = this->worker();
    return worker != nullptr && worker->blocked ? "blocked_in_get" : "running";
  }
  const observe::Surroundings::Worker* worker() {
    if (place().at != At::worker) return nullptr;
    const auto& workers = open_.question.around.workers;
    const auto at = workers.find(place().worker);
    return at == workers.end() ? nullptr : &at->second;
  }
  std::string_view worker_name() {
    if (place().at == At::here) return open_.question.around.self;
    const auto* at = worker();
    return at == nullptr ? std::string_view() : std::string_view(at->name);
  }
  /// Returns how long the task was in its state at the time of the answer.
  std::uint64_t since_ns() {
    if (place().at == At::worker) return open_.age_of(place().since);
    return task_.since_ms == 0 ? 0 : open_.age_of(time_of(task_.since_ms, now_));
  }
  std::string_view why() {
    switch (place().at) {
      case At::arguments: return "waits for an argument";
      case At::ready: {
        const auto& whys = open_.question.around.whys;
        const auto at = whys.find(lease_key(task_));
        return at == whys.end() ? std::string_view("waits for a worker") : at->second;
      }
      case At::here: return {};
      case At::worker: return runs() ? std::string_view() : "waits behind others of its worker";
    }
    return {};
  }
  /// Returns the value of a column of tasks.
  FieldValue operator()(std::size_t column) {
    static const std::array<std::size_t, 12> kColumns = [] {
      std::array<std::size_t, 12> at{};
      std::size_t i = 0;
      for (const char* field : {"id", "function", "name", "state", "since", "job", "caller",
                                "worker", "attempt", "needs", "waits_for", "why"})
        at.at(i++) = observe::column_of(RowKind::tasks, field);
      return at;
    }();
    const auto words = [](std::string_view text) {
      return text.empty() ? FieldValue() : FieldValue(text);
    };
    if (column == kColumns[0]) return words(text_ = id_of(task_));
    if (column == kColumns[1]) return words(function_of(task_.call));
    if (column == kColumns[2])
      return words(task_.request ? std::string_view(task_.request->name).substr(0, kMostName) : "");
    if (column == kColumns[3]) return words(state());
    if (column == kColumns[4]) return static_cast<double>(since_ns());
    if (column == kColumns[5]) return words(report_.job_);
    if (column == kColumns[6]) return words(open_.question.around.self);
    if (column == kColumns[7]) return words(worker_name());
    if (column == kColumns[8]) return static_cast<double>(task_.attempt);
    if (column == kColumns[9]) return words(text_ = needs_of(task_.request.get()));
    if (column == kColumns[10]) {
      const Entry* missing = place().at == At::arguments ? missing_argument(task_.call) : nullptr;
      return words(text_ = missing == nullptr ? std::string() : missing->id.str());
    }
    if (column == kColumns[11]) return words(why());
    return {};
  }
  const Task& task() const noexcept { return task_; }

 private:
  TaskReport& report_;
  const Open& open_;
  const Task& task_;
  const Time now_;
  std::optional<TaskManager::Place> place_;
  std::string text_;
};

TaskReport::TaskReport(Out& out, JobId job, TaskManager& tasks, const ActorCalls& calls,
                       const WaitingThreads& threads, std::int64_t zero)
    : out_(out), job_(job.str()), tasks_(tasks), calls_(calls), threads_(threads), zero_(zero) {}

void TaskReport::ask(const wire::AskRows& question, BlobView surroundings) {
  wire::GiveRows refusal;
  refusal.request = question.request;
  const auto kind = observe::row_kind_of(question.rows.kind);
  auto around = observe::decode_surroundings(surroundings);
  if (!kind || !around) {
    refusal.why = "the question has an unknown form";
    return out_.give(refusal, {});
  }
  auto query = observe::Query::parse({.kind = *kind,
                                      .where = question.rows.where,
                                      .sort = question.rows.sort,
                                      .limit = question.rows.limit,
                                      .after = question.rows.after});
  if (!query || questions_.size() >= kMostQuestions) {
    refusal.why = query ? "the process has too many questions to answer" : query.error().message();
    return out_.give(refusal, {});
  }
  questions_.push_back({question.request, std::move(*query), std::move(*around)});
}

Time TaskReport::step(Time now) {
  if (!open_) {
    if (questions_.empty()) return Time::max();
    open_ = std::make_unique<Open>(std::move(questions_.front()));
    questions_.pop_front();
    const std::int64_t as_of = open_->question.query.as_of(now.time_since_epoch().count() + zero_);
    open_->as_of = Time(Duration(as_of - zero_));
    const RowKind kind = open_->question.query.kind();
    if (kind == RowKind::tasks)
      open_->state =
          open_->question.query.where().text_of_all(observe::column_of(RowKind::tasks, "state"));
    open_->walked = kind == RowKind::queues || kind == RowKind::objects;  // no task is in them
    if (!open_->walked) tasks_.begin_walk();
    if (kind == RowKind::waits) {
      add_threads(now);
      add_calls();
    } else if (kind == RowKind::queues) {
      add_queues();
    } else if (kind == RowKind::objects) {
      add_own_objects();
    }
  }
  if (!open_->walked) {
    tasks_.walk(kTasksOfStep, [&](const Task& task) { look_at(task, now); });
    if (tasks_.walks()) return now;
    open_->walked = true;
  }
  if (open_->bytes.empty()) {
    for (auto& [id, row] : open_->sums) add(row);
    open_->bytes = observe::encode(open_->selection.take());
  }
  if (!send()) return now + kRoomComes;
  open_.reset();
  return questions_.empty() ? Time::max() : now;
}

/// Sends pieces of the answer. Returns whether that was all.
bool TaskReport::send() {
  const BlobView bytes(open_->bytes);
  while (open_->sent < bytes.size()) {
    if (!out_.has_room()) return false;
    const BlobView piece = bytes.subspan(open_->sent, std::min(kPiece, bytes.size() - open_->sent));
    wire::GiveRows message;
    message.request = open_->question.request;
    message.offset = open_->sent;
    message.bytes = bytes.size();
    out_.give(message, piece);
    open_->sent += piece.size();
  }
  return true;
}

void TaskReport::look_at(const Task& task, Time now) {
  if (task.fate != Task::Fate::open || task.results.empty()) return;
  Open& open = *open_;
  TaskFields fields(*this, open, task, now);
  const RowKind kind = open.question.query.kind();
  if (observe::adds_up(kind)) return add_sums(task, fields);
  if (kind == RowKind::waits) return add_waits(task, fields);
  if (open.state && fields.state() != *open.state) return open.selection.pass_over();
  const RowFields read = [&fields](std::size_t column) { return fields(column); };
  if (kind != RowKind::tasks || !open.selection.wants([&] { return id_of(task); }, read)) return;
  Row row = observe::make_row(RowKind::tasks, id_of(task));
  for (std::size_t i = 0; i < row.cells.size(); ++i) row.cells[i] = cell_of(fields(i));
  open.selection.keep(std::move(row));
}

void TaskReport::add(const Row& row) {
  open_->selection.offer(row);
}

void TaskReport::add_sums(const Task& task, TaskFields& fields) {
  const RowKind kind = open_->question.query.kind();
  const bool waits = !fields.runs();
  if (kind == RowKind::reasons && !waits) return;
  std::string id(kind == RowKind::reasons ? fields.why() : function_of(task.call));
  id.resize(std::min(id.size(), observe::kMaxIdBytes));
  if (id.empty()) id = "?";
  if (open_->sums.size() == observe::kMaxSums && open_->sums.count(id) == 0) return;
  Row& row = open_->sums[id];
  if (row.id.empty()) row = observe::make_row(kind, id);
  const auto count = [&](std::string_view field) {
    Cell& cell = row.cells[observe::column_of(kind, field)];
    const auto* before = std::get_if<std::int64_t>(&cell);
    cell = (before == nullptr ? 0 : *before) + 1;
  };
  if (kind == RowKind::functions) return count(waits ? "waiting" : "running");
  row.cells[observe::column_of(kind, "state")] = std::string(fields.state());
  count("tasks");
}

void TaskReport::add_waits(const Task& task, TaskFields& fields) {
  const observe::Surroundings& around = open_->question.around;
  Fact fact;
  fact.thing = {Thing::Kind::task, id_of(task), around.self};
  fact.state = Fact::State::waits;
  fact.name = place_of(task.call, task.request.get()).substr(0, kMostName);
  fact.since_ns = fields.since_ns();
  fact.needs = needs_of(task.request.get());
  switch (fields.place().at) {
    case At::arguments:
      for (const auto& argument : task.call.arguments) {
        const Entry* blocker = argument.object ? blocker_of(entry_of(argument.object)) : nullptr;
        if (blocker != nullptr && fact.waits_for.size() < observe::WaitGraph::kMaxFollowed)
          fact.waits_for.push_back({Thing::Kind::object, blocker->id.str(), around.self});
      }
      break;
    case At::ready:
      fact.waits_for.push_back({Thing::Kind::request, around.self + " key " + lease_key(task).str(),
                                node_in(around.self)});
      break;
    case At::here:
      fact.state = Fact::State::runs;
      fact.place = around.self;
      break;
    case At::worker:
      fact.place = fields.worker_name();
      fact.waits_for.push_back({Thing::Kind::worker, fact.place, node_in(fact.place)});
      if (fact.place.empty()) fact.waits_for.clear();
      if (fields.runs()) {
        const auto* worker = fields.worker();
        // Only the worker's node knows whether a worker elsewhere waits.
        const bool may_wait = worker != nullptr && (worker->blocked || !worker->is_here);
        fact.state = may_wait ? Fact::State::blocked : Fact::State::runs;
        if (!may_wait) fact.waits_for.clear();
      }
      break;
  }
  add(observe::wait_row(fact));
}

void TaskReport::add_threads(Time now) {
  const observe::Surroundings& around = open_->question.around;
  std::size_t number = 0;
  const auto fact_of_thread = [&] {
    Fact fact;
    fact.thing = {Thing::Kind::thread, around.self, around.self};
    if (++number > 1) fact.thing.id += " thread " + std::to_string(number);
    fact.state = Fact::State::blocked;
    return fact;
  };
  std::size_t objects = kObjectsOfStep;
  /// Returns whether more objects may be looked at.
  const auto add_object = [&](Fact& fact, const detail::ObjectHandle& object) {
    if (objects == 0) return false;
    --objects;
    const Entry* blocker = object ? blocker_of(entry_of(object)) : nullptr;
    if (blocker != nullptr && fact.waits_for.size() < observe::WaitGraph::kMaxFollowed)
      fact.waits_for.push_back({Thing::Kind::object, blocker->id.str(), around.self});
    return fact.waits_for.size() < observe::WaitGraph::kMaxFollowed;
  };
  threads_.each([&](const WaitingThreads::Here& thread) {
    if (number == kThreadsOfStep || objects == 0) return;
    Fact fact = fact_of_thread();
    fact.since_ns = open_->age_of(time_of(thread.since_ms(), now));
    fact.any = thread.count() < thread.objects().size();
    const auto awaited = thread.objects();
    for (const detail::ObjectHandle& object :
         awaited.first(std::min(awaited.size(), kObjectsOfThread)))
      if (!add_object(fact, object)) break;
    add(observe::wait_row(fact));
  });
  // Any coroutine that goes on ends the wait of the process.
  Fact coroutines = fact_of_thread();
  out_.each_awaited(
      [&](const detail::ObjectHandle& object) { return add_object(coroutines, object); });
  coroutines.any = coroutines.waits_for.size() > 1;
  if (!coroutines.waits_for.empty()) add(observe::wait_row(coroutines));
}

void TaskReport::add_calls() {
  const observe::Surroundings& around = open_->question.around;
  calls_.each(observe::kMaxRows, [&](const ActorCalls::Place& place) {
    const ActorCall& call = *place.call;
    Fact fact;
    if (call.results.empty()) return;
    fact.thing = {Thing::Kind::call, entry_of(call.results.front()).id.str(), around.self};
    fact.state = Fact::State::waits;
    fact.name = function_of(call.call);
    fact.actor = call.actor.str();
    const Entry* missing = call.waiting == 0 ? nullptr : missing_argument(call.call);
    if (missing != nullptr)
      fact.waits_for.push_back({Thing::Kind::object, missing->id.str(), around.self});
    else
      fact.waits_for.push_back({Thing::Kind::actor, call.actor.str(), around.self});
    add(observe::wait_row(fact));
  });
}

void TaskReport::add_queues() {
  calls_.each_queue([this](ActorId actor, std::size_t calls) {
    if (calls == 0 || open_->sums.size() == observe::kMaxSums) return;
    Row& row = open_->sums[actor.str()];
    row = observe::make_row(RowKind::queues, actor.str());
    row.cells[observe::column_of(RowKind::queues, "calls")] = static_cast<std::int64_t>(calls);
  });
}

/// Tells of objects that no agent knows yet. Their state is private.
void TaskReport::add_own_objects() {
  const std::string& self = open_->question.around.self;
  out_.each_own([&](const Entry& entry, const std::string& site) {
    Row row = observe::make_row(RowKind::objects, entry.id.str());
    const auto cell = [&row](std::string_view field) -> Cell& {
      return row.cells[observe::column_of(RowKind::objects, field)];
    };
    cell("bytes") =
        static_cast<std::int64_t>(std::min<std::uint64_t>(entry.location->length, INT64_MAX));
    cell("state") = std::string("private");
    cell("node") = cell("owner") = node_in(self);
    cell("maker") = self;
    cell("job") = job_;
    cell("held") = std::int64_t{1};
    if (!site.empty()) cell("site") = site;
    cell("holders") = std::string("its maker alone");
    add(row);
  });
}

}  // namespace troupe::client
