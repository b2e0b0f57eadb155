// The sentences of WaitGraph: what it found, in words for a person.
#include "troupe/runtime/base/visible_text.hpp"
#include "troupe/runtime/observe/table.hpp"
#include "troupe/runtime/observe/wait_graph.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace troupe::observe {
namespace {

using Kind = Thing::Kind;
using State = Fact::State;

constexpr std::size_t kShownName = 80, kShownWhy = 300;

/// Returns who the fact is about: "task 'mix' (0000000c)".
std::string subject_of(const Fact& fact) {
  const std::string id = " (" + visible_text(fact.thing.id, kShownName) + ")";
  const std::string name =
      fact.name.empty() ? std::string() : " '" + visible_text(fact.name, kShownName) + "'";
  switch (fact.thing.kind) {
    case Kind::thread:
      return "process " + visible_text(fact.thing.id, kShownName) +
             (name.empty() ? "" : ", which runs" + name + ",");
    case Kind::object: return "object " + visible_text(fact.thing.id, kShownName);
    case Kind::task: return "task" + name + id;
    case Kind::call:
      return "call" + name + id +
             (fact.actor.empty() ? "" : " of actor " + visible_text(fact.actor, kShownName));
    case Kind::actor: return "actor" + name + id;
    case Kind::request:
      return "the request" + id +
             (fact.needs.empty() ? "" : " for " + visible_text(fact.needs, kShownName));
    case Kind::worker:
      return "process " + visible_text(fact.thing.id, kShownName) +
             (fact.needs.empty() ? ""
                                 : ", which holds " + visible_text(fact.needs, kShownName) + ",");
  }
  return "?";
}

std::string place_of(const Fact& fact) {
  return fact.place.empty() ? "" : " at " + visible_text(fact.place, kShownName);
}
std::string since_of(const Fact& fact) {
  return fact.since_ns == 0 ? "" : " for " + age_text(fact.since_ns);
}
std::string why_of(const Fact& fact) {
  return fact.why.empty() ? "" : ": " + visible_text(fact.why, kShownWhy);
}

/// Returns what the fact itself does, when it is the end of a way.
std::string end_of(const Fact& fact) {
  const bool actor = fact.thing.kind == Kind::actor;
  switch (fact.state) {
    case State::ready: return " is ready, and what waits for it goes on";
    case State::runs:
      return (actor ? " runs its constructor" : " runs") + place_of(fact) + since_of(fact) +
             why_of(fact);
    case State::paused: return " pauses before it is tried again" + since_of(fact) + why_of(fact);
    case State::lacks:
      return (actor ? " has no place yet" : " waits for resources that others use") +
             since_of(fact) + why_of(fact);
    case State::impossible: return " can never be granted, whoever ends" + why_of(fact);
    case State::lost:
      return (fact.thing.kind == Kind::object ? " is lost" : " is dead") + place_of(fact) +
             why_of(fact);
    case State::waits:
    case State::blocked: break;
  }
  return " waits" + since_of(fact) + ", and its owner does not say for what" + why_of(fact);
}

/// Returns what a thing waits for, before the name of the next one.
std::string link_of(const Fact& fact, const Fact& next) {
  const bool blocked = fact.state == State::blocked;
  const std::string since = fact.since_ns == 0 ? "" : " " + age_text(fact.since_ns);
  switch (fact.thing.kind) {
    case Kind::thread: return " waits in get" + since + " for ";
    case Kind::object: return " is the result of ";
    case Kind::worker: return " runs ";
    case Kind::request:
      return next.thing.kind == Kind::request
                 ? " was passed on to " + visible_text(next.thing.owner, kShownName) + " as "
                 : " waits" + since + " for what is held: ";
    case Kind::actor:
      return (next.thing.kind == Kind::request ? " has no place yet" + since + ", and waits for "
                                               : " waits" + since + " for ");
    case Kind::task:
    case Kind::call:
      if (blocked) return " runs" + place_of(fact) + ", and waits in get" + since + " for ";
      if (next.thing.kind == Kind::object) return " waits" + since + " for its argument, ";
      if (next.thing.kind == Kind::request) return " waits" + since + " for a worker through ";
      if (next.thing.kind == Kind::actor) return " waits" + since + " for its actor, ";
      return " waits" + since + " behind ";
  }
  return " waits for ";
}

std::string capitalized(std::string text) {
  if (!text.empty() && text[0] >= 'a' && text[0] <= 'z')
    text[0] = static_cast<char>(text[0] - 'a' + 'A');
  return text;
}

std::string advice_of(Cause cause) {
  switch (cause) {
    case Cause::impossible: return "ask for less, or start a node that has it";
    case Cause::lost: return "what waits for it ends in an error; troupe events says why it died";
    case Cause::unanswered: return "troupe list nodes says whether its owner lives";
    case Cause::lacks: return "start another node, or wait until others end";
    case Cause::runs: return "troupe stack says where it is";
    case Cause::ready:
    case Cause::paused:
    case Cause::cycle: break;
  }
  return {};
}

}  // namespace

/// Returns the sentence of an item. `next`: what it waits for. `behind`: if `next` is an object, the
/// call that makes it.
std::string WaitGraph::sentence(const Item& item, const Item* next, const Item* behind) const {
  const Fact& fact = item.fact;
  std::string text = subject_of(fact);
  if (!item.known)
    text += " is unknown: " + (fact.why.empty()
                                   ? visible_text(fact.thing.owner, kShownName) + " does not answer"
                                   : visible_text(fact.why, kShownWhy));
  else if (next == nullptr)
    text += end_of(fact);
  else
    text += link_of(fact, next->fact) + subject_of(next->fact) +
            (behind != nullptr ? ", the result of " + subject_of(behind->fact) : "");
  return capitalized(std::move(text)) + ".";
}

/// Returns the first few processes that hold what a request lacks.
std::string WaitGraph::holders_of(const Item& item) const {
  constexpr std::size_t kMost = 5;
  std::string text;
  if (item.fact.state != State::lacks) return text;
  for (std::size_t i = 0; i < std::min(item.needs.size(), kMost); ++i) {
    const Item& holder = items_[item.needs[i]];
    text += (i == 0 ? "" : "; ") + subject_of(holder.fact);
    if (!holder.needs.empty()) text += " runs " + subject_of(items_[holder.needs.front()].fact);
  }
  if (item.needs.size() > kMost)
    text += "; and " + std::to_string(item.needs.size() - kMost) + " more";
  return text;
}

std::vector<std::string> WaitGraph::sentences(const std::vector<std::size_t>& way,
                                              bool is_cycle) const {
  std::vector<std::string> lines;
  const std::size_t steps = way.size();
  const auto at = [&](std::size_t i) -> const Item* {
    if (i < steps) return &items_[way[i]];
    return is_cycle ? &items_[way[i % steps]] : nullptr;
  };
  // The last item of a way into a cycle stands there a second time.
  const bool repeats = !is_cycle && steps > 1 && !items_[way.back()].cause;
  for (std::size_t i = 0; i + (repeats ? 1 : 0) < steps; ++i) {
    const Item &item = *at(i), *const next = at(i + 1);
    const bool is_object = item.fact.thing.kind == Kind::object;
    // The sentence before has named the object together with its maker.
    if (is_object && next != nullptr && (i > 0 || is_cycle)) continue;
    const bool through = next != nullptr && next->fact.thing.kind == Kind::object;
    lines.push_back(sentence(item, next, through ? at(i + 2) : nullptr));
  }
  if (!is_cycle && !way.empty() && items_[way.back()].cause) {
    if (const std::string holders = holders_of(items_[way.back()]); !holders.empty())
      lines.push_back("They are held by " + holders + ".");
    const std::string advice = advice_of(*items_[way.back()].cause);
    if (!advice.empty()) lines.push_back("Next: " + advice + ".");
  }
  return lines;
}

/// Returns the group of the waits that end at this item. Things of one name and cause are one group.
Survey::Group WaitGraph::group_of(std::size_t root) const {
  const Item& item = items_[root];
  const Fact& fact = item.fact;
  Survey::Group group;
  group.cause = item.cause.value_or(Cause::cycle);
  const std::string name = visible_text(fact.name.empty() ? fact.thing.id : fact.name, kShownName);
  const std::string why = visible_text(fact.why, kShownWhy);
  const std::string needs = visible_text(fact.needs, kShownName);
  switch (group.cause) {
    case Cause::ready: group.text = "what they wait for is ready"; break;
    case Cause::runs:
      group.text = fact.thing.kind == Kind::actor ? "the constructor of '" + name + "' runs"
                                                  : "'" + name + "' runs";
      break;
    case Cause::paused: group.text = "'" + name + "' pauses before it is tried again"; break;
    case Cause::lacks:
      group.text = "no room now" + (needs.empty() ? "" : " for " + needs) + why_of(fact);
      break;
    case Cause::unanswered:
      group.text = visible_text(fact.thing.owner, kShownName) + " does not say what it waits for" +
                   (why.empty() ? "" : ": " + why);
      break;
    case Cause::lost: group.text = subject_of(fact) + end_of(fact); break;
    case Cause::impossible:
      group.text = "nobody can give " + (needs.empty() ? "what it needs" : needs) + why_of(fact);
      break;
    case Cause::cycle: break;
  }
  return group;
}

std::vector<std::string> Survey::lines() const {
  std::vector<std::string> lines;
  const auto waiting = [](const Group& group) {
    return std::to_string(group.count) + (group.count == 1 ? " waits" : " wait") +
           (group.longest_ns == 0 ? "" : ", up to " + age_text(group.longest_ns)) + ": " +
           group.text + ".";
  };
  for (const Group& group : impossible)
    lines.push_back(waiting(group) + " Ask for less, or start a node that has it.");
  for (const Cycle& cycle : cycles) {
    lines.push_back("A cycle that no time ends: " + visible_text(cycle.text, kShownWhy) + ".");
    for (const std::string& line : cycle.lines) lines.push_back("  " + line);
  }
  for (const Group& group : groups) lines.push_back(waiting(group));
  if (!complete)
    lines.emplace_back("Some owners did not answer, so this may not be all: troupe list nodes.");
  if (lines.empty()) lines.emplace_back("Nothing waits for 10 seconds or more.");
  return lines;
}

}  // namespace troupe::observe
