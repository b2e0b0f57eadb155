#include "troupe/runtime/observe/wait_rows.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

namespace troupe::observe {
namespace {

using Kind = Thing::Kind;
using State = Fact::State;

constexpr Kind kKinds[] = {Kind::thread, Kind::object,  Kind::task,  Kind::call,
                           Kind::actor,  Kind::request, Kind::worker};
constexpr State kStates[] = {State::ready, State::runs,   State::waits,      State::blocked,
                             State::lacks, State::paused, State::impossible, State::lost};

template <class Enum, std::size_t N>
std::optional<Enum> named(const Enum (&all)[N], std::string_view name) {
  const auto* at =
      std::find_if(std::begin(all), std::end(all), [&](Enum one) { return name_of(one) == name; });
  return at == std::end(all) ? std::nullopt : std::optional(*at);
}

Cell& cell(Row& row, std::string_view field) {
  return row.cells[column_of(RowKind::waits, field)];
}
std::string text_in(const Row& row, std::string_view field) {
  const auto* words = std::get_if<std::string>(&row.cells[column_of(RowKind::waits, field)]);
  return words == nullptr ? std::string() : *words;
}
std::uint64_t number_in(const Row& row, std::string_view field, std::uint64_t otherwise) {
  const auto* number = std::get_if<std::int64_t>(&row.cells[column_of(RowKind::waits, field)]);
  return number == nullptr || *number < 0 ? otherwise : static_cast<std::uint64_t>(*number);
}
std::int64_t whole(std::uint64_t number) {
  constexpr std::uint64_t kLargest = std::numeric_limits<std::int64_t>::max();
  return static_cast<std::int64_t>(std::min(number, kLargest));
}

/// Takes the part before the next separator, or all that is left.
std::string_view take(std::string_view& text, char separator) {
  const auto end = text.find(separator);
  const std::string_view part = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return part;
}

}  // namespace

std::string_view name_of(Thing::Kind kind) noexcept {
  switch (kind) {
    case Kind::thread: return "thread";
    case Kind::object: return "object";
    case Kind::task: return "task";
    case Kind::call: return "call";
    case Kind::actor: return "actor";
    case Kind::request: return "request";
    case Kind::worker: return "worker";
  }
  return "?";
}

std::string_view name_of(Fact::State state) noexcept {
  switch (state) {
    case State::ready: return "ready";
    case State::runs: return "runs";
    case State::waits: return "waits";
    case State::blocked: return "blocked";
    case State::lacks: return "lacks";
    case State::paused: return "paused";
    case State::impossible: return "impossible";
    case State::lost: return "lost";
  }
  return "?";
}

std::string wait_row_id(const Thing& thing) {
  return std::string(name_of(thing.kind)) + " " + thing.id.substr(0, kMaxIdBytes / 2);
}

Row wait_row(const Fact& fact) {
  Row row = make_row(RowKind::waits, wait_row_id(fact.thing));
  const auto put = [&](std::string_view field, const std::string& text) {
    if (!text.empty()) cell(row, field) = text;
  };
  put("thing", std::string(name_of(fact.thing.kind)));
  put("of", fact.thing.id);
  put("owner", fact.thing.owner);
  put("state", std::string(name_of(fact.state)));
  std::string things;
  const std::size_t followed = std::min(fact.waits_for.size(), WaitGraph::kMaxFollowed);
  for (std::size_t i = 0; i < followed; ++i) {
    const Thing& thing = fact.waits_for[i];
    things += (i == 0 ? "" : "\n") + std::string(name_of(thing.kind)) + "\t" + thing.id + "\t" +
              thing.owner;
  }
  put("waits_for", things);
  if (fact.any) cell(row, "any") = true;
  put("name", fact.name);
  put("actor", fact.actor);
  put("place", fact.place);
  put("needs", fact.needs);
  put("why", fact.why);
  if (fact.since_ns != 0) cell(row, "since") = whole(fact.since_ns);
  cell(row, "count") = whole(fact.count);
  return row;
}

Result<Fact> fact_of(const Row& row) {
  const Error bad(Code::invalid_argument, "a process tells of a wait of an unknown form");
  const auto kind = named(kKinds, text_in(row, "thing"));
  const auto state = named(kStates, text_in(row, "state"));
  if (!kind || !state) return bad;
  Fact fact;
  fact.thing = {*kind, text_in(row, "of"), text_in(row, "owner")};
  fact.state = *state;
  const std::string things = text_in(row, "waits_for");
  for (std::string_view left = things; !left.empty();) {
    std::string_view line = take(left, '\n');
    const auto what = named(kKinds, take(line, '\t'));
    if (!what || fact.waits_for.size() == WaitGraph::kMaxFollowed) return bad;
    const std::string id(take(line, '\t'));
    fact.waits_for.push_back({*what, id, std::string(line)});
  }
  const auto* any = std::get_if<bool>(&row.cells[column_of(RowKind::waits, "any")]);
  fact.any = any != nullptr && *any;
  fact.name = text_in(row, "name");
  fact.actor = text_in(row, "actor");
  fact.place = text_in(row, "place");
  fact.needs = text_in(row, "needs");
  fact.why = text_in(row, "why");
  fact.since_ns = number_in(row, "since", 0);
  fact.count = number_in(row, "count", 1);
  return fact;
}

}  // namespace troupe::observe
