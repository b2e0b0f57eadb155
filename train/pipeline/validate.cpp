#include "troupe/train/pipeline/validate.hpp"

#include "troupe/train/internal/reject.hpp"
#include "troupe/train/pipeline/internal/checks.hpp"
#include "troupe/train/pipeline/text.hpp"

#include <map>
#include <utility>

namespace troupe::train {
namespace internal {
namespace {

/// Returns a text like "schedule: rank 1: ".
std::string on_rank(int rank) {
  return "schedule: rank " + std::to_string(rank) + ": ";
}

/// Checks which transfers each stage has, and the order of the actions of each rank.
class Checker {
 public:
  Checker(const Schedule& schedule, const PipelineShape& shape, With with)
      : schedule_(schedule), shape_(shape), with_(with), places_(shape) {}
  void run();

 private:
  void place(int rank, std::size_t at);
  void check_place(int rank, const Action& action) const;
  void check_number(const char* what, int rank, const Action& action, int number, int most) const;
  bool expects(const Action& action) const;
  void check_complete(int stage, int micro) const;
  void check_orders(int stage, int micro) const;
  void check_order(const Action& first, const Action& second) const;
  int rank_of(const Action& action) const { return rank_of_stage(action.stage, shape_.p); }
  bool has(const Action& action) const { return places_(action) != Places::kNone; }

  const Schedule& schedule_;
  PipelineShape shape_;
  With with_;
  Places places_;
};

void Checker::run() {
  for (int r = 0; r < shape_.p; ++r)
    for (std::size_t i = 0; i < schedule_[static_cast<std::size_t>(r)].size(); ++i) place(r, i);
  for (int stage = 0; stage < shape_.stages(); ++stage)
    for (int micro = 0; micro < shape_.m; ++micro) {
      check_complete(stage, micro);
      check_orders(stage, micro);
    }
}

void Checker::check_number(const char* what, int rank, const Action& action, int number,
                           int most) const {
  if (number < 0 || number >= most)
    reject(on_rank(rank) + text_of(action) + " is of " + what + " " + std::to_string(number) +
           ", and there are " + std::to_string(most) + ": use 0 to " + std::to_string(most - 1));
}

void Checker::check_place(int rank, const Action& action) const {
  check_number("stage", rank, action, action.stage, shape_.stages());
  check_number("micro-batch", rank, action, action.micro, shape_.m);
  if (rank_of(action) != rank)
    reject(on_rank(rank) + text_of(action) + " belongs to rank " + std::to_string(rank_of(action)) +
           ", as stage s lies on rank s % " + std::to_string(shape_.p) + ": move it to line " +
           std::to_string(rank_of(action) + 1));
}

void Checker::place(int rank, std::size_t at) {
  const Action& action = schedule_[static_cast<std::size_t>(rank)][at];
  check_place(rank, action);
  if (has(action))
    reject(on_rank(rank) + text_of(action) + " stands there twice, as action " +
           std::to_string(places_(action) + 1) + " and as action " + std::to_string(at + 1) +
           ": remove one");
  if (is_transfer(action.op) && !expects(action))
    reject(on_rank(rank) + text_of(action) +
           " has no stage on another rank at its other end: remove it");
  places_.set(action, static_cast<int>(at));
}

bool Checker::expects(const Action& action) const {
  const int peer = peer_stage(action);
  return with_ == With::transfers && shape_.p > 1 && peer >= 0 && peer < shape_.stages();
}

void Checker::check_complete(int stage, int micro) const {
  const auto lacks = [&](const Action& action, const char* more) {
    reject(on_rank(rank_of(action)) + text_of(action) + " is missing: add it" + more);
  };
  const Action f{Action::F, stage, micro}, b{Action::B, stage, micro}, i{Action::I, stage, micro},
      w{Action::W, stage, micro};
  if (!has(f)) lacks(f, "");
  if (!has(b) && !has(i) && !has(w)) lacks(b, ", or I and W in its place");
  for (const Action& part : {i, w}) {
    if (has(b) && has(part))
      reject(on_rank(rank_of(b)) + "it has both " + text_of(b) + " and " + text_of(part) +
             ", and B is I and W: remove one");
    if (!has(b) && !has(part)) lacks(part, ", or B in the place of I and W");
  }
  for (const Action::Op op : {Action::RecvF, Action::SendF, Action::RecvB, Action::SendB}) {
    const Action transfer{op, stage, micro};
    if (expects(transfer) && !has(transfer)) lacks(transfer, "");
  }
}

void Checker::check_order(const Action& first, const Action& second) const {
  if (!has(first) || !has(second) || places_(first) < places_(second)) return;
  reject(on_rank(rank_of(first)) + text_of(second) + " stands before " + text_of(first) +
         ", which it needs: move it behind");
}

void Checker::check_orders(int stage, int micro) const {
  const auto of = [&](Action::Op op) { return Action{op, stage, micro}; };
  const Action backward = places_.backward(stage, micro);
  check_order(of(Action::F), backward);
  check_order(of(Action::I), of(Action::W));
  check_order(of(Action::RecvF), of(Action::F));
  check_order(of(Action::F), of(Action::SendF));
  check_order(of(Action::RecvB), backward);
  check_order(backward, of(Action::SendB));
  if (shape_.p > 1 || stage + 1 == shape_.stages()) return;
  check_order(of(Action::F), {Action::F, stage + 1, micro});
  check_order(places_.backward(stage + 1, micro), backward);
}

using Pairs = std::map<std::pair<int, int>, std::vector<Action>>;

Action other_end(const Action& send) {
  return {send.op == Action::SendF ? Action::RecvF : Action::RecvB, peer_stage(send), send.micro};
}

/// Returns a text like "rank 0 stands at 0SendF1 until rank 1 comes to 1RecvF1".
std::string text_of_blocked(const Schedule& schedule, const Blocked& blocked) {
  const auto action = [&](const ActionPlace& place) {
    return text_of(
        schedule[static_cast<std::size_t>(place.rank)][static_cast<std::size_t>(place.at)]);
  };
  return "rank " + std::to_string(blocked.at.rank) + " stands at " + action(blocked.at) +
         " until rank " + std::to_string(blocked.waits_for.rank) + " comes to " +
         action(blocked.waits_for);
}

}  // namespace

void check_actions(const Schedule& schedule, const PipelineShape& shape, With with) {
  Checker(schedule, shape, with).run();
}

void check_pairs(const Schedule& schedule, const PipelineShape& shape) {
  Pairs sends, receives;
  for (int r = 0; r < shape.p; ++r)
    for (const Action& action : schedule[static_cast<std::size_t>(r)]) {
      if (!is_transfer(action.op)) continue;
      const int peer = peer_rank(action, shape.p);
      if (is_send(action.op))
        sends[{r, peer}].push_back(action);
      else
        receives[{peer, r}].push_back(action);
    }
  for (const auto& [pair, from] : sends) {
    const std::vector<Action>& to = receives[pair];
    for (std::size_t i = 0; i < from.size(); ++i) {
      if (other_end(from[i]) == to[i]) continue;
      reject(on_rank(pair.second) + text_of(to[i]) + " would get what rank " +
             std::to_string(pair.first) + " sends with " + text_of(from[i]) +
             ", as both are number " + std::to_string(i + 1) +
             " between these ranks: bring the receives into the order of the sends");
    }
  }
}

void check_ends(const Schedule& schedule, const Played& played) {
  if (played.blocked.empty()) return;
  std::string text = "schedule: it deadlocks: ";
  const std::vector<Blocked> circle = circle_of(played.blocked);
  for (std::size_t i = 0; i < circle.size(); ++i)
    text += (i == 0 ? "" : ", and ") + text_of_blocked(schedule, circle[i]);
  reject(text + ": move one of these actions before what its rank stands at");
}

}  // namespace internal

void validate(const Schedule& schedule, int p, int m, int v) {
  const internal::PipelineShape shape{p, m, v};
  shape.check();
  if (schedule.size() != static_cast<std::size_t>(p))
    internal::reject("schedule: it has lists for " + std::to_string(schedule.size()) +
                     " ranks, and the layout has pp = " + std::to_string(p) +
                     ": write a line for each rank, or change pp");
  internal::check_actions(schedule, shape, internal::With::transfers);
  internal::check_pairs(schedule, shape);
  internal::check_ends(schedule, internal::play(schedule, shape, {}));
}

}  // namespace troupe::train
