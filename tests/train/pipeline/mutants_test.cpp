// Tests the validator of schedules against an interpreter that tries every order of events.
#include "tests/train/pipeline/schedules.hpp"
#include "troupe/train/pipeline/text.hpp"
#include "troupe/train/pipeline/validate.hpp"

#include <gtest/gtest.h>

#include <array>
#include <bitset>
#include <set>

namespace troupe::train::pipeline_test {
namespace {

/// Runs a schedule on symbolic data: a depth-first search over all orders in which ranks may
/// compute and pairs of transfers may meet. It does not use the validator's notions of cycles,
/// counts or positions.
class Interpreter {
 public:
  static constexpr int kMostRanks = 4, kMostPasses = 32;

  Interpreter(const Schedule& schedule, int p, int m, int v)
      : schedule_(schedule), p_(p), m_(m), stages_(p * v) {}

  /// Returns whether every order comes to an end at which each pass was made once.
  bool runs() {
    if (static_cast<int>(schedule_.size()) != p_) return false;
    return search({});
  }

 private:
  /// Data of a stage and a micro-batch that a rank may hold, and passes that it may have done.
  enum Item : std::uint8_t { kInput, kOutput, kSaved, kUpper, kLower, kCarry, kForward, kWeight };
  static constexpr std::size_t kItems = 8;

  struct State {
    std::array<int, kMostRanks> at{};
    std::array<std::uint64_t, kMostRanks> met{};  // transfers made, by position
    std::bitset<kItems * kMostPasses> items;
    auto key() const { return std::pair(at, met); }
  };

  bool search(const State& state) {
    if (!seen_.insert(state.key()).second) return true;  // its successors were searched already
    bool moved = false;
    for (int r = 0; r < p_; ++r) {
      if (ended(state, r)) continue;
      if (is_transfer(action(state, r).op) ? !try_transfers(state, r, moved)
                                           : !try_compute(state, r, moved))
        return false;
    }
    return moved || complete(state);
  }

  const std::vector<Action>& list(int r) const { return schedule_[static_cast<std::size_t>(r)]; }
  static std::size_t index(int n) { return static_cast<std::size_t>(n); }
  bool ended(const State& state, int r) const {
    return index(state.at[index(r)]) == list(r).size();
  }
  const Action& action(const State& state, int r) const {
    return list(r)[index(state.at[index(r)])];
  }
  bool exists(int stage, int micro) const {
    return stage >= 0 && stage < stages_ && micro >= 0 && micro < m_;
  }
  std::size_t bit(Item item, int stage, int micro) const {
    return index(stage * m_ + micro) * kItems + item;
  }

  /// Takes an item; returns false when it is missing.
  bool take(State& state, Item item, int stage, int micro) const {
    const std::size_t place = bit(item, stage, micro);
    const bool had = state.items[place];
    state.items.reset(place);
    return had;
  }
  /// Leaves an item; returns false when there is one already.
  bool leave(State& state, Item item, int stage, int micro) const {
    const std::size_t place = bit(item, stage, micro);
    const bool had = state.items[place];
    state.items.set(place);
    return !had;
  }

  bool try_compute(const State& state, int r, bool& moved) {
    State next = state;
    if (!compute(next, r, action(state, r))) return false;
    ++next.at[index(r)];
    moved = true;
    return search(next);
  }

  bool compute(State& state, int r, const Action& action) const {
    const auto [op, s, k] = action;
    if (!exists(s, k) || s % p_ != r) return false;
    switch (op) {
      case Action::F: return forward(state, s, k);
      case Action::I: return input(state, s, k);
      case Action::W: return weight(state, s, k);
      default: return input(state, s, k) && weight(state, s, k);
    }
  }
  bool forward(State& state, int s, int k) const {
    if (s > 0 && !take(state, kInput, s, k)) return false;
    if (!leave(state, kForward, s, k) || !leave(state, kSaved, s, k)) return false;
    if (s + 1 == stages_) return true;
    return p_ == 1 ? leave(state, kInput, s + 1, k) : leave(state, kOutput, s, k);
  }
  bool input(State& state, int s, int k) const {
    if (s + 1 < stages_ && !take(state, kUpper, s, k)) return false;
    if (!take(state, kSaved, s, k) || !leave(state, kCarry, s, k)) return false;
    if (s == 0) return true;
    return p_ == 1 ? leave(state, kUpper, s - 1, k) : leave(state, kLower, s, k);
  }
  bool weight(State& state, int s, int k) const {
    return take(state, kCarry, s, k) && leave(state, kWeight, s, k);
  }

  /// Returns the first transfer to or from the peer in the rank's group that was not made yet; -1
  /// when there is none.
  int open_transfer(const State& state, int r, int peer, bool sends) const {
    for (int i = state.at[index(r)]; index(i) < list(r).size(); ++i) {
      const Action& one = list(r)[index(i)];
      if (!is_transfer(one.op)) return -1;
      const bool made = (state.met[index(r)] >> i & 1) != 0;
      if (!made && is_send(one.op) == sends && peer_rank(one, p_) == peer) return i;
    }
    return -1;
  }

  /// Tries all transfers that rank r could send now.
  bool try_transfers(const State& state, int r, bool& moved) {
    for (int peer = 0; peer < p_; ++peer) {
      if (peer == r) continue;
      const int from = open_transfer(state, r, peer, true);
      const int to = from < 0 ? -1 : open_transfer(state, peer, r, false);
      if (to < 0) continue;
      State next = state;
      if (!hand_over(next, list(r)[index(from)], r, list(peer)[index(to)], peer)) return false;
      mark(next, r, from);
      mark(next, peer, to);
      moved = true;
      if (!search(next)) return false;
    }
    return true;
  }

  bool hand_over(State& state, const Action& send, int sender, const Action& receive,
                 int receiver) const {
    const bool up = send.op == Action::SendF;
    if (up != (receive.op == Action::RecvF) || receive.micro != send.micro) return false;
    if (receive.stage != send.stage + (up ? 1 : -1)) return false;
    if (!exists(send.stage, send.micro) || !exists(receive.stage, receive.micro)) return false;
    if (send.stage % p_ != sender || receive.stage % p_ != receiver) return false;
    return take(state, up ? kOutput : kLower, send.stage, send.micro) &&
           leave(state, up ? kInput : kUpper, receive.stage, receive.micro);
  }

  /// Marks a transfer as made. The rank goes on when all transfers of its group were made.
  void mark(State& state, int r, int at) const {
    state.met[index(r)] |= std::uint64_t{1} << at;
    int end = state.at[index(r)];
    for (; index(end) < list(r).size() && is_transfer(list(r)[index(end)].op); ++end)
      if ((state.met[index(r)] >> end & 1) == 0) return;
    state.at[index(r)] = end;
  }

  /// Returns whether everything was computed, and everything that was made was read.
  bool complete(const State& state) const {
    for (int r = 0; r < p_; ++r)
      if (!ended(state, r)) return false;
    std::bitset<kItems * kMostPasses> expected;
    for (int s = 0; s < stages_; ++s)
      for (int k = 0; k < m_; ++k) {
        expected.set(bit(kForward, s, k));
        expected.set(bit(kWeight, s, k));
      }
    return state.items == expected;
  }

  const Schedule& schedule_;
  int p_, m_, stages_;
  std::set<std::pair<std::array<int, kMostRanks>, std::array<std::uint64_t, kMostRanks>>> seen_;
};

struct Sizes {
  int p, m, v;
};

class Mutator {
 public:
  explicit Mutator(std::uint64_t seed) : random_(seed) {}

  Sizes sizes() {
    constexpr std::array kSizes = {Sizes{1, 4, 2}, Sizes{2, 2, 1}, Sizes{2, 4, 1}, Sizes{2, 4, 2},
                                   Sizes{3, 3, 1}, Sizes{3, 3, 2}, Sizes{4, 3, 1}, Sizes{4, 4, 1}};
    return kSizes[below(kSizes.size())];
  }

  Schedule schedule(const Sizes& sizes) {
    const auto [p, m, v] = sizes;
    const std::size_t choice = below(4);
    if (choice >= 2) return lower(RandomOrder(p, m, v, random_()).make());
    if (v > 1) return generate(kInterleaved, p, m, v);
    return generate(choice == 0 ? kGpipe : k1f1b, p, m);
  }

  /// Makes one or two changes of any kind, or several that keep each rank's own order valid.
  void mutate_some(Schedule& schedule) {
    const bool gently = below(2) == 0;
    for (std::size_t n = 1 + below(gently ? 12 : 2); n > 0; --n) {
      std::vector<Action>& actions = schedule[below(schedule.size())];
      if (actions.empty()) continue;
      const std::size_t at = below(actions.size());
      if (gently)
        postpone(actions, at);
      else
        mutate(actions, at);
    }
  }

  std::size_t below(std::size_t n) { return random_() % n; }

 private:
  void mutate(std::vector<Action>& actions, std::size_t at) {
    switch (below(5)) {
      case 0: actions.erase(actions.begin() + static_cast<std::ptrdiff_t>(at)); return;
      case 1: return duplicate(actions, at);
      case 2: return change(actions[at]);
      case 3: return std::swap(actions[at], actions[below(actions.size())]);
      default: return shift(actions, at);
    }
  }
  void duplicate(std::vector<Action>& actions, std::size_t at) {
    const Action twice = actions[at];
    const std::size_t to = below(actions.size() + 1);
    actions.insert(actions.begin() + static_cast<std::ptrdiff_t>(to), twice);
  }
  /// Moves an action up to three places to the right.
  void shift(std::vector<Action>& actions, std::size_t at) {
    const std::size_t steps = 1 + below(3);
    for (std::size_t i = at; i < at + steps && i + 1 < actions.size(); ++i)
      std::swap(actions[i], actions[i + 1]);
  }
  /// Moves an action to the right, but not past one of the same kind or micro-batch. The rank's
  /// own order stays valid.
  void postpone(std::vector<Action>& actions, std::size_t at) {
    const std::size_t steps = 1 + below(6);
    for (std::size_t i = at; i < at + steps && i + 1 < actions.size(); ++i) {
      if (actions[i].op == actions[i + 1].op || actions[i].micro == actions[i + 1].micro) return;
      std::swap(actions[i], actions[i + 1]);
    }
  }
  void change(Action& action) {
    const int by = below(2) == 0 ? 1 : -1;
    switch (below(3)) {
      case 0: action.stage += by; return;
      case 1: action.micro += by; return;
      default: action.op = static_cast<Action::Op>(below(8)); return;
    }
  }

  std::mt19937_64 random_;
};

TEST(Mutants, TheInterpreterRunsWhatIsGenerated) {
  for (int p = 1; p <= 3; ++p)
    for (int m = 1; m <= 3; ++m) {
      EXPECT_TRUE(Interpreter(generate(kGpipe, p, m), p, m, 1).runs());
      EXPECT_TRUE(Interpreter(generate(k1f1b, p, m), p, m, 1).runs());
      if (m % p != 0) continue;
      EXPECT_TRUE(Interpreter(generate(kInterleaved, p, m, 2), p, m, 2).runs());
    }
}

TEST(Mutants, TheInterpreterTakesSendsForRendezvous) {
  const Schedule crossed = parse_schedule(
      "0F0 0SendF0 0F1 0SendF1 0F2 0RecvB0 0B0 0SendF2 0RecvB1 0B1 0RecvB2 0B2\n"
      "1RecvF0 1F0 1I0 1SendB0 1W0 1RecvF1 1F1 1B1 1SendB1 1RecvF2 1F2 1B2 1SendB2");
  EXPECT_FALSE(Interpreter(crossed, 2, 3, 1).runs());
}

// Counts the validator's answers: agreement on one kind of answer alone would prove little.
TEST(Mutants, TheValidatorAgreesWithTheInterpreter) {
  constexpr int kMutants = 1000;
  int valid = 0, deadlocks = 0;
  for (std::uint64_t seed = 1; seed <= kMutants; ++seed) {
    Mutator mutator(seed);
    const auto [p, m, v] = mutator.sizes();
    Schedule mutant = mutator.schedule({p, m, v});
    const Schedule before = mutant;
    mutator.mutate_some(mutant);
    for (const auto& actions : mutant) ASSERT_LE(actions.size(), 64u);
    const std::string text = refusal_of([&, p = p, m = m, v = v] { validate(mutant, p, m, v); });
    EXPECT_EQ(text == "none", Interpreter(mutant, p, m, v).runs())
        << "seed " << seed << ": " << text << "\n"
        << text_of(mutant);
    valid += text == "none" && mutant != before;
    deadlocks += contains(text, "deadlocks");
  }
  RecordProperty("valid", valid);
  RecordProperty("deadlocks", deadlocks);
  EXPECT_GT(valid, kMutants / 5);
  EXPECT_LT(valid, kMutants * 4 / 5);
  EXPECT_GT(deadlocks, kMutants / 50);
}

}  // namespace
}  // namespace troupe::train::pipeline_test
