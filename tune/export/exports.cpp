#include "troupe/tune/export/exports.hpp"

#include "troupe/tune/export/internal/exporter.hpp"
#include "troupe/tune/internal/json.hpp"

#include <algorithm>
#include <array>
#include <exception>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

namespace troupe::tune {
namespace {

using internal::Exported;
using internal::Exporter;
using internal::GrowingFiles;

/// How far an exporter has come.
struct Cursor {
  std::uint64_t event = 0;  ///< the last one that it has taken
  std::map<std::string, std::uint64_t> files;
  Json state;
};

Cursor cursor_in(const std::string& row) {
  Cursor cursor;
  const Result<Json> json = Json::parse(row);
  if (!json) return cursor;
  const Json *event = json->find("event"), *files = json->find("files"),
             *state = json->find("state");
  if (event == nullptr || files == nullptr || files->as_object() == nullptr) return cursor;
  cursor.event = event->as_whole<std::uint64_t>().value_or(0);
  for (const Json::Field& field : *files->as_object())
    cursor.files[field.name] = field.value.as_whole<std::uint64_t>().value_or(0);
  if (state != nullptr) cursor.state = *state;
  return cursor;
}

/// Whether an exporter does anything with this event: cheaper than reading all of it.
bool counts(std::string_view line) {
  constexpr std::string_view kName = "\"event\":\"";
  const std::size_t at = line.find(kName);
  if (at == std::string_view::npos) return false;
  const std::string_view rest = line.substr(at + kName.size());
  constexpr std::array<std::string_view, 5> kKinds = {"report\"", "completed\"", "stopped\"",
                                                      "failed\"", "begin\""};
  return std::any_of(kKinds.begin(), kKinds.end(),
                     [rest](std::string_view kind) { return rest.starts_with(kind); });
}

const Json& row_field(const Json& json, const char* name) {
  const Json* found = json.find(name);
  if (found == nullptr)
    throw InvalidArgument(Code::invalid_argument,
                          std::string("the row of a trial has no field ") + name);
  return *found;
}

TrialState state_in(const Json& json) {
  const std::string* text = json.as_text();
  for (auto s = TrialState::waiting; s < TrialState::failed;
       s = static_cast<TrialState>(static_cast<int>(s) + 1))
    if (text != nullptr && *text == name_of(s)) return s;
  return TrialState::failed;
}

/// Reads what the tables show of a trial.
TrialInfo trial_in(const std::string& row, const SearchSpace& space) {
  const Json json = Json::parse(row).value();
  TrialInfo t;
  t.number = row_field(json, "trial").as_whole<int>().value_or(0);
  t.state = state_in(row_field(json, "state"));
  t.attempt = row_field(json, "attempt").as_whole<int>().value_or(0);
  t.failures = row_field(json, "failures").as_whole<int>().value_or(0);
  t.params = point_from_json(row_field(json, "params"), space);
  t.created = number_from_json(row_field(json, "created"));
  if (const long step = row_field(json, "step").as_whole<long>().value_or(0); step > 0)
    t.history.push_back({step, number_from_json(row_field(json, "score")),
                         number_from_json(row_field(json, "seconds")), t.attempt});
  if (const Json::Object* metrics = row_field(json, "metrics").as_object())
    for (const Json::Field& each : *metrics) t.metrics[each.name] = number_from_json(each.value);
  if (const Json* note = json.find("note"); note != nullptr && note->as_text() != nullptr)
    t.note = *note->as_text();
  const Json* donors = json.find("donors");
  if (const Json::Array* all = donors == nullptr ? nullptr : donors->as_array())
    for (const Json& donor : *all) t.copies.push_back({.donor = donor.as_whole<int>().value_or(0)});
  return t;
}

/// An exporter with its files.
struct One {
  std::unique_ptr<Exporter> exporter;
  std::unique_ptr<GrowingFiles> files;
  std::uint64_t event = 0;
  bool ready = false;              ///< its state is that of `event`
  std::optional<std::string> row;  ///< the last one of this process
  std::string trouble;             ///< the last note, until it works again
};

}  // namespace

struct Exports::State {
  Board board;  ///< without trials: the names and the goal
  std::string folder;
  std::vector<One> all;
  Pumped pumped;

  void add(std::unique_ptr<Exporter> exporter);
  void fail(One& one, const std::string& why);
  Result<void> go_to(One& one, Cursor cursor);
  void load(One& one, const StudyRows& rows);
  void take(const StudyRows& rows, std::uint64_t number, std::string_view line,
            const std::vector<One*>& group);
  void pump(const StudyRows& rows, std::vector<One*> group, std::size_t budget);
  void finish(One& one, std::uint64_t last);
};

void Exports::State::add(std::unique_ptr<Exporter> exporter) {
  One one;
  const Exporter* of = exporter.get();
  one.files = std::make_unique<GrowingFiles>(
      [of, in = folder](const std::string& file) { return in + "/" + of->path_of(file); });
  one.exporter = std::move(exporter);
  all.push_back(std::move(one));
}

/// Makes the exporter go back to its last row with the next call.
void Exports::State::fail(One& one, const std::string& why) {
  one.ready = false;
  const std::string note = std::string("the export ") + one.exporter->name() + " waits: " + why;
  if (std::exchange(one.trouble, note) != note) pumped.notes.push_back(note);
}

Result<void> Exports::State::go_to(One& one, Cursor cursor) {
  one.exporter->restore(cursor.state);
  one.event = cursor.event;
  return one.files->restore(std::move(cursor.files), one.exporter->may_lack_files());
}

void Exports::State::load(One& one, const StudyRows& rows) {
  if (!one.row) {
    auto row = rows.exporter(one.exporter->name());
    if (!row) return fail(one, row.error().message());
    one.row = std::move(*row);
  }
  auto done = go_to(one, one.row ? cursor_in(*one.row) : Cursor());
  if (!done && done.error().code() == Code::invalid_argument) {
    pumped.notes.push_back(std::string("the export ") + one.exporter->name() +
                           " is written anew: " + done.error().message());
    done = go_to(one, {});
    one.row.emplace();
  }
  if (!done) return fail(one, done.error().message());
  one.ready = true;
}

void Exports::State::take(const StudyRows& rows, std::uint64_t number, std::string_view line,
                          const std::vector<One*>& group) {
  if (!counts(line)) return;
  const auto event = event_from_json(line, board.space);
  const Exported exported{event ? *event : Event(), [&] {
                            const auto row =
                                rows.trial(static_cast<std::uint32_t>(event->trial)).value();
                            return trial_in(row.value_or("{}"), board.space);
                          }};
  for (One* one : group) {
    if (!one->ready) continue;
    try {
      if (!event) raise(event.error());
      one->exporter->take(exported, *one->files);
    } catch (const std::exception& error) {
      fail(*one, "event " + std::to_string(number) + ": " + error.what());
    }
  }
}

/// Takes the next events into exporters that have come equally far.
void Exports::State::pump(const StudyRows& rows, std::vector<One*> group, std::size_t budget) {
  std::uint64_t last = group.front()->event;
  std::size_t taken = 0;
  const auto done = rows.events(last + 1, [&](std::uint64_t number, std::string_view line) {
    if (taken == budget) {
      pumped.more = true;
      return false;
    }
    ++taken;
    last = number;
    take(rows, number, line, group);
    return true;
  });
  for (One* one : group) {
    if (!done)
      fail(*one, done.error().message());
    else if (one->ready && last != one->event)
      finish(*one, last);
  }
}

void Exports::State::finish(One& one, std::uint64_t last) {
  if (auto done = one.files->flush(); !done) return fail(one, done.error().message());
  one.event = last;
  one.trouble.clear();
  Json files = Json::object();
  for (const auto& [file, length] : one.files->lengths()) files[file] = length;
  Json row;
  row["event"] = last;
  row["files"] = std::move(files);
  row["state"] = one.exporter->state();
  one.row = json_line(row);
  pumped.rows.push_back({one.exporter->name(), *one.row});
}

Exports::Exports(std::string folder, const Board& board, ExportOptions options)
    : state_(std::make_unique<State>(
          State{.board = {.metric = board.metric, .goal = board.goal, .space = board.space},
                .folder = std::move(folder),
                .all = {},
                .pumped = {}})) {
  const Board& names = state_->board;
  if (options.csv) state_->add(internal::csv_exporter(names));
  if (options.jsonl) state_->add(internal::jsonl_exporter(names));
  if (options.tensorboard)
    state_->add(internal::tensorboard_exporter(names, std::max<std::size_t>(options.most_runs, 1)));
}
Exports::~Exports() = default;

Exports::Pumped Exports::pump(const StudyRows& rows, std::size_t budget) {
  State& s = *state_;
  std::map<std::uint64_t, std::vector<One*>> groups;
  for (One& one : s.all) {
    try {
      if (!one.ready) s.load(one, rows);
    } catch (const std::exception& error) {
      s.fail(one, error.what());
    }
    if (one.ready) groups[one.event].push_back(&one);
  }
  for (auto& [event, group] : groups) {
    try {
      s.pump(rows, group, std::max<std::size_t>(budget, 1));
    } catch (const std::exception& error) {
      for (One* one : group) s.fail(*one, error.what());
    }
  }
  return std::exchange(s.pumped, {});
}

}  // namespace troupe::tune
