#include "troupe/train/pipeline/internal/play.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace troupe::train::internal {
namespace {

constexpr double kNotYet = -1;

double cost_of(Action::Op op, const Costs& costs) noexcept {
  switch (op) {
    case Action::F: return costs.forward;
    case Action::B: return costs.input + costs.weight;
    case Action::I: return costs.input;
    case Action::W: return costs.weight;
    default: return costs.transfer;
  }
}

class Player {
 public:
  Player(const Schedule& schedule, const PipelineShape& shape, const Costs& costs);
  Played run();

 private:
  struct Rank {
    std::size_t at = 0;
    double time = 0;
    bool posted = false;       // its group of transfers has been posted
    Blocked blocked;           // its position, until it is at its end
    std::vector<int> waiting;  // ranks to advance again when this one has moved
  };

  void match_transfers();
  void find_producers();
  const std::vector<Action>& actions(int rank) const {
    return schedule_[static_cast<std::size_t>(rank)];
  }
  Rank& rank(int r) { return ranks_[static_cast<std::size_t>(r)]; }
  Span& span(const ActionPlace& place) {
    return played_.spans[static_cast<std::size_t>(place.rank)][static_cast<std::size_t>(place.at)];
  }
  void wait_for(int r, std::size_t at, const ActionPlace& place);
  void advance(int r);
  bool compute(int r);
  bool transfer(int r);
  void post(int r, std::size_t end);
  void wake(int r);

  const Schedule& schedule_;
  PipelineShape shape_;
  Costs costs_;
  // For each action the other end of a transfer, or the computation on another stage whose result
  // it reads.
  std::vector<std::vector<ActionPlace>> needs_;
  std::vector<Rank> ranks_;
  std::vector<int> ready_;
  Played played_;
};

Player::Player(const Schedule& schedule, const PipelineShape& shape, const Costs& costs)
    : schedule_(schedule), shape_(shape), costs_(costs), ranks_(schedule.size()) {
  for (const auto& list : schedule) {
    needs_.emplace_back(list.size());
    played_.spans.emplace_back(list.size(), Span{kNotYet, kNotYet});
  }
  if (has_transfers(schedule))
    match_transfers();
  else
    find_producers();
}

void Player::match_transfers() {
  std::map<std::pair<int, int>, std::vector<ActionPlace>> sends, receives;
  for (int r = 0; r < shape_.p; ++r)
    for (std::size_t i = 0; i < actions(r).size(); ++i) {
      const Action& action = actions(r)[i];
      if (!is_transfer(action.op)) continue;
      const int peer = peer_rank(action, shape_.p);
      const ActionPlace place{r, static_cast<int>(i)};
      if (is_send(action.op))
        sends[{r, peer}].push_back(place);
      else
        receives[{peer, r}].push_back(place);
    }
  const auto need = [this](const ActionPlace& place) -> ActionPlace& {
    return needs_[static_cast<std::size_t>(place.rank)][static_cast<std::size_t>(place.at)];
  };
  for (const auto& [pair, from] : sends) {
    const std::vector<ActionPlace>& to = receives[pair];
    for (std::size_t i = 0; i < std::min(from.size(), to.size()); ++i) {
      need(from[i]) = to[i];
      need(to[i]) = from[i];
    }
  }
}

void Player::find_producers() {
  const Places places(schedule_, shape_);
  for (int r = 0; r < shape_.p; ++r)
    for (std::size_t i = 0; i < actions(r).size(); ++i) {
      const auto [op, stage, micro] = actions(r)[i];
      ActionPlace& need = needs_[static_cast<std::size_t>(r)][i];
      if (op == Action::F && stage > 0)
        need = {rank_of_stage(stage - 1, shape_.p), places(Action::F, stage - 1, micro)};
      if ((op == Action::B || op == Action::I) && stage + 1 < shape_.stages())
        need = {rank_of_stage(stage + 1, shape_.p), places(places.backward(stage + 1, micro))};
    }
}

Played Player::run() {
  for (int r = shape_.p; r-- > 0;) ready_.push_back(r);
  while (!ready_.empty()) {
    const int r = ready_.back();
    ready_.pop_back();
    advance(r);
  }
  for (int r = 0; r < shape_.p; ++r)
    if (rank(r).at < actions(r).size()) played_.blocked.push_back(rank(r).blocked);
  return std::move(played_);
}

void Player::advance(int r) {
  while (rank(r).at < actions(r).size())
    if (!(is_transfer(actions(r)[rank(r).at].op) ? transfer(r) : compute(r))) return;
}

void Player::wait_for(int r, std::size_t at, const ActionPlace& place) {
  rank(r).blocked = {{r, static_cast<int>(at)}, place};
  rank(place.rank).waiting.push_back(r);
}

void Player::wake(int r) {
  ready_.insert(ready_.end(), rank(r).waiting.begin(), rank(r).waiting.end());
  rank(r).waiting.clear();
}

bool Player::compute(int r) {
  Rank& self = rank(r);
  const ActionPlace need = needs_[static_cast<std::size_t>(r)][self.at];
  double start = self.time;
  if (need.rank >= 0) {
    if (need.at < 0 || span(need).end == kNotYet) {
      wait_for(r, self.at, need);
      return false;
    }
    start = std::max(start, span(need).end);
  }
  self.time = start + cost_of(actions(r)[self.at].op, costs_);
  span({r, static_cast<int>(self.at)}) = {start, self.time};
  ++self.at;
  wake(r);
  return true;
}

void Player::post(int r, std::size_t end) {
  Rank& self = rank(r);
  self.posted = true;
  for (std::size_t i = self.at; i < end; ++i) span({r, static_cast<int>(i)}).start = self.time;
  wake(r);
}

/// Completes a group if all its peers have posted. Until then a transfer's span.start is the time
/// at which its own rank posted it.
bool Player::transfer(int r) {
  Rank& self = rank(r);
  const std::vector<ActionPlace>& needs = needs_[static_cast<std::size_t>(r)];
  const std::size_t end = group_end(actions(r), self.at);
  if (!self.posted) post(r, end);
  for (std::size_t i = self.at; i < end; ++i)
    if (span(needs[i]).start == kNotYet) {
      wait_for(r, i, needs[i]);
      return false;
    }
  for (std::size_t i = self.at; i < end; ++i) {
    Span& own = span({r, static_cast<int>(i)});
    own.start = std::max(own.start, span(needs[i]).start);
    own.end = own.start + costs_.transfer;
    self.time = std::max(self.time, own.end);
  }
  self.at = end;
  self.posted = false;
  return true;
}

}  // namespace

Played play(const Schedule& schedule, const PipelineShape& shape, const Costs& costs) {
  return Player(schedule, shape, costs).run();
}

std::vector<Blocked> circle_of(const std::vector<Blocked>& blocked) {
  std::map<int, Blocked> of;
  for (const Blocked& each : blocked) of.emplace(each.at.rank, each);
  std::vector<Blocked> path;
  std::map<int, std::size_t> seen;
  int rank = blocked.front().at.rank;
  while (seen.emplace(rank, path.size()).second) {
    path.push_back(of.at(rank));
    rank = path.back().waits_for.rank;
  }
  path.erase(path.begin(), path.begin() + static_cast<std::ptrdiff_t>(seen.at(rank)));
  return path;
}

}  // namespace troupe::train::internal
