#include "troupe/tune/event.hpp"

#include "troupe/tune/internal/json.hpp"
#include "troupe/tune/internal/text.hpp"

#include <array>
#include <cmath>
#include <utility>

namespace troupe::tune {
namespace {

using Kind = Event::Kind;

constexpr std::array<std::string_view, 25> kKindNames = {
    "begin",     "report",  "save",    "restore", "end",       "tick",     "cancel",
    "interrupt", "created", "started", "exploit", "copied",    "mismatch", "held",
    "yielded",   "paused",  "resumed", "stopped", "completed", "retry",    "failed",
    "best",      "over",    "kept",    "repeated"};

/// The fields of an Event that a kind writes and reads.
struct Fields {
  bool trial, attempt, step, score, donor, can_save, ok, checkpoint, params, donor_params, metrics,
      text;
};

Fields fields_of(Kind kind) {
  Fields f{};
  f.trial = kind != Kind::begin && kind != Kind::tick && kind != Kind::cancel &&
            kind != Kind::interrupt && kind != Kind::over;
  f.attempt = kind == Kind::report || kind == Kind::save || kind == Kind::restore ||
              kind == Kind::end || kind == Kind::started || kind == Kind::retry;
  f.step = kind == Kind::report || kind == Kind::exploit || kind == Kind::copied ||
           kind == Kind::best || kind == Kind::stopped || kind == Kind::completed ||
           kind == Kind::retry;
  f.score = kind == Kind::report || kind == Kind::best || kind == Kind::stopped ||
            kind == Kind::completed;
  f.donor = kind == Kind::exploit || kind == Kind::copied || kind == Kind::kept;
  f.can_save = kind == Kind::report;
  f.ok = kind == Kind::end;
  f.checkpoint = kind == Kind::save || kind == Kind::restore || kind == Kind::started ||
                 kind == Kind::exploit || kind == Kind::copied || kind == Kind::mismatch;
  f.params = kind == Kind::created || kind == Kind::started || kind == Kind::exploit ||
             kind == Kind::copied;
  f.donor_params = kind == Kind::exploit || kind == Kind::copied;
  f.metrics = kind == Kind::report;
  f.text = kind == Kind::end || kind == Kind::exploit || kind == Kind::mismatch ||
           kind == Kind::stopped || kind == Kind::completed || kind == Kind::retry ||
           kind == Kind::failed || kind == Kind::over || kind == Kind::repeated;
  return f;
}

/// 100 years in seconds: a log with later times is damaged.
constexpr double kLongest = 100.0 * 365 * 24 * 3600;

/// Reads a whole number that T can hold, and throws otherwise. Json's own conversions would
/// truncate the number silently.
template <class T>
T whole_in(const Json& j) {
  if (j.is_number_unsigned() && std::in_range<T>(j.get<std::uint64_t>()))
    return static_cast<T>(j.get<std::uint64_t>());
  if (j.is_number_integer() && !j.is_number_unsigned() && std::in_range<T>(j.get<std::int64_t>()))
    return static_cast<T>(j.get<std::int64_t>());
  throw InvalidArgument(Code::invalid_argument, j.dump() + " is no whole number of its field");
}

std::int64_t micros_in(const Json& j) {
  const auto seconds = j.get<double>();
  if (!(seconds >= 0 && seconds <= kLongest))
    throw InvalidArgument(Code::invalid_argument, j.dump() + " is no time of an experiment");
  return std::llround(seconds * 1e6);
}

double number_in(const Json& j) {
  if (j.is_null()) return std::nan("");
  if (j.is_string()) {
    const auto text = j.get<std::string>();
    if (text == "nan") return std::nan("");
    if (text == "inf") return HUGE_VAL;
    if (text == "-inf") return -HUGE_VAL;
  }
  return j.get<double>();
}

Point point_in(const Json& j) {
  Point point;
  for (const auto& v : j) point.push_back(number_in(v));
  return point;
}

Json point_out(const Point& point) {
  Json out = Json::array();
  for (const double v : point) out.push_back(json_number(v));
  return out;
}

Event read_fields(const Json& j, Kind kind) {
  Event e;
  e.kind = kind;
  e.micros = micros_in(j.at("t"));
  const Fields f = fields_of(kind);
  if (f.trial) e.trial = whole_in<int>(j.at("trial"));
  if (f.attempt) e.attempt = whole_in<int>(j.at("attempt"));
  if (f.step) e.step = whole_in<long>(j.at("step"));
  if (f.score) e.score = number_in(j.at("score"));
  if (f.donor) e.donor = whole_in<int>(j.at("donor"));
  if (f.can_save) e.can_save = j.at("can_save").get<bool>();
  if (f.ok) e.ok = j.at("ok").get<bool>();
  if (f.checkpoint) {
    const auto& c = j.at("checkpoint");
    e.checkpoint = {c.at("key").get<std::string>(), c.at("hash").get<std::string>(),
                    whole_in<std::uint64_t>(c.at("bytes")), whole_in<long>(c.at("step"))};
  }
  if (f.params) e.params = point_in(j.at("params"));
  if (f.donor_params) e.donor_params = point_in(j.at("donor_params"));
  if (f.metrics) {
    for (const auto& [key, value] : j.at("metrics").items()) e.metrics[key] = number_in(value);
  }
  if (f.text) e.text = j.at("text").get<std::string>();
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

std::string_view name_of(Event::Kind kind) noexcept {
  const auto i = static_cast<std::size_t>(kind);
  return i < kKindNames.size() ? kKindNames[i] : "?";
}

std::string to_json(const Event& e) {
  Json out;
  out["t"] = e.seconds();
  out["event"] = name_of(e.kind);
  const Fields f = fields_of(e.kind);
  if (f.trial) out["trial"] = e.trial;
  if (f.attempt) out["attempt"] = e.attempt;
  if (f.step) out["step"] = e.step;
  if (f.score) out["score"] = json_number(e.score);
  if (f.donor) out["donor"] = e.donor;
  if (f.can_save) out["can_save"] = e.can_save;
  if (f.ok) out["ok"] = e.ok;
  if (f.checkpoint) {
    out["checkpoint"] = {{"key", e.checkpoint.key},
                         {"hash", e.checkpoint.hash},
                         {"bytes", e.checkpoint.bytes},
                         {"step", e.checkpoint.step}};
  }
  if (f.params) out["params"] = point_out(e.params);
  if (f.donor_params) out["donor_params"] = point_out(e.donor_params);
  if (f.metrics) {
    Json& metrics = out["metrics"] = Json::object();
    for (const auto& [key, value] : e.metrics) metrics[key] = json_number(value);
  }
  if (f.text) out["text"] = e.text;
  return json_line(out);
}

Result<Event> event_from_json(std::string_view line) {
  try {
    const auto j = Json::parse(line);
    const auto name = j.at("event").get<std::string>();
    for (std::size_t i = 0; i < kKindNames.size(); ++i) {
      if (kKindNames[i] == name) return read_fields(j, static_cast<Kind>(i));
    }
    return Error(Code::invalid_argument, "no experiment event: unknown kind " + name);
  } catch (const Json::exception& e) {
    return Error(Code::invalid_argument, std::string("no experiment event: ") + e.what());
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
    case Kind::failed: return who + " failed: " + e.text;
    case Kind::kept:
      return who + " keeps its weights and parameters: trial " + std::to_string(e.donor) +
             " ended before it had saved";
    case Kind::repeated: return who + " " + e.text;
    case Kind::best: return who + " is the best so far: " + score + at;
    case Kind::over: return "the experiment is over: " + e.text;
    case Kind::interrupt: return "the experiment was interrupted and goes on";
    case Kind::cancel: return "the experiment was cancelled";
    default: return {};
  }
}

}  // namespace troupe::tune
