// A full ring over all interleavings of its producer and its consumer: every frame arrives, in
// order, and nobody waits for ever. Steps are the atomic operations of ring.cpp and of a channel
// that uses it; the doorbells are the proven ones of doorbell_model_test.cpp, here a flag each.
#include "explorer.hpp"

#include <gtest/gtest.h>
#include <array>

namespace troupe::ring::model {
namespace {

enum class Variant {
  correct,
  no_second_look,     ///< the producer does not look again after it said that it starves
  look_once,          ///< the consumer looks for a cry after the first frame of a batch only
  forget_while_full,  ///< the consumer takes the cry although half of the ring is not free yet
};

constexpr int kFrames = 6;
constexpr std::uint8_t kCapacity = 4;  // units; a frame is one or two: at most half

enum ProducerAt : std::uint8_t {
  p_fits,
  p_load_head,
  p_starve,
  p_look_again,
  p_unstarve,
  p_publish,
  p_ring,
  p_wait,
  p_done
};
enum ConsumerAt : std::uint8_t { c_sleep, c_pop, c_free, c_look, c_load_tail, c_take_cry, c_ring };

struct State {
  std::uint8_t sizes;  ///< bit i: frame i is two units
  std::uint8_t producer, pushed, tail, head_seen;
  std::uint8_t consumer, popped, head, looked;
  std::uint8_t shared_tail, shared_head, starved;
  std::uint8_t producer_bell, consumer_bell;
};

struct Model {
  Variant variant = Variant::correct;

  static std::uint8_t size(const State& s, int frame) { return 1 + (s.sizes >> frame & 1); }
  static bool room(const State& s) {
    return kCapacity - (s.tail - s.head_seen) >= size(s, s.pushed);
  }

  void operator()(const State& s, std::vector<Step<State>>& out) const {
    State t = s;
    if (const char* what = produce(t)) out.push_back({t, what});
    t = s;
    if (const char* what = consume(t)) out.push_back({t, what});
  }

  const char* produce(State& s) const {
    switch (s.producer) {
      case p_fits:
        s.producer = room(s) ? p_publish : p_load_head;
        return "producer looks at the head it knows";
      case p_load_head:
        s.head_seen = s.shared_head;
        s.producer = room(s) ? p_publish : p_starve;
        return "producer loads the head";
      case p_starve:
        s.starved = 1;
        s.producer = variant == Variant::no_second_look ? p_wait : p_look_again;
        return "producer says that it starves";
      case p_look_again:
        s.head_seen = s.shared_head;
        s.producer = room(s) ? p_unstarve : p_wait;
        return "producer looks again";
      case p_unstarve:
        s.starved = 0;
        s.producer = p_publish;
        return "producer takes that back";
      case p_publish:
        s.tail = static_cast<std::uint8_t>(s.tail + size(s, s.pushed));
        s.shared_tail = s.tail;
        ++s.pushed;
        s.producer = p_ring;
        return "producer publishes";
      case p_ring:
        s.consumer_bell = 1;
        s.producer = s.pushed == kFrames ? p_done : p_fits;
        return "producer rings";
      case p_wait:
        if (s.producer_bell == 0) return nullptr;
        s.producer_bell = 0;
        s.producer = p_fits;
        return "producer is woken";
      default: return nullptr;
    }
  }

  const char* consume(State& s) const {
    switch (s.consumer) {
      case c_sleep:
        if (s.consumer_bell == 0) return nullptr;
        s.consumer_bell = 0;
        s.looked = 0;
        s.consumer = c_pop;
        return "consumer is woken";
      case c_pop:
        s.consumer = s.shared_tail == s.head ? c_sleep : c_free;
        return "consumer loads the tail";
      case c_free:
        s.head = static_cast<std::uint8_t>(s.head + size(s, s.popped));
        s.shared_head = s.head;
        ++s.popped;
        s.consumer = c_look;
        return "consumer has popped and frees the space";
      case c_look:
        if (s.starved == 0 || (variant == Variant::look_once && s.looked != 0))
          s.consumer = c_pop;
        else
          s.consumer = variant == Variant::forget_while_full ? c_take_cry : c_load_tail;
        s.looked = 1;
        return "consumer looks for a cry";
      case c_load_tail:
        s.consumer = s.shared_tail - s.head > kCapacity / 2 ? c_pop : c_take_cry;
        return "consumer looks how full the ring is";
      case c_take_cry: {
        const bool cried = s.starved != 0;
        s.starved = 0;
        const bool half = s.shared_tail - s.head <= kCapacity / 2;
        s.consumer = cried && (half || variant != Variant::forget_while_full) ? c_ring : c_pop;
        return "consumer takes the cry";
      }
      default:
        s.producer_bell = 1;
        s.consumer = c_pop;
        return "consumer rings";
    }
  }
};

Found run(Variant variant, std::uint8_t sizes) {
  State start{};
  start.sizes = sizes;
  return explore(start, Model{variant}, [](const State& s) {
    return s.pushed == kFrames && s.popped == kFrames && s.head == s.tail;
  });
}

TEST(RingModel, EveryFrameArrivesInAnyInterleavingOfAnySizes) {
  std::size_t states = 0;
  for (int sizes = 0; sizes < 1 << kFrames; ++sizes) {
    const Found found = run(Variant::correct, static_cast<std::uint8_t>(sizes));
    ASSERT_FALSE(found.stuck) << "sizes " << sizes << '\n' << found.trace;
    states += found.states;
  }
  EXPECT_GT(states, 20'000u);
}

TEST(RingModel, BrokenVariantsAreFound) {
  for (const Variant variant :
       {Variant::no_second_look, Variant::look_once, Variant::forget_while_full}) {
    bool stuck = false;
    for (int sizes = 0; sizes < 1 << kFrames && !stuck; ++sizes)
      stuck = run(variant, static_cast<std::uint8_t>(sizes)).stuck;
    EXPECT_TRUE(stuck) << "variant " << static_cast<int>(variant);
  }
}

}  // namespace
}  // namespace troupe::ring::model
