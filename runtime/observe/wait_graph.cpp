#include "troupe/runtime/observe/wait_graph.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

namespace troupe::observe {
namespace {

constexpr std::size_t kMaxItems = 64 * WaitGraph::kMaxSteps;

/// Returns the cause of a thing that waits for no other thing; nullopt: it waits.
std::optional<Cause> own_cause(const Fact& fact) {
  switch (fact.state) {
    case Fact::State::ready: return Cause::ready;
    case Fact::State::runs: return Cause::runs;
    case Fact::State::paused: return Cause::paused;
    case Fact::State::impossible: return Cause::impossible;
    case Fact::State::lost: return Cause::lost;
    case Fact::State::lacks:
      // The holders say more than the lack itself, where they are known.
      return fact.waits_for.empty() ? std::optional(Cause::lacks) : std::nullopt;
    case Fact::State::waits:
    case Fact::State::blocked: break;
  }
  return fact.waits_for.empty() ? std::optional(Cause::unanswered) : std::nullopt;
}

}  // namespace

std::string_view name_of(Cause cause) noexcept {
  switch (cause) {
    case Cause::ready: return "ready";
    case Cause::runs: return "runs";
    case Cause::paused: return "paused";
    case Cause::lacks: return "lacks";
    case Cause::unanswered: return "unanswered";
    case Cause::lost: return "lost";
    case Cause::impossible: return "impossible";
    case Cause::cycle: return "cycle";
  }
  return "?";
}

std::size_t WaitGraph::item_of(const Thing& thing) {
  const auto [at, is_new] = index_.try_emplace(thing, items_.size());
  if (is_new) {
    items_.emplace_back().fact.thing = thing;
    unasked_.push_back(at->second);
  }
  return at->second;
}

/// Stores the fact and adds what it waits for. The fact of a thing that tells of another one is
/// taken as told of the thing that was asked about.
void WaitGraph::learn(std::size_t item, Fact fact) {
  fact.thing = items_[item].fact.thing;
  std::vector<std::size_t> needs;
  for (const Thing& thing : fact.waits_for) {
    if (needs.size() == kMaxFollowed || items_.size() >= kMaxItems) {
      complete_ = false;
      break;
    }
    const std::size_t need = item_of(thing);
    if (std::find(needs.begin(), needs.end(), need) == needs.end()) needs.push_back(need);
  }
  items_[item].known = true;
  items_[item].fact = std::move(fact);
  items_[item].needs = std::move(needs);
}

/// Asks for every thing that is not known yet, the nearest first.
void WaitGraph::explore() {
  for (std::size_t at = 0; at < unasked_.size(); ++at) {
    const std::size_t item = unasked_[at];
    if (items_[item].known) continue;
    const Thing thing = items_[item].fact.thing;
    if (steps_left_ == 0 || silent_.count(thing.owner) != 0) {
      complete_ = false;
      if (steps_left_ == 0) items_[item].fact.why = "nobody was asked: the graph is too large";
      continue;
    }
    --steps_left_;
    auto fact = ask_(thing);
    if (fact) {
      learn(item, std::move(*fact));
      continue;
    }
    const Code code = fact.error().code();
    if (code == Code::timed_out || code == Code::unavailable) silent_.insert(thing.owner);
    complete_ = false;
    items_[item].fact.why = fact.error().message();
  }
  unasked_.clear();
}

void WaitGraph::settle(std::size_t item, Cause cause, std::optional<std::size_t> next) {
  // A request whose resources are in use lacks room, unless their holders are blocked themselves.
  if (items_[item].fact.state == Fact::State::lacks && cause < Cause::lacks) {
    const auto is_blocked = [this](std::size_t at) {
      return items_[at].fact.state == Fact::State::blocked;
    };
    auto at = next;
    while (at && !is_blocked(*at)) at = items_[*at].next;
    if (!at) {
      cause = Cause::lacks;
      next.reset();
    }
  }
  items_[item].cause = cause;
  items_[item].next = next;
  settled_[cause].push_back(item);
}

/// Gives each item the cause of its wait. One of several alternatives decides as soon as it is
/// known, so causes spread from the mildest on: an item that needs all gets the worst of theirs, and
/// one that needs any gets the mildest (Knuth 1977, a generalization of Dijkstra's algorithm). What
/// remains without a cause is in a cycle or behind one.
void WaitGraph::find_causes() {
  for (Item& item : items_) {
    item.cause.reset();
    item.next.reset();
    item.needed_by.clear();
  }
  settled_.clear();
  for (std::size_t i = 0; i < items_.size(); ++i) {
    Item& item = items_[i];
    item.open = item.needs.size();
    for (const std::size_t need : item.needs) items_[need].needed_by.push_back(i);
    if (!item.known)
      settle(i, Cause::unanswered, std::nullopt);
    else if (const auto cause = own_cause(item.fact))
      settle(i, *cause, std::nullopt);
  }
  while (!settled_.empty()) {
    const auto mildest = settled_.begin();
    const Cause cause = mildest->first;
    const auto items = std::exchange(mildest->second, {});
    if (items.empty()) {
      settled_.erase(mildest);
      continue;
    }
    for (const std::size_t done : items)
      for (const std::size_t follower : items_[done].needed_by) {
        Item& item = items_[follower];
        --item.open;
        if (!item.cause && (item.fact.any || item.open == 0)) settle(follower, cause, done);
      }
  }
}

/// Returns the groups of items that wait for each other (Tarjan 1972, without recursion).
std::vector<std::vector<std::size_t>> WaitGraph::cycles() const {
  struct Visit {
    std::size_t item, child;
  };
  constexpr std::size_t kNone = SIZE_MAX;
  std::vector<std::size_t> number(items_.size(), kNone), low(items_.size(), 0), stack;
  std::vector<bool> on_stack(items_.size(), false);
  std::vector<std::vector<std::size_t>> found;
  std::size_t count = 0;
  for (std::size_t start = 0; start < items_.size(); ++start) {
    if (items_[start].cause || number[start] != kNone) continue;
    std::vector<Visit> visits{{start, 0}};
    while (!visits.empty()) {
      const std::size_t item = visits.back().item;
      const auto& needs = items_[item].needs;
      if (visits.back().child == 0) {
        number[item] = low[item] = count++;
        stack.push_back(item);
        on_stack[item] = true;
      }
      if (visits.back().child < needs.size()) {
        const std::size_t need = needs[visits.back().child++];
        if (items_[need].cause) continue;
        if (number[need] == kNone)
          visits.push_back({need, 0});
        else if (on_stack[need])
          low[item] = std::min(low[item], number[need]);
        continue;
      }
      visits.pop_back();
      if (!visits.empty()) low[visits.back().item] = std::min(low[visits.back().item], low[item]);
      if (low[item] != number[item]) continue;
      const auto first = std::find(stack.begin(), stack.end(), item);
      std::vector<std::size_t> component(first, stack.end());
      stack.erase(first, stack.end());
      for (const std::size_t member : component) on_stack[member] = false;
      const bool waits_for_itself = std::find(needs.begin(), needs.end(), item) != needs.end();
      if (component.size() > 1 || waits_for_itself) found.push_back(std::move(component));
    }
  }
  return found;
}

/// Returns a shortest way round through the least thing of the component.
std::vector<std::size_t> WaitGraph::way_round(const std::vector<std::size_t>& component) const {
  const std::set<std::size_t> members(component.begin(), component.end());
  const std::size_t start = *std::min_element(
      component.begin(), component.end(),
      [this](std::size_t a, std::size_t b) { return items_[a].fact.thing < items_[b].fact.thing; });
  std::map<std::size_t, std::size_t> before;
  std::vector<std::size_t> queue{start};
  for (std::size_t at = 0; at < queue.size(); ++at)
    for (const std::size_t need : items_[queue[at]].needs) {
      if (members.count(need) == 0 || !before.try_emplace(need, queue[at]).second) continue;
      if (need != start) {
        queue.push_back(need);
        continue;
      }
      std::vector<std::size_t> way;
      for (std::size_t item = before.at(start);; item = before.at(item)) {
        way.push_back(item);
        if (item == start) break;
      }
      std::reverse(way.begin(), way.end());
      return way;
    }
  return component;  // not reached: each member is on a way round
}

/// Returns the items from this one to its cause; with a cycle, up to the first repeated one.
std::vector<std::size_t> WaitGraph::way_from(std::size_t item) const {
  std::vector<std::size_t> way;
  std::set<std::size_t> seen;
  std::optional<std::size_t> at = item;
  while (at && seen.insert(*at).second) {
    way.push_back(*at);
    const Item& here = items_[*at];
    at = here.next;
    if (here.cause) continue;
    for (const std::size_t need : here.needs)
      if (!items_[need].cause) {
        at = need;
        break;
      }
  }
  if (at) way.push_back(*at);
  return way;
}

Explanation WaitGraph::explain(const Thing& from) {
  const std::size_t start = item_of(from);
  explore();
  find_causes();
  Explanation explanation;
  const Cause cause = items_[start].cause.value_or(Cause::cycle);
  explanation.cause = cause;
  explanation.lines = sentences(way_from(start), false);
  if (cause == Cause::cycle)
    explanation.lines.emplace_back(
        "This is a cycle: no time ends it. Let one of them answer without waiting for the other, "
        "or "
        "stop the job (troupe job stop).");
  return explanation;
}

Survey WaitGraph::survey(const std::vector<Fact>& waiting) {
  std::vector<std::size_t> starts;
  for (const Fact& fact : waiting) {
    if (items_.size() >= kMaxItems) {
      complete_ = false;
      break;
    }
    const std::size_t item = item_of(fact.thing);
    if (items_[item].known) continue;
    learn(item, fact);
    starts.push_back(item);
  }
  explore();
  find_causes();
  Survey survey;
  survey.complete = complete_;
  std::map<std::pair<Cause, std::string>, Survey::Group> groups;
  for (const std::size_t start : starts) {
    const Item& item = items_[start];
    if (!item.cause) continue;
    if (item.fact.since_ns < kLong && item.cause != Cause::impossible) continue;
    std::size_t root = start;
    while (const auto next = items_[root].next) root = *next;
    const Survey::Group group = group_of(root);
    Survey::Group& all = groups.try_emplace({group.cause, group.text}, group).first->second;
    all.count += item.fact.count;
    all.longest_ns = std::max(all.longest_ns, item.fact.since_ns);
  }
  for (auto& [key, group] : groups)
    (group.cause == Cause::impossible ? survey.impossible : survey.groups).push_back(group);
  for (auto* list : {&survey.impossible, &survey.groups})
    std::stable_sort(list->begin(), list->end(), [](const auto& a, const auto& b) {
      return a.count != b.count ? a.count > b.count : a.longest_ns > b.longest_ns;
    });
  for (const auto& component : cycles()) {
    const std::vector<std::size_t> way = way_round(component);
    Survey::Cycle& cycle = survey.cycles.emplace_back();
    std::set<std::string> named;
    for (const std::size_t member : way) {
      const Fact& fact = items_[member].fact;
      cycle.things.push_back(fact.thing);
      const std::string name = fact.thing.kind == Thing::Kind::call && !fact.actor.empty()
                                   ? fact.actor
                               : fact.name.empty() ? fact.thing.id
                                                   : fact.name;
      const bool is_link = fact.thing.kind == Thing::Kind::object ||
                           fact.thing.kind == Thing::Kind::request ||
                           fact.thing.kind == Thing::Kind::worker;
      if (!is_link) named.insert(name);
    }
    for (const std::string& name : named) cycle.text += (cycle.text.empty() ? "" : ", ") + name;
    cycle.text += named.size() == 1 ? " waits for itself" : " wait for each other";
    cycle.lines = sentences(way, true);
  }
  return survey;
}

}  // namespace troupe::observe
