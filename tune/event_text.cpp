#include "troupe/tune/internal/event_text.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

namespace troupe::tune::event_text {
namespace {

using Kind = Event::Kind;
constexpr std::size_t kKinds = kKindNames.size();

constexpr bool is_any_of(Kind kind, std::initializer_list<Kind> kinds) {
  return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
}

constexpr Fields make_fields(Kind kind) {
  Fields f{};
  f.trial =
      !is_any_of(kind, {Kind::begin, Kind::room, Kind::set, Kind::stored, Kind::add, Kind::missing,
                        Kind::tick, Kind::cancel, Kind::interrupt, Kind::over});
  f.attempt = is_any_of(kind, {Kind::report, Kind::save, Kind::restore, Kind::end, Kind::lost,
                               Kind::started, Kind::retry});
  f.room = kind == Kind::room;
  f.settings = kind == Kind::set;
  f.step = kind == Kind::report || kind == Kind::exploit || kind == Kind::copied ||
           kind == Kind::best || kind == Kind::stopped || kind == Kind::completed ||
           kind == Kind::retry;
  f.score = kind == Kind::report || kind == Kind::best || kind == Kind::stopped ||
            kind == Kind::completed;
  f.donor = kind == Kind::exploit || kind == Kind::copied || kind == Kind::kept;
  f.can_save = kind == Kind::report;
  f.ok = kind == Kind::end;
  f.checkpoint = is_any_of(kind, {Kind::save, Kind::restore, Kind::stored, Kind::missing,
                                  Kind::started, Kind::exploit, Kind::copied, Kind::mismatch});
  f.params = kind == Kind::add || kind == Kind::created || kind == Kind::started ||
             kind == Kind::exploit || kind == Kind::copied;
  f.donor_params = kind == Kind::exploit || kind == Kind::copied;
  f.metrics = kind == Kind::report;
  f.text = is_any_of(kind, {Kind::end, Kind::lost, Kind::set, Kind::missing, Kind::exploit,
                            Kind::mismatch, Kind::stopped, Kind::completed, Kind::retry,
                            Kind::failed, Kind::over, Kind::kept, Kind::repeated});
  return f;
}

constexpr std::array<Fields, kKinds> make_table() {
  std::array<Fields, kKinds> table{};
  for (std::size_t i = 0; i < kKinds; ++i) table[i] = make_fields(static_cast<Kind>(i));
  return table;
}

constexpr std::array<Fields, kKinds> kFields = make_table();
static_assert(static_cast<std::size_t>(Kind::repeated) + 1 == kKinds);

void put_checkpoint(JsonWriter& json, const Checkpoint& checkpoint) {
  json.open('{');
  json.name("key");
  json.text(checkpoint.key);
  json.name("hash");
  json.text(checkpoint.hash);
  json.name("bytes");
  json.whole(checkpoint.bytes);
  json.name("step");
  json.whole(checkpoint.step);
  json.close('}');
}

void put_decision(JsonWriter& json, const Decision& d, const SearchSpace& space) {
  json.open('{');
  json.name("trial");
  json.whole(d.trial);
  json.name("do");
  json.text(kActionNames[static_cast<std::size_t>(d.action)]);
  if (d.save) {
    json.name("save");
    json.flag(true);
  }
  if (d.donor >= 0) {
    json.name("donor");
    json.whole(d.donor);
    json.name("donor_params");
    put_point(json, d.donor_params, space);
    json.name("params");
    put_point(json, d.params, space);
  }
  if (!d.why.empty()) {
    json.name("why");
    json.text(d.why);
  }
  json.close('}');
}

void put_answer(JsonWriter& json, const Answer& answer, const SearchSpace& space) {
  json.open('{');
  switch (answer.kind) {
    case Answer::Kind::point:
      json.name("point");
      if (answer.point)
        put_point(json, *answer.point, space);
      else
        json.null();
      if (answer.by != Chosen::by_user) break;
      json.name("by");
      json.text("user");
      break;
    case Answer::Kind::decisions:
      json.name("decisions");
      json.open('[');
      for (const Decision& d : answer.decisions) put_decision(json, d, space);
      json.close(']');
      break;
    case Answer::Kind::next:
      json.name("next");
      json.whole(answer.next);
      break;
  }
  json.close('}');
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

/// Reads a text piece by piece. After a piece that is not there, `ok` is false for good.
class Cursor {
 public:
  explicit Cursor(std::string_view text) : at_(text.data()), end_(text.data() + text.size()) {}

  bool ok = true;
  bool is_done() const noexcept { return ok && at_ == end_; }

  /// Whether this text comes next. It is skipped then.
  bool skip(std::string_view text) {
    if (!ok || static_cast<std::size_t>(end_ - at_) < text.size() ||
        !std::equal(text.begin(), text.end(), at_))
      return false;
    at_ += text.size();
    return true;
  }
  void need(std::string_view text) { ok = skip(text); }
  bool is_next(char c) const { return ok && at_ != end_ && *at_ == c; }

  template <class T>
  T whole() {
    const char* const begin = at_;
    T value{};
    const auto read = std::from_chars(at_, end_, value);
    at_ = read.ptr;
    // Another number of JSON would follow, or the text is no number of JSON.
    const bool longer = at_ != end_ && (*at_ == '.' || *at_ == 'e' || *at_ == 'E');
    ok = ok && read.ec == std::errc() && !longer && begins_well(begin);
    return value;
  }
  double fraction() {
    const char* const begin = at_;
    const char* at = at_;
    const auto digits = [&] {
      const char* const first = at;
      while (at != end_ && is_digit(*at)) ++at;
      return at != first;
    };
    const bool negative = at != end_ && *at == '-';
    if (negative) ++at;
    ok = ok && digits() && begins_well(begin);
    const char* const point = at;
    if (at != end_ && *at == '.') {
      ++at;
      ok = digits() && ok;
    }
    if (at != end_ && (*at == 'e' || *at == 'E')) {
      ++at;
      if (at != end_ && (*at == '-' || *at == '+')) ++at;
      ok = digits() && ok;
    }
    double value = 0;
    if (!ok) return value;
    const auto read = std::from_chars(at_, at, value);
    const bool integer = at == point;  // of JSON, where -0 is 0
    ok = read.ec == std::errc() && read.ptr == at && !(integer && negative && value == 0);
    at_ = at;
    return value;
  }
  /// A number as json_number() makes it.
  double number() {
    if (skip("null")) return std::numeric_limits<double>::quiet_NaN();
    if (skip("\"inf\"")) return HUGE_VAL;
    if (skip("\"-inf\"")) return -HUGE_VAL;
    return fraction();
  }
  bool flag() {
    if (skip("true")) return true;
    need("false");
    return false;
  }
  /// A text without escapes, of ASCII alone.
  std::string_view text() {
    need("\"");
    const char* const begin = at_;
    while (ok && at_ != end_ && *at_ != '"' && *at_ != '\\' && *at_ >= 0x20 && *at_ < 0x7f) ++at_;
    const std::string_view found(begin, static_cast<std::size_t>(at_ - begin));
    need("\"");
    return found;
  }

 private:
  /// Whether the number from `begin` on has no zero before its digits.
  bool begins_well(const char* begin) const {
    if (begin != end_ && *begin == '-') ++begin;
    return end_ - begin < 2 || *begin != '0' || !is_digit(begin[1]);
  }

  const char* at_;
  const char* end_;
};

std::int64_t micros(Cursor& in) {
  const double seconds = in.fraction();
  in.ok = in.ok && seconds >= 0 && seconds <= kLongest;
  return in.ok ? std::llround(seconds * 1e6) : 0;
}

double value(Cursor& in, const Domain& domain) {
  if (domain.kind != Domain::Kind::choice || !in.is_next('"')) return in.number();
  const std::string_view text = in.text();
  const auto found = std::find(domain.options.begin(), domain.options.end(), text);
  in.ok = in.ok && found != domain.options.end();
  return static_cast<double>(found - domain.options.begin());
}

Point point(Cursor& in, const SearchSpace& space) {
  Point point;
  point.reserve(space.size());
  for (std::size_t i = 0; i < space.size() && in.ok; ++i) {
    in.need(i == 0 ? "{\"" : ",\"");
    in.need(space.parameters[i].name);
    in.need("\":");
    point.push_back(value(in, space.parameters[i].domain));
  }
  in.need(space.size() == 0 ? "{}" : "}");
  return point;
}

std::map<std::string, double> numbers(Cursor& in) {
  std::map<std::string, double> numbers;
  in.need("{");
  if (in.skip("}")) return numbers;
  do {
    const std::string_view name = in.text();
    in.need(":");
    numbers.insert_or_assign(std::string(name), in.number());
  } while (in.skip(","));
  in.need("}");
  return numbers;
}

Checkpoint checkpoint(Cursor& in) {
  Checkpoint c;
  in.need("{\"key\":");
  c.key = in.text();
  in.need(",\"hash\":");
  c.hash = in.text();
  in.need(",\"bytes\":");
  c.bytes = in.whole<std::uint64_t>();
  in.need(",\"step\":");
  c.step = in.whole<long>();
  in.need("}");
  return c;
}

Decision decision(Cursor& in, const SearchSpace& space) {
  Decision d;
  in.need("{\"trial\":");
  d.trial = in.whole<int>();
  in.need(",\"do\":");
  const auto* const action = std::find(kActionNames.begin(), kActionNames.end(), in.text());
  in.ok = in.ok && action != kActionNames.end();
  d.action = static_cast<Decision::Action>(action - kActionNames.begin());
  if (in.skip(",\"save\":")) d.save = in.flag();
  if (in.skip(",\"donor\":")) {
    d.donor = in.whole<int>();
    in.need(",\"donor_params\":");
    d.donor_params = point(in, space);
    in.need(",\"params\":");
    d.params = point(in, space);
  }
  if (in.skip(",\"why\":")) d.why = in.text();
  in.need("}");
  return d;
}

Answer answer(Cursor& in, const SearchSpace& space) {
  Answer answer;
  if (in.skip("{\"point\":")) {
    answer.kind = Answer::Kind::point;
    if (!in.skip("null")) answer.point = point(in, space);
    if (in.skip(",\"by\":\"user\"")) answer.by = Chosen::by_user;
  } else if (in.skip("{\"decisions\":[")) {
    answer.kind = Answer::Kind::decisions;
    if (!in.skip("]")) {
      do answer.decisions.push_back(decision(in, space));
      while (in.skip(","));
      in.need("]");
    }
  } else {
    in.need("{\"next\":");
    answer.next = in.whole<int>();
  }
  in.need("}");
  return answer;
}

Kind kind(Cursor& in) {
  const auto* const found = std::find(kKindNames.begin(), kKindNames.end(), in.text());
  in.ok = in.ok && found != kKindNames.end();
  return in.ok ? static_cast<Kind>(found - kKindNames.begin()) : Kind::tick;
}

}  // namespace

const Fields& fields_of(Kind kind) {
  return kFields.at(static_cast<std::size_t>(kind));
}

std::string name_at(const SearchSpace& space, std::size_t i) {
  return i < space.size() ? space.parameters[i].name : "p" + std::to_string(i);
}

void put_number(JsonWriter& json, double value) {
  if (std::isinf(value))
    json.text(value > 0 ? "inf" : "-inf");
  else
    json.number(value);
}

void put_point(JsonWriter& json, const Point& point, const SearchSpace& space) {
  json.open('{');
  for (std::size_t i = 0; i < point.size(); ++i) {
    if (i >= space.size()) {
      json.name(name_at(space, i));
      put_number(json, point[i]);
      continue;
    }
    const Parameter& parameter = space.parameters[i];
    const std::vector<std::string>& options = parameter.domain.options;
    json.name(parameter.name);
    if (parameter.domain.kind == Domain::Kind::choice && point[i] >= 0 &&
        point[i] < static_cast<double>(options.size()))
      json.text(options[static_cast<std::size_t>(point[i])]);
    else
      put_number(json, point[i]);
  }
  json.close('}');
}

void put_numbers(JsonWriter& json, const std::map<std::string, double>& numbers) {
  json.open('{');
  for (const auto& [name, value] : numbers) {
    json.name(name);
    put_number(json, value);
  }
  json.close('}');
}

void append(std::string& out, const Event& e, const SearchSpace& space) {
  JsonWriter json(out);
  const Fields& f = fields_of(e.kind);
  const auto whole = [&](const char* name, auto value) {
    json.name(name);
    json.whole(value);
  };
  const auto flag = [&](const char* name, bool value) {
    json.name(name);
    json.flag(value);
  };
  const auto point = [&](const char* name, const Point& value) {
    json.name(name);
    put_point(json, value, space);
  };
  json.open('{');
  json.name("t");
  json.number(e.seconds());
  if (e.wall != 0) {
    json.name("time");
    json.number(static_cast<double>(e.wall) / 1e6);
  }
  json.name("event");
  json.text(name_of(e.kind));
  if (f.trial) whole("trial", e.trial);
  if (f.attempt) whole("attempt", e.attempt);
  if (f.step) whole("step", e.step);
  if (f.score) {
    json.name("score");
    put_number(json, e.score);
  }
  if (f.room) whole("room", e.room);
  if (f.donor) whole("donor", e.donor);
  if (f.can_save) flag("can_save", e.can_save);
  if (f.ok) flag("ok", e.ok);
  if (f.checkpoint) {
    json.name("checkpoint");
    put_checkpoint(json, e.checkpoint);
  }
  if (f.params) point("params", e.params);
  if (f.donor_params) point("donor_params", e.donor_params);
  if (f.metrics || f.settings) {
    json.name(f.metrics ? "metrics" : "options");
    put_numbers(json, e.metrics);
  }
  if (f.text) {
    json.name("text");
    json.text(e.text);
  }
  if (!e.answers.empty()) {
    json.name("answers");
    json.open('[');
    for (const Answer& given : e.answers) put_answer(json, given, space);
    json.close(']');
  }
  json.close('}');
}

std::optional<Event> read(std::string_view line, const SearchSpace& space) {
  Cursor in(line);
  Event e;
  in.need("{\"t\":");
  e.micros = micros(in);
  if (in.skip(",\"time\":")) e.wall = micros(in);
  in.need(",\"event\":");
  e.kind = kind(in);
  const Fields& f = fields_of(e.kind);
  const auto whole = [&in]<class T>(const char* name, T& into) {
    in.need(name);
    into = in.whole<T>();
  };
  const auto flag = [&in](const char* name, bool& into) {
    in.need(name);
    into = in.flag();
  };
  const auto params = [&](const char* name, Point& into) {
    in.need(name);
    into = point(in, space);
  };
  if (f.trial) whole(",\"trial\":", e.trial);
  if (f.attempt) whole(",\"attempt\":", e.attempt);
  if (f.step) whole(",\"step\":", e.step);
  if (f.score) {
    in.need(",\"score\":");
    e.score = in.number();
  }
  if (f.room) whole(",\"room\":", e.room);
  if (f.donor) whole(",\"donor\":", e.donor);
  if (f.can_save) flag(",\"can_save\":", e.can_save);
  if (f.ok) flag(",\"ok\":", e.ok);
  if (f.checkpoint) {
    in.need(",\"checkpoint\":");
    e.checkpoint = checkpoint(in);
  }
  if (f.params) params(",\"params\":", e.params);
  if (f.donor_params) params(",\"donor_params\":", e.donor_params);
  if (f.metrics || f.settings) {
    in.need(f.metrics ? ",\"metrics\":" : ",\"options\":");
    e.metrics = numbers(in);
  }
  if (f.text) {
    in.need(",\"text\":");
    e.text = in.text();
  }
  if (in.skip(",\"answers\":[")) {
    do e.answers.push_back(answer(in, space));
    while (in.skip(","));
    in.need("]");
  }
  in.need("}");
  if (!in.is_done()) return std::nullopt;
  return e;
}

}  // namespace troupe::tune::event_text
