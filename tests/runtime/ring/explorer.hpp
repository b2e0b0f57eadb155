/// Explores every interleaving of a small model: breadth first over all states, one atomic step
/// of one process at a time.
///
///     const Found found = explore(Start{}, successors, [](const State& s) { return s.finished();
///     }); EXPECT_FALSE(found.stuck) << found.trace;
///
/// A model's state is a plain struct of bytes; equal bytes mean equal states.
#pragma once

#include <cstdint>
#include <cstring>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace troupe::ring::model {

/// A possible next state, and a text of the step that leads there.
template <class State>
struct Step {
  State state;
  const char* what;
};

struct Found {
  bool stuck = false;      ///< whether some state has no step and is not finished
  std::size_t states = 0;  ///< visited
  std::string trace;       ///< the shortest path to the stuck state, one step a line
};

/// Visits every state that can be reached from `start`. `next(state, steps)` appends the possible
/// steps; `finished(state)` returns whether a state without steps is a good end. The model is
/// finite, so a return also proves that every endless run repeats a state.
template <class State, class Next, class Finished>
Found explore(const State& start, const Next& next, const Finished& finished) {
  static_assert(std::has_unique_object_representations_v<State>, "states are compared as bytes");
  struct Hash {
    std::size_t operator()(const State& s) const noexcept {
      return std::hash<std::string_view>()({reinterpret_cast<const char*>(&s), sizeof s});
    }
  };
  struct Equal {
    bool operator()(const State& a, const State& b) const noexcept {
      return std::memcmp(&a, &b, sizeof a) == 0;
    }
  };
  std::unordered_map<State, std::uint32_t, Hash, Equal> seen;
  struct Way {
    State state;
    std::uint32_t from;
    const char* what;
  };
  std::vector<Way> ways;
  const auto visit = [&](const State& s, std::uint32_t from, const char* what) {
    if (seen.emplace(s, static_cast<std::uint32_t>(ways.size())).second)
      ways.push_back({s, from, what});
  };
  visit(start, 0, "start");
  Found found;
  std::vector<Step<State>> steps;
  for (std::uint32_t at = 0; at < ways.size(); ++at) {
    steps.clear();
    const State state = ways[at].state;
    next(state, steps);
    for (const auto& step : steps) visit(step.state, at, step.what);
    if (!steps.empty() || finished(state)) continue;
    found.stuck = true;
    for (std::uint32_t i = at; i != 0; i = ways[i].from)
      found.trace = std::string(ways[i].what) + '\n' + found.trace;
    break;
  }
  found.states = ways.size();
  return found;
}

}  // namespace troupe::ring::model
