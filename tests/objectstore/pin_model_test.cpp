// Tests a model of the pin protocol. It covers every interleaving of every shared access of up to
// three readers (two of them threads of one process), the agent that frees, and the writer that
// recycles. A reader or the writer may die.
//
// It proves two things on the product's own PinProtocol. (1) A reader whose get succeeded reads
// the bytes and the fields of its generation and no others. (2) From every reachable state the
// free can still be completed, and no state without a successor has a free open (no lost
// wake-up). The checker must find each broken variant.
//
// The search is breadth first over explicit states. A thread's place in the code is the list of
// values that its operation has read so far. To make its next access, the operation runs again
// from its start: those values are replayed and its writes are suppressed. It performs one new
// access, and stops before the one after it. Plain (relaxed) stores go through a store buffer per
// thread that drains at any later time (x86-TSO: Owens, Sarkar, Sewell 2009); seq_cst accesses
// drain it first.
#include "troupe/objectstore/internal/pin_protocol.hpp"

#include <gtest/gtest.h>
#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <string_view>
#include <type_traits>
#include <unordered_set>
#include <vector>

namespace troupe::objectstore::internal {
namespace {

enum Address : std::uint8_t { kPins0, kPins1, kRetired, kHead, kField, kContent, kWords };
enum ThreadName : int { kReaderA, kReaderB, kReaderC, kAgent, kWriter, kThreads };

constexpr int kHistory = 12;
constexpr int kBuffer = 4;

struct ThreadState {
  std::uint8_t op = 0;
  std::uint8_t reads = 0;  // accesses made in this operation; `history` has their values
  std::uint8_t buffered = 0;
  bool dead = false;
  bool done = false;
  bool unused = false;  // instead of padding: states are compared by bytes
  std::array<std::uint16_t, kHistory> history{};
  std::array<std::array<std::uint16_t, 2>, kBuffer> buffer{};
};

struct State {
  std::array<std::uint16_t, kWords> words{};
  std::array<ThreadState, kThreads> threads{};
  bool hint = false;            // an unpin report or a death notice waits for the agent
  bool recycle_sent = false;    // agent -> writer
  bool published_sent = false;  // writer -> agent
  std::uint8_t freed = 0;       // highest generation whose free is complete
};
static_assert(std::has_unique_object_representations_v<State>, "states are compared by bytes");

// The model's Memory. One access is new in each step. Earlier accesses are replayed, and later
// ones are refused (`stopped`): the operation then runs to its end without effect.
class ModelMemory {
 public:
  ModelMemory(State& state, int thread, int process)
      : state_(state), self_(state.threads[thread]), process_(process) {}
  bool stopped() const { return stopped_; }
  bool stepped() const { return stepped_; }

  std::uint16_t load(int at) {
    return access([&] {
      for (int i = self_.buffered - 1; i >= 0; --i)  // a thread sees its own buffered stores
        if (self_.buffer[i][0] == at) return self_.buffer[i][1];
      return state_.words[at];
    });
  }
  void store(int at, std::uint16_t value) {
    access([&] { return drain(), state_.words[at] = value; });
  }
  void plain_store(int at, std::uint16_t value) {
    access([&] {
      if (self_.buffered == kBuffer) drain_one();
      self_.buffer[self_.buffered++] = {static_cast<std::uint16_t>(at), value};
      return value;
    });
  }
  std::uint16_t fetch_add(int at, int by) {
    return access([&] {
      drain();
      const std::uint16_t old = state_.words[at];
      state_.words[at] = static_cast<std::uint16_t>(old + by);
      return old;
    });
  }
  void drain_one() {
    state_.words[self_.buffer[0][0]] = self_.buffer[0][1];
    for (int i = 1; i < self_.buffered; ++i) self_.buffer[i - 1] = self_.buffer[i];
    self_.buffer[--self_.buffered] = {};
  }
  void drain() {
    while (self_.buffered > 0) drain_one();
  }

  // The functions that PinProtocol demands of a Memory.
  void add_pin() { fetch_add(kPins0 + process_, 1); }
  std::uint16_t remove_pin() { return fetch_add(kPins0 + process_, -1); }
  std::uint64_t retired() { return load(kRetired); }
  std::uint64_t head() { return load(kHead); }
  void set_retired(std::uint64_t g) { store(kRetired, static_cast<std::uint16_t>(g)); }
  void set_head(std::uint64_t w) { store(kHead, static_cast<std::uint16_t>(w)); }
  void set_fields(std::uint64_t g) { plain_store(kField, static_cast<std::uint16_t>(g)); }
  std::uint32_t processes() const { return 2; }
  // The agent ignores the pins of a dead process, of whose death it has been told by then.
  std::uint64_t pins_of(std::uint32_t p) {
    const std::uint16_t pins = load(static_cast<int>(kPins0 + p));
    return dead_process_known(p) ? 0 : pins;
  }
  int process() const { return process_; }

 private:
  bool dead_process_known(std::uint32_t p) const { return p == 1 && state_.threads[kReaderB].dead; }
  template <class Effect>
  std::uint16_t access(Effect effect) {
    if (stopped_) return 0;
    if (next_ < self_.reads) return self_.history[next_++];
    if (stepped_) {
      stopped_ = true;
      return 0;
    }
    stepped_ = true;
    EXPECT_LT(self_.reads, kHistory);
    const std::uint16_t value = static_cast<std::uint16_t>(effect());
    self_.history[self_.reads++] = value;
    ++next_;
    return value;
  }
  State& state_;
  ThreadState& self_;
  int process_;
  int next_ = 0;
  bool stepped_ = false;
  bool stopped_ = false;
};

using Right = PinProtocol<ModelMemory>;

// The broken variants that the checker must find.
struct ScanBeforeRetire : Right {
  static void retire(ModelMemory&, std::uint64_t) {}
  static bool is_clear(ModelMemory& m) {
    const bool clear = Right::is_clear(m);
    if (clear) Right::retire(m, m.head() >> 8);
    return clear;
  }
};
// Runs the product's pin() with parts replaced.
template <class AddPin, class Holds>
Pin pin_with(ModelMemory& m, AddPin add_pin, Holds holds) {
  if (!holds()) return Pin::missed;
  add_pin();
  if (holds()) return Pin::held;
  return m.remove_pin() == 1 ? Pin::missed_and_report : Pin::missed;
}
struct NoReread : Right {
  static Pin pin(ModelMemory& m, std::uint64_t generation) {
    if (!holds(m, generation)) return Pin::missed;
    m.add_pin();
    return Pin::held;
  }
};
struct NoGenerationCheck : Right {
  static Pin pin(ModelMemory& m, std::uint64_t generation) {
    return pin_with(
        m, [&] { m.add_pin(); },
        [&] { return m.retired() < generation && (m.head() & 0xff) == 1; });
  }
};
struct NoRetirementCheck : Right {
  static Pin pin(ModelMemory& m, std::uint64_t generation) {
    return pin_with(
        m, [&] { m.add_pin(); },
        [&] { return m.head() == head_word(generation, SlotState::sealed); });
  }
};
struct PlainPinStore : Right {  // mov instead of a locked add: the pin stays in the store buffer
  static Pin pin(ModelMemory& m, std::uint64_t generation) {
    const int word = kPins0 + m.process();
    return pin_with(
        m, [&] { m.plain_store(word, static_cast<std::uint16_t>(m.load(word) + 1)); },
        [&] { return holds(m, generation); });
  }
};
struct PublishBeforeFields : Right {
  template <class Fields>
  static void publish(ModelMemory& m, std::uint64_t generation, const Fields& fields) {
    m.set_head(head_word(generation, SlotState::sealed));
    m.set_fields(fields);
  }
};
struct UnpinWithoutReport : Right {
  static bool unpin(ModelMemory& m, std::uint64_t) { return m.remove_pin(), false; }
};
struct MissWithoutReport : Right {
  static Pin pin(ModelMemory& m, std::uint64_t generation) {
    const Pin pin = Right::pin(m, generation);
    return pin == Pin::missed_and_report ? Pin::missed : pin;
  }
};
struct ReportBeforeUnpin : Right {  // reads the retirement before it removes the pin
  static bool unpin(ModelMemory& m, std::uint64_t generation) {
    const bool report = m.retired() >= generation;
    m.remove_pin();
    return report;
  }
};
struct NoScan : Right {
  static bool is_clear(ModelMemory&) { return true; }
};

struct Setup {
  bool same_process = false;  // readers A and B are threads of one process
  bool third_reader = false;  // reader C, a thread of A's process, wants generation 2 only
  bool reader_dies = false;   // reader B may be killed at any point
  bool writer_dies = false;   // the writer may be killed at any point
  bool ignore_death = false;  // broken: the agent is not told of a death
};

struct Verdict {
  std::size_t states = 0;
  bool wrong_bytes = false;
  bool stuck = false;  // a state from which the free is never completed
  bool good() const { return !wrong_bytes && !stuck; }
};

template <class Protocol>
class Checker {
 public:
  explicit Checker(Setup setup) : setup_(setup) {}

  Verdict run() {
    State first{};
    first.words[kHead] = static_cast<std::uint16_t>(head_word(1, SlotState::sealed));
    first.words[kField] = first.words[kContent] = 1;
    first.threads[kReaderC].done = !setup_.third_reader;
    first.threads[kReaderC].op = 3;
    visit(first, -1);
    for (std::size_t i = 0; i < states_.size() && !verdict_.wrong_bytes; ++i)
      expand(static_cast<int>(i));
    verdict_.states = states_.size();
    if (!verdict_.wrong_bytes) find_stuck();
    return verdict_;
  }

 private:
  // Runs one access of `thread`; at the end of an operation sets up the next one.
  void step(State& s, int thread) {
    ThreadState& t = s.threads[thread];
    ModelMemory memory(s, thread, thread == kReaderB && !setup_.same_process ? 1 : 0);
    const int next = thread <= kReaderC ? reader(s, t, memory)
                     : thread == kAgent ? agent(s, t, memory)
                                        : writer(s, t, memory);
    if (memory.stopped()) return;
    t.history.fill(0);
    t.reads = 0;
    t.op = static_cast<std::uint8_t>(next);
  }

  // The reader gets generation 1, reads it and unpins it; then the same with 2.
  int reader(State& s, ThreadState& t, ModelMemory& m) {
    const std::uint16_t generation = t.op < 3 ? 1 : 2;
    switch (t.op % 3) {
      case 0: {
        const Pin pin = Protocol::pin(m, generation);
        if (m.stopped()) return 0;
        s.hint = s.hint || pin == Pin::missed_and_report;
        t.done = generation == 2 && pin != Pin::held;
        return t.op + (pin == Pin::held ? 1 : 3);
      }
      case 1: {
        const std::uint16_t field = m.load(kField);
        const std::uint16_t content = m.load(kContent);
        if (!m.stopped() && (field != generation || content != generation))
          verdict_.wrong_bytes = true;
        return t.op + 1;
      }
      default: {
        const bool report = Protocol::unpin(m, generation);
        if (!m.stopped()) {
          s.hint = s.hint || report;
          t.done = generation == 2;
        }
        return t.op + 1;
      }
    }
  }

  // The agent frees generation 1 and tells the writer. When the writer has published 2, it frees
  // that.
  int agent(State& s, ThreadState& t, ModelMemory& m) {
    const std::uint16_t generation = t.op < 4 ? 1 : 2;
    switch (t.op % 4) {
      case 0: {
        Protocol::retire(m, generation);
        return t.op + 1;
      }
      case 1: {
        const bool clear = Protocol::is_clear(m);
        if (!m.stopped() && clear) {
          s.freed = static_cast<std::uint8_t>(generation);
          s.recycle_sent = true;
          t.done = generation == 2;
        }
        return t.op + (clear ? 2 : 1);
      }
      case 2: {  // waits for a report (see enabled())
        s.hint = false;
        return t.op - 1;
      }
      default: {  // waits for the writer's message or death
        if (s.published_sent) return t.op + 1;
        const bool there = m.load(kHead) == head_word(2, SlotState::sealed);
        if (!m.stopped() && !there) {
          t.done = true;
          s.freed = 2;  // nothing to free
        }
        return t.op + 1;
      }
    }
  }

  int writer(State& s, ThreadState& t, ModelMemory& m) {
    if (t.op == 0) {
      m.plain_store(kContent, 99);  // half-written
      m.plain_store(kContent, 2);
      Protocol::publish(m, 2, std::uint64_t{2});
      return 1;
    }
    s.published_sent = true;
    t.done = true;
    return 2;
  }

  bool enabled(const State& s, int thread) const {
    const ThreadState& t = s.threads[thread];
    if (t.dead || t.done) return false;
    if (thread == kAgent && t.op % 4 == 2) return s.hint;
    if (thread == kAgent && t.op == 3)
      return s.published_sent || (s.threads[kWriter].dead && s.threads[kWriter].buffered == 0);
    if (thread == kWriter && t.op == 0) return s.recycle_sent;
    return true;
  }

  void expand(int from) {
    for (int thread = 0; thread < kThreads; ++thread) {
      if (enabled(states_[from], thread)) {
        State s = states_[from];
        step(s, thread);
        visit(s, from);
      }
      if (states_[from].threads[thread].buffered > 0) {
        State s = states_[from];
        ModelMemory(s, thread, 0).drain_one();
        visit(s, from);
      }
    }
    if (setup_.reader_dies) kill(from, kReaderB);
    if (setup_.writer_dies) kill(from, kWriter);
  }

  void kill(int from, int thread) {
    State s = states_[from];
    ThreadState& t = s.threads[thread];
    if (t.dead || t.done) return;
    const std::uint8_t buffered = t.buffered;  // stores in the buffer still reach memory
    const auto buffer = t.buffer;
    t = ThreadState{};
    t.buffered = buffered;
    t.buffer = buffer;
    if (!setup_.ignore_death || thread != kReaderB) {
      t.dead = true;
      s.hint = true;
    } else {
      t.done = true;
    }
    visit(s, from);
  }

  void visit(const State& s, int from) {
    states_.push_back(s);
    const int candidate = static_cast<int>(states_.size() - 1);
    const auto found = index_.insert(candidate);
    if (found.second)
      before_.emplace_back();
    else
      states_.pop_back();
    if (from >= 0) before_[*found.first].push_back(from);
  }

  // Searches backwards from the states in which every free is complete. A state that is not
  // reached is stuck.
  void find_stuck() {
    std::vector<bool> fine(states_.size());
    std::deque<int> queue;
    for (std::size_t i = 0; i < states_.size(); ++i)
      if (states_[i].freed == 2) fine[i] = true, queue.push_back(static_cast<int>(i));
    while (!queue.empty()) {
      const int at = queue.front();
      queue.pop_front();
      for (const int previous : before_[at])
        if (!fine[previous]) fine[previous] = true, queue.push_back(previous);
    }
    verdict_.stuck = std::find(fine.begin(), fine.end(), false) != fine.end();
  }

  Setup setup_;
  Verdict verdict_;
  std::deque<State> states_;
  std::vector<std::vector<int>> before_;

  // States are identified by number, and compared and hashed by their bytes.
  std::string_view bytes_of(int i) const {
    return {reinterpret_cast<const char*>(&states_[i]), sizeof(State)};
  }
  struct Hash {
    const Checker* checker;
    std::size_t operator()(int i) const {
      return std::hash<std::string_view>()(checker->bytes_of(i));
    }
  };
  struct Equal {
    const Checker* checker;
    bool operator()(int a, int b) const { return checker->bytes_of(a) == checker->bytes_of(b); }
  };
  std::unordered_set<int, Hash, Equal> index_{64, Hash{this}, Equal{this}};
};

template <class Protocol>
Verdict check(Setup setup = {}) {
  return Checker<Protocol>(setup).run();
}

TEST(PinModel, TwoProcesses) {
  const Verdict v = check<Right>();
  EXPECT_TRUE(v.good());
  RecordProperty("states", static_cast<int>(v.states));
  EXPECT_GT(v.states, 4000u) << "the model has lost its interleavings";
}
TEST(PinModel, ThreeReadersAndBothDeaths) {
  const Verdict v = check<Right>({.third_reader = true, .reader_dies = true, .writer_dies = true});
  EXPECT_TRUE(v.good());
  RecordProperty("states", static_cast<int>(v.states));
  EXPECT_GT(v.states, 100'000u) << "the model has lost its interleavings";
}
TEST(PinModel, TwoThreadsOfOneProcess) {
  EXPECT_TRUE(check<Right>({.same_process = true}).good());
}
TEST(PinModel, ReaderDiesAnywhere) {
  const Verdict v = check<Right>({.reader_dies = true});
  EXPECT_TRUE(v.good());
  RecordProperty("states", static_cast<int>(v.states));
}
TEST(PinModel, WriterDiesAnywhere) {
  const Verdict v = check<Right>({.writer_dies = true});
  EXPECT_TRUE(v.good());
  RecordProperty("states", static_cast<int>(v.states));
}

TEST(PinModel, FindsWrongBytesOfBrokenVariants) {
  EXPECT_TRUE(check<ScanBeforeRetire>().wrong_bytes);
  EXPECT_TRUE(check<NoReread>().wrong_bytes);
  EXPECT_TRUE(check<NoGenerationCheck>().wrong_bytes);
  EXPECT_TRUE(check<NoRetirementCheck>().wrong_bytes);
  EXPECT_TRUE(check<PlainPinStore>().wrong_bytes);
  EXPECT_TRUE(check<PublishBeforeFields>().wrong_bytes);
  EXPECT_TRUE(check<NoScan>().wrong_bytes);
}
TEST(PinModel, FindsLostWakeUpsOfBrokenVariants) {
  EXPECT_TRUE(check<UnpinWithoutReport>().stuck);
  EXPECT_TRUE(check<MissWithoutReport>().stuck);
  EXPECT_TRUE(check<ReportBeforeUnpin>().stuck);
  EXPECT_TRUE(check<Right>({.reader_dies = true, .ignore_death = true}).stuck);
}

}  // namespace
}  // namespace troupe::objectstore::internal
