#include "troupe/tune/event.hpp"

#include "troupe/tune/internal/json.hpp"

#include <array>
#include <nlohmann/json.hpp>

namespace troupe::tune {
namespace {

using Kind = Event::Kind;

constexpr std::array<std::string_view, 23> kind_names = {
    "begin",   "report",  "save",      "restore", "end",      "tick", "cancel",  "interrupt",
    "created", "started", "exploit",   "copied",  "mismatch", "held", "yielded", "paused",
    "resumed", "stopped", "completed", "retry",   "failed",   "best", "over"};

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
  f.donor = kind == Kind::exploit || kind == Kind::copied;
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
           kind == Kind::failed || kind == Kind::over;
  return f;
}

double number_in(const nlohmann::json& j) {
  if (j.is_string()) {
    const auto text = j.get<std::string>();
    if (text == "nan") return std::nan("");
    if (text == "inf") return HUGE_VAL;
    if (text == "-inf") return -HUGE_VAL;
  }
  return j.get<double>();
}

Point point_in(const nlohmann::json& j) {
  Point point;
  for (const auto& v : j) point.push_back(number_in(v));
  return point;
}

std::string point_out(const Point& point) {
  return json_array(point, json_number);
}

Event read_fields(const nlohmann::json& j, Kind kind) {
  Event e;
  e.kind = kind;
  e.micros = std::llround(j.at("t").get<double>() * 1e6);
  const Fields f = fields_of(kind);
  if (f.trial) e.trial = j.at("trial").get<int>();
  if (f.attempt) e.attempt = j.at("attempt").get<int>();
  if (f.step) e.step = j.at("step").get<long>();
  if (f.score) e.score = number_in(j.at("score"));
  if (f.donor) e.donor = j.at("donor").get<int>();
  if (f.can_save) e.can_save = j.at("can_save").get<bool>();
  if (f.ok) e.ok = j.at("ok").get<bool>();
  if (f.checkpoint) {
    const auto& c = j.at("checkpoint");
    e.checkpoint = {c.at("key").get<std::string>(), c.at("hash").get<std::string>(),
                    c.at("bytes").get<std::uint64_t>(), c.at("step").get<long>()};
  }
  if (f.params) e.params = point_in(j.at("params"));
  if (f.donor_params) e.donor_params = point_in(j.at("donor_params"));
  if (f.metrics) {
    for (const auto& [key, value] : j.at("metrics").items()) e.metrics[key] = number_in(value);
  }
  if (f.text) e.text = j.at("text").get<std::string>();
  return e;
}

std::string seconds_text(std::int64_t micros) {
  char text[40];
  std::snprintf(text, sizeof text, "%lld.%06lld", static_cast<long long>(micros / 1000000),
                static_cast<long long>(micros % 1000000));
  return text;
}

/// `lr 0.0031 → 0.0037, width 64 → 80` for the parameters that differ.
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
  return i < kind_names.size() ? kind_names[i] : "?";
}

std::string json_text(std::string_view text) {
  std::string out = "\"";
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    char escape[8];
    if (c == '"' || c == '\\') {
      out += {'\\', static_cast<char>(c)};
    } else if (c < 0x20 || c == '<' || c == 0x7f) {
      std::snprintf(escape, sizeof escape, "\\u%04x", c);
      out += escape;
    } else if (c < 0x80) {
      out += static_cast<char>(c);
    } else {
      const std::size_t length = c >= 0xF0 && c < 0xF5 ? 4 : c >= 0xE0 ? 3 : c >= 0xC2 ? 2 : 0;
      bool valid = length > 0 && c < 0xF5 && i + length <= text.size();
      for (std::size_t k = 1; valid && k < length; ++k) {
        valid = (static_cast<unsigned char>(text[i + k]) & 0xC0) == 0x80;
      }
      if (valid) {  // no overlong forms, no surrogates, nothing past U+10FFFF
        const auto next = static_cast<unsigned char>(text[i + 1]);
        valid = !(c == 0xE0 && next < 0xA0) && !(c == 0xED && next >= 0xA0) &&
                !(c == 0xF0 && next < 0x90) && !(c == 0xF4 && next >= 0x90);
      }
      if (valid) {
        out += text.substr(i, length);
        i += length - 1;
      } else {
        out += '?';
      }
    }
  }
  return out + "\"";
}

std::string to_json(const Event& e) {
  JsonObject out;
  out.raw("t", seconds_text(e.micros)).text("event", name_of(e.kind));
  const Fields f = fields_of(e.kind);
  if (f.trial) out.whole("trial", e.trial);
  if (f.attempt) out.whole("attempt", e.attempt);
  if (f.step) out.whole("step", e.step);
  if (f.score) out.number("score", e.score);
  if (f.donor) out.whole("donor", e.donor);
  if (f.can_save) out.flag("can_save", e.can_save);
  if (f.ok) out.flag("ok", e.ok);
  if (f.checkpoint) {
    JsonObject c;
    c.text("key", e.checkpoint.key).text("hash", e.checkpoint.hash);
    c.raw("bytes", std::to_string(e.checkpoint.bytes)).whole("step", e.checkpoint.step);
    out.raw("checkpoint", c.str());
  }
  if (f.params) out.raw("params", point_out(e.params));
  if (f.donor_params) out.raw("donor_params", point_out(e.donor_params));
  if (f.metrics) {
    JsonObject metrics;
    for (const auto& [key, value] : e.metrics) metrics.number(key, value);
    out.raw("metrics", metrics.str());
  }
  if (f.text) out.text("text", e.text);
  return out.str();
}

Result<Event> event_from_json(std::string_view line) {
  try {
    const auto j = nlohmann::json::parse(line);
    const auto name = j.at("event").get<std::string>();
    for (std::size_t i = 0; i < kind_names.size(); ++i) {
      if (kind_names[i] == name) return read_fields(j, static_cast<Kind>(i));
    }
    return Error(Code::invalid_argument, "no experiment event: unknown kind " + name);
  } catch (const nlohmann::json::exception& e) {
    return Error(Code::invalid_argument, std::string("no experiment event: ") + e.what());
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
    case Kind::best: return who + " is the best so far: " + score + at;
    case Kind::over: return "the experiment is over: " + e.text;
    case Kind::interrupt: return "the experiment was interrupted and goes on";
    case Kind::cancel: return "the experiment was cancelled";
    default: return {};
  }
}

}  // namespace troupe::tune
