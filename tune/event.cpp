#include "troupe/tune/event.hpp"

#include "troupe/tune/internal/event_text.hpp"
#include "troupe/tune/internal/json.hpp"
#include "troupe/tune/internal/text.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace troupe::tune {
namespace {

using Kind = Event::Kind;
using event_text::Fields;
using event_text::fields_of;
using event_text::kActionNames;
using event_text::kKindNames;
using event_text::kLongest;
using event_text::name_at;

// The next functions throw InvalidArgument when a value is not of the kind that they read.

[[noreturn]] void not_a(const Json& j, const char* what) {
  throw InvalidArgument(Code::invalid_argument, json_line(j) + " is no " + what);
}

const Json& field_of(const Json& j, const char* name) {
  const Json* found = j.find(name);
  if (found == nullptr)
    throw InvalidArgument(Code::invalid_argument, std::string("field ") + name + " is missing");
  return *found;
}

template <class T>
T whole_in(const Json& j) {
  const auto whole = j.as_whole<T>();
  if (!whole) not_a(j, "whole number of its field");
  return *whole;
}

bool flag_in(const Json& j) {
  const bool* flag = j.as_bool();
  if (flag == nullptr) not_a(j, "truth value");
  return *flag;
}

const std::string& text_in(const Json& j) {
  const std::string* text = j.as_text();
  if (text == nullptr) not_a(j, "text");
  return *text;
}

std::int64_t micros_in(const Json& j) {
  const auto seconds = j.as_number();
  if (!seconds || !(*seconds >= 0 && *seconds <= kLongest)) not_a(j, "time of an experiment");
  return std::llround(*seconds * 1e6);
}

double number_in(const Json& j) {
  if (j.is_null()) return std::nan("");
  if (const std::string* text = j.as_text()) {
    if (*text == "nan") return std::nan("");
    if (*text == "inf") return HUGE_VAL;
    if (*text == "-inf") return -HUGE_VAL;
  }
  const auto number = j.as_number();
  if (!number) not_a(j, "number");
  return *number;
}

double value_in(const Domain& domain, const Json& j) {
  const std::string* text = j.as_text();
  if (domain.kind != Domain::Kind::choice || text == nullptr) return number_in(j);
  const auto found = std::find(domain.options.begin(), domain.options.end(), *text);
  return found == domain.options.end() ? -1 : static_cast<double>(found - domain.options.begin());
}

Point point_in(const Json& j, const SearchSpace& space) {
  const Json::Object* values = j.as_object();
  if (values == nullptr) not_a(j, "point");
  Point point;
  for (std::size_t i = 0; i < std::max(values->size(), space.size()); ++i) {
    const Json& value = field_of(j, name_at(space, i).c_str());
    point.push_back(i < space.size() ? value_in(space.parameters[i].domain, value)
                                     : number_in(value));
  }
  return point;
}

std::map<std::string, double> metrics_in(const Json& j) {
  const Json::Object* fields = j.as_object();
  if (fields == nullptr) not_a(j, "object with metrics");
  std::map<std::string, double> metrics;
  for (const auto& [name, value] : *fields) metrics[name] = number_in(value);
  return metrics;
}

Decision decision_in(const Json& j, const SearchSpace& space) {
  Decision d;
  d.trial = whole_in<int>(field_of(j, "trial"));
  const std::string& action = text_in(field_of(j, "do"));
  const auto found = std::find(kActionNames.begin(), kActionNames.end(), action);
  if (found == kActionNames.end()) not_a(j, "decision");
  d.action = static_cast<Decision::Action>(found - kActionNames.begin());
  if (const Json* save = j.find("save")) d.save = flag_in(*save);
  if (const Json* donor = j.find("donor")) {
    d.donor = whole_in<int>(*donor);
    d.donor_params = point_in(field_of(j, "donor_params"), space);
    d.params = point_in(field_of(j, "params"), space);
  }
  if (const Json* why = j.find("why")) d.why = text_in(*why);
  return d;
}

Answer answer_in(const Json& j, const SearchSpace& space) {
  Answer answer;
  if (const Json* point = j.find("point")) {
    answer.kind = Answer::Kind::point;
    if (!point->is_null()) answer.point = point_in(*point, space);
    if (j.find("by") != nullptr) answer.by = Chosen::by_user;
  } else if (const Json* decisions = j.find("decisions")) {
    answer.kind = Answer::Kind::decisions;
    const Json::Array* all = decisions->as_array();
    if (all == nullptr) not_a(*decisions, "list of decisions");
    for (const Json& d : *all) answer.decisions.push_back(decision_in(d, space));
  } else {
    answer.next = whole_in<int>(field_of(j, "next"));
  }
  return answer;
}

Event read_fields(const Json& j, Kind kind, const SearchSpace& space) {
  Event e;
  e.kind = kind;
  e.micros = micros_in(field_of(j, "t"));
  if (const Json* time = j.find("time")) e.wall = micros_in(*time);
  const Fields f = fields_of(kind);
  if (f.trial) e.trial = whole_in<int>(field_of(j, "trial"));
  if (f.attempt) e.attempt = whole_in<int>(field_of(j, "attempt"));
  if (f.step) e.step = whole_in<long>(field_of(j, "step"));
  if (f.score) e.score = number_in(field_of(j, "score"));
  if (f.room) e.room = whole_in<int>(field_of(j, "room"));
  if (f.donor) e.donor = whole_in<int>(field_of(j, "donor"));
  if (f.can_save) e.can_save = flag_in(field_of(j, "can_save"));
  if (f.ok) e.ok = flag_in(field_of(j, "ok"));
  if (f.checkpoint) {
    const Json& c = field_of(j, "checkpoint");
    e.checkpoint = {text_in(field_of(c, "key")), text_in(field_of(c, "hash")),
                    whole_in<std::uint64_t>(field_of(c, "bytes")),
                    whole_in<long>(field_of(c, "step"))};
  }
  if (f.params) e.params = point_in(field_of(j, "params"), space);
  if (f.donor_params) e.donor_params = point_in(field_of(j, "donor_params"), space);
  if (f.metrics) e.metrics = metrics_in(field_of(j, "metrics"));
  if (f.settings) e.metrics = metrics_in(field_of(j, "options"));
  if (f.text) e.text = text_in(field_of(j, "text"));
  if (const Json* answers = j.find("answers")) {
    const Json::Array* all = answers->as_array();
    if (all == nullptr) not_a(*answers, "list of answers");
    for (const Json& answer : *all) e.answers.push_back(answer_in(answer, space));
  }
  return e;
}

/// Lists the parameters that differ: `, lr 0.0031 → 0.0037, width 64 → 80`.
std::string changes(const SearchSpace& space, const Point& from, const Point& to) {
  std::string text;
  for (std::size_t i = 0; i < space.size() && i < from.size() && i < to.size(); ++i) {
    if (from[i] == to[i]) continue;
    const Parameter& p = space.parameters[i];
    text += ", " + p.name + " " + show(p.domain, from[i]) + " → " + show(p.domain, to[i]);
  }
  return text;
}

std::string short_hash(const std::string& hash) {
  return hash.size() > 8 ? hash.substr(0, 8) + "…" : hash;
}

}  // namespace

Json point_json(const Point& point, const SearchSpace& space) {
  Json out = Json::object();
  for (std::size_t i = 0; i < point.size(); ++i) {
    Json& value = out[name_at(space, i)];
    value = json_number(point[i]);
    if (i >= space.size() || space.parameters[i].domain.kind != Domain::Kind::choice) continue;
    const std::vector<std::string>& options = space.parameters[i].domain.options;
    if (point[i] >= 0 && point[i] < static_cast<double>(options.size()))
      value = valid_utf8(options[static_cast<std::size_t>(point[i])]);
  }
  return out;
}

Point point_from_json(const Json& json, const SearchSpace& space) {
  return point_in(json, space);
}

double number_from_json(const Json& json) {
  return number_in(json);
}

std::string_view name_of(Event::Kind kind) noexcept {
  const auto i = static_cast<std::size_t>(kind);
  return i < kKindNames.size() ? kKindNames[i] : "?";
}

std::string to_json(const Event& e, const SearchSpace& space) {
  std::string line;
  event_text::append(line, e, space);
  return line;
}

Result<Event> event_from_json(std::string_view line, const SearchSpace& space) {
  if (auto event = event_text::read(line, space)) return std::move(*event);
  const auto j = Json::parse(line);
  if (!j) return Error(Code::invalid_argument, "no experiment event: " + j.error().message());
  try {
    const std::string& name = text_in(field_of(*j, "event"));
    for (std::size_t i = 0; i < kKindNames.size(); ++i) {
      if (kKindNames[i] == name) return read_fields(*j, static_cast<Kind>(i), space);
    }
    return Error(Code::invalid_argument, "no experiment event: unknown kind " + name);
  } catch (const InvalidArgument& e) {
    return Error(Code::invalid_argument, "no experiment event: " + e.message());
  }
}

std::string plain_words(const Event& e, const SearchSpace& space, std::string_view metric) {
  const std::string who = "trial " + std::to_string(e.trial);
  const std::string at = " at step " + std::to_string(e.step);
  const std::string score = std::string(metric) + " " + number(e.score);
  switch (e.kind) {
    case Kind::created: return who + " begins with " + space.show(e.params);
    case Kind::exploit:
      return who + " is to copy trial " + std::to_string(e.donor) + " (" + e.text + ")";
    case Kind::copied:
      return who + " copied trial " + std::to_string(e.donor) + "'s weights of step " +
             std::to_string(e.checkpoint.step) +
             (e.checkpoint.hash.empty() ? std::string(" (no hash to compare)")
                                        : " (hash " + short_hash(e.checkpoint.hash) + ")") +
             changes(space, e.donor_params, e.params);
    case Kind::mismatch: return who + " loaded other weights than were saved: " + e.text;
    case Kind::stopped: return who + " stopped" + at + " with " + score + ": " + e.text;
    case Kind::completed: return who + " completed" + at + " with " + score;
    case Kind::retry:
      return who + " failed and starts again from " +
             (e.step > 0 ? "step " + std::to_string(e.step) : std::string("the beginning")) + ": " +
             e.text;
    case Kind::lost:
      return who + " lost its node and goes on from its newest checkpoint: " + e.text;
    case Kind::failed: return who + " failed: " + e.text;
    case Kind::kept: return who + " keeps its weights and parameters: " + e.text;
    case Kind::repeated: return who + " " + e.text;
    case Kind::best: return who + " is the best so far: " + score + at;
    case Kind::over: return "the experiment is over: " + e.text;
    case Kind::interrupt: return "the experiment was interrupted and goes on";
    case Kind::cancel: return "the experiment was cancelled";
    case Kind::stop: return "the user stopped " + who;
    case Kind::pause: return "the user paused " + (e.trial < 0 ? "the study" : who);
    case Kind::resume: return "the user resumed " + (e.trial < 0 ? "the study" : who);
    case Kind::add: return "the user added the point " + space.show(e.params);
    case Kind::set: {
      std::string changed;
      for (const auto& [option, value] : e.metrics)
        changed += (changed.empty() ? "" : ", ") + option + " " + number(value);
      return "the " + e.text + " set " + changed;
    }
    case Kind::missing:
      return "the checkpoint " + e.checkpoint.key + " cannot be loaded: " + e.text;
    default: return {};
  }
}

}  // namespace troupe::tune
