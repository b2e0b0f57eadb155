/// Makes random messages and prints messages as text, from a list of members alone. It works for
/// the messages of any conversation that has each(f, message) for its structs.
#pragma once

#include "tests/runtime/wire/samples.hpp"
#include "troupe/runtime/wire/log_batch.hpp"

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <sstream>
#include <utility>
#include <variant>

namespace troupe::wire::samples {

/// Makes a random member acceptable where a reader demands more than the bounds of its parts. The
/// member's type selects the overload.
template <class F, class T>
void repair(F&, T&) {}
template <class F>
void repair(F&, ResourceDemand& demand) {
  demand.cpus &= std::numeric_limits<std::int64_t>::max();
  demand.gpus &= std::numeric_limits<std::int64_t>::max();
  demand.placement %= 4;
}

template <class F>
void repair(F&, KeptCall& kept) {
  std::sort(kept.made.begin(), kept.made.end());
  kept.made.erase(std::unique(kept.made.begin(), kept.made.end()), kept.made.end());
}
template <class F>
void repair(F&, BulkOffer& offer) {
  offer.key.resize(32, 'k');
}
template <class F>
void repair(F& filler, PullData& data) {
  data.offset >>= 1;
  data.bytes = data.offset + filler.payload_size;
}
template <class F>
void repair(F& filler, ProgramData& data) {
  data.offset >>= 1;
  data.bytes = data.offset + filler.payload_size;
}
template <class F>
void repair(F& filler, PeerReady& ready) {
  while (ready.value.kind == Value::Kind::pending || ready.value.kind == Value::Kind::shared) {
    ready.value = {};
    filler.fill(ready.value);
  }
}
template <class F>
void repair(F&, LogQuestion& question) {
  question.most %= kMaxLogBatch + 1;
  question.wait_ms %= kMaxLogWait + 1;
}
template <class F>
void repair(F&, Inquire& inquire) {
  if (inquire.about != Inquire::About::rows) inquire.rows = {};
  if (inquire.about != Inquire::About::stop) inquire.stop = {};
}
template <class F>
void repair(F&, StopQuestion& question) {
  if (question.user.size() > kMaxUser) question.user.resize(kMaxUser);
}
template <class F>
void repair(F& filler, PullRefused& refused) {
  while (!refused.error) filler.fill(refused.error);
}

/// Returns the last value of an enumeration.
constexpr Inquire::About last_of(Inquire::About) {
  return Inquire::About::stop;
}
constexpr NameObject::Verb last_of(NameObject::Verb) {
  return NameObject::Verb::forget;
}
constexpr PlaceState last_of(PlaceState) {
  return PlaceState::failed;
}
constexpr ProcessKind last_of(ProcessKind) {
  return ProcessKind::observer;
}
constexpr ActorState last_of(ActorState) {
  return ActorState::dead;
}
constexpr Value::Kind last_of(Value::Kind) {
  return Value::Kind::remote;
}

/// Fills members with random values, edge values among them. A tidy filler gives every member a
/// short, readable value.
struct Filler {
  Random& random;
  std::size_t payload_size;
  bool tidy = false;

  template <class T>
  void operator()(const char* name, T& member) {
    fill(member);
    if constexpr (std::is_same_v<T, std::uint32_t>) {
      if (std::string_view(name) == "side") member &= 1;
    }
    repair(*this, member);
  }

  template <class T>
  std::enable_if_t<std::is_integral_v<T>> fill(T& n) {
    switch (tidy ? 2 : random.below(4)) {
      case 0: n = static_cast<T>(random.below(3)); return;
      case 1: n = std::numeric_limits<T>::max(); return;
      default: n = static_cast<T>(random());
    }
  }
  void fill(bool& b) { b = random.chance(0.5); }
  void fill(Duration& d) { d = Duration(static_cast<std::int64_t>(random() >> (tidy ? 20 : 1))); }
  template <class T>
  std::enable_if_t<std::is_enum_v<T>> fill(T& value) {
    value = static_cast<T>(random.below(static_cast<std::size_t>(last_of(value)) + 1));
  }
  template <class Tag>
  void fill(Number<Tag>& number) {
    fill(number.value);
  }
  template <class Tag>
  void fill(Id<Tag>& id) {
    if (tidy || !random.chance(0.2)) id = {random(), random()};
  }
  void fill_text(std::string& s, std::size_t bound) {
    s.resize(!tidy && random.chance(0.02) ? bound
                                          : 1 + random.below(std::min<std::size_t>(bound, 12)));
    for (char& c : s)  // any byte, zero too
      c = static_cast<char>(tidy ? 'a' + random.below(26) : random());
    if (!tidy && random.chance(0.2)) s.clear();
  }
  void fill(std::string& s) { fill_text(s, kMaxText); }
  std::size_t count(std::size_t bound) {
    if (tidy) return 1 + random.below(2);
    return random.chance(0.02) ? bound : random.below(std::min<std::size_t>(bound, 4) + 1);
  }
  template <class T>
  void fill(std::optional<T>& value) {
    if (tidy || random.chance(0.7)) (*this)("", value.emplace());
  }
  template <class T>
  std::enable_if_t<!std::is_same_v<T, ErrorInfo>> fill(std::shared_ptr<const T>& shared) {
    auto value = std::make_shared<T>();
    (*this)("", *value);
    shared = std::move(value);
  }
  template <class A, class B>
  void fill(std::pair<A, B>& pair) {
    fill(pair.first);
    fill(pair.second);
  }
  template <class T>
  void fill_list(std::vector<T>& list, std::size_t bound) {
    list.resize(count(bound));
    for (T& item : list) (*this)("", item);
  }
  template <class T>
  void fill(std::vector<T>& list) {
    fill_list(list, 20);
  }
  void fill(std::vector<std::int32_t>& gpus) { fill_list(gpus, kMaxGpus); }
  void fill(std::vector<Value>& arguments) {
    arguments.resize(!tidy && random.chance(0.01) ? 300 : random.below(5));
    for (Value& argument : arguments) do {
        argument = {};
        fill(argument);
      } while (argument.kind == Value::Kind::pending || argument.kind == Value::Kind::error);
  }
  void fill(std::vector<std::pair<std::string, std::int64_t>>& amounts) {
    amounts.resize(count(kMaxResources));
    for (auto& [name, amount] : amounts) {
      fill(name);
      amount = static_cast<std::int64_t>(random() >> 1);
    }
  }
  void fill(std::vector<std::pair<std::string, std::string>>& labels) {
    labels.resize(count(kMaxLabels));
    for (auto& [key, value] : labels) {
      fill(key);
      fill(value);
    }
  }
  template <class T>
  std::enable_if_t<std::is_class_v<T>> fill(T& message) {
    each(*this, message);
  }
  void fill(Value& value) {
    fill(value.kind);
    switch (value.kind) {
      case Value::Kind::pending: return;
      case Value::Kind::inline_bytes:
        value.payload_offset = static_cast<std::uint32_t>(random.below(payload_size + 1));
        value.payload_size = static_cast<std::uint32_t>(
            std::min(kInlineValue, random.below(payload_size - value.payload_offset + 1)));
        value.refs.resize(count(kMaxRefs));
        for (ObjectId& id : value.refs) fill(id);
        return;
      case Value::Kind::shared:
        fill(value.location);
        fill(value.ref_count);
        if (tidy) return;
        value.refs.resize(count(kMaxRefs));
        for (ObjectId& id : value.refs) fill(id);
        return;
      case Value::Kind::error: value.error = error(1); return;
      case Value::Kind::forwarded: fill(value.forward); return;
      case Value::Kind::remote:
        fill(value.remote_bytes);
        if (!tidy) fill(value.ref_count);
        return;
    }
  }
  void fill(std::shared_ptr<const ErrorInfo>& e) {
    if (tidy || random.chance(0.5)) e = error(1);
  }
  std::shared_ptr<const ErrorInfo> error(std::size_t depth) {
    ErrorInfo e;
    e.code = static_cast<Code>(random.below(20));  // some codes that no build knows yet
    e.outcome = static_cast<Outcome>(random.below(3));
    fill(e.origin.pid);
    fill(e.origin.attempt);
    for (std::string* s : {&e.message, &e.origin.node, &e.origin.function, &e.type})
      fill_text(*s, 100);
    fill_text(e.remote_stack, depth == 1 ? kMaxStack / 2 : 100);
    fill_text(e.last_lines, depth == 1 ? kMaxLastLines / 2 : 100);
    if (!e.last_lines.empty()) e.last_lines.back() = '\n';
    if (depth < (tidy ? 2U : 8U) && random.chance(0.5)) e.cause = error(depth + 1);
    return std::make_shared<const ErrorInfo>(std::move(e));
  }
};

/// Writes members as lines. Printable texts appear as they are, others in hexadecimal.
struct Printer {
  std::ostringstream out;
  std::string prefix;

  template <class T>
  void operator()(const char* name, T& member) {
    const std::size_t length = prefix.size();
    prefix += prefix.empty() ? name : std::string(".") + name;
    print(member);
    prefix.resize(length);
  }
  template <class T>
  void line(const T& value) {
    out << prefix << " = " << value << '\n';
  }
  template <class T>
  std::enable_if_t<std::is_integral_v<T> || std::is_enum_v<T>> print(T& n) {
    line(static_cast<std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>>(n));
  }
  template <class Tag>
  void print(Number<Tag>& number) {
    print(number.value);
  }
  template <class Tag>
  void print(Id<Tag>& id) {
    line(id.str());
  }
  void print(std::string& s) {
    const bool plain = std::all_of(s.begin(), s.end(), [](char c) { return c >= ' ' && c <= '~'; });
    if (plain) return line('"' + s + '"');
    static constexpr char kDigits[] = "0123456789abcdef";
    std::string hex = "x";
    for (const unsigned char c : s) {
      hex += kDigits[c >> 4];
      hex += kDigits[c & 15];
    }
    line(hex);
  }
  template <class T>
  void print(std::vector<T>& list) {
    (*this)("size", [&list]() -> std::size_t& {
      static std::size_t size;
      size = list.size();
      return size;
    }());
    for (std::size_t i = 0; i < list.size(); ++i) (*this)(std::to_string(i).c_str(), list[i]);
  }
  template <class A, class B>
  void print(std::pair<A, B>& pair) {
    (*this)("name", pair.first);
    (*this)("value", pair.second);
  }
  void print(Value& value) {
    (*this)("kind", value.kind);
    (*this)("payload_offset", value.payload_offset);
    (*this)("payload_size", value.payload_size);
    (*this)("location", value.location);
    (*this)("ref_count", value.ref_count);
    (*this)("refs", value.refs);
    (*this)("error", value.error);
    (*this)("forward", value.forward);
    (*this)("remote_bytes", value.remote_bytes);
  }
  void print(Duration& d) { line(d.count()); }
  template <class T>
  void print(std::optional<T>& value) {
    if (!value) return line("none");
    print(*value);
  }
  template <class T>
  std::enable_if_t<!std::is_same_v<T, ErrorInfo>> print(std::shared_ptr<const T>& shared) {
    if (!shared) return line("none");
    T copy = *shared;
    print(copy);
  }
  void print(std::shared_ptr<const ErrorInfo>& shared) {
    if (!shared) return line("none");
    ErrorInfo e = *shared;
    (*this)("code", e.code);
    (*this)("outcome", e.outcome);
    (*this)("message", e.message);
    (*this)("node", e.origin.node);
    (*this)("pid", e.origin.pid);
    (*this)("function", e.origin.function);
    (*this)("attempt", e.origin.attempt);
    (*this)("type", e.type);
    (*this)("stack", e.remote_stack);
    (*this)("last_lines", e.last_lines);
    (*this)("cause", e.cause);
  }
  template <class T>
  std::enable_if_t<std::is_class_v<T>> print(T& message) {
    each(*this, message);
  }
};

template <class Variant, std::size_t... I>
Variant make_member(std::size_t index, std::index_sequence<I...>) {
  Variant m;
  ((I == index ? static_cast<void>(m.template emplace<I>()) : static_cast<void>(0)), ...);
  return m;
}

template <class Variant>
Variant random_member(Random& random, std::size_t payload_size, std::size_t index, bool tidy) {
  auto m = make_member<Variant>(index, std::make_index_sequence<std::variant_size_v<Variant>>());
  Filler filler{random, payload_size, tidy};
  std::visit([&filler](auto& member) { filler("", member); }, m);
  return m;
}

template <class Variant>
std::string print_members(Variant m) {
  Printer printer;
  std::visit([&printer](auto& member) { each(printer, member); }, m);
  return printer.out.str();
}

template <class Variant>
std::string_view type_name(const Variant& m) {
  return std::visit(
      [](const auto& member) -> std::string_view {
        static const std::string full = readable_type(typeid(member).name());
        return std::string_view(full).substr(full.rfind(':') + 1);
      },
      m);
}

}  // namespace troupe::wire::samples
