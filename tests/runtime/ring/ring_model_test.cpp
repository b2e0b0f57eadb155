// Tests the ring in all interleavings of its producer and its consumer. The producer may be
// killed between any two steps. Every frame of a living producer arrives, whole and in order. No
// frame of a dead one arrives in part, and neither side waits for ever.
//
// Steps are the atomic operations of ring.cpp and of a channel that uses it. The doorbells, which
// doorbell_model_test.cpp tests, are one flag each here.
#include "explorer.hpp"

#include <gtest/gtest.h>

namespace troupe::ring::model {
namespace {

enum class Variant {
  correct,
  no_second_look,     ///< the producer does not look again after it announced that it starves
  tells_too_late,     ///< the consumer may empty the ring without publishing its head
  forget_while_full,  ///< the consumer clears `starved` although half of the ring is not free yet
  length_first,       ///< the length word is published before the frame's bytes
  next_not_cleared,   ///< the producer leaves bytes that look like the next length
  next_cleared_late,  ///< ... or clears them only after it has published this frame
  any_lap,            ///< the consumer takes a length of an earlier lap
};

constexpr int kFrames = 5;
constexpr int kCells = 8;  // a cell is a length word or a unit of bytes, which may look alike
constexpr int kHalf = kCells / 2;
constexpr int kTell = 3;      // the consumer publishes its head when it is so far ahead of it
constexpr int kTellLate = 7;  // too late: an empty ring may look too full for the largest frame

enum ProducerAt : std::uint8_t {
  p_fits,
  p_load_head,
  p_starve,
  p_look_again,
  p_unstarve,
  p_first_byte,
  p_last_byte,
  p_clear_next,
  p_publish,
  p_ring,
  p_wait,
  p_done,
  p_dead
};
enum ConsumerAt : std::uint8_t {
  c_sleep,
  c_pop,
  c_tell,
  c_look,
  c_tell_starving,
  c_take_cry,
  c_ring,
  c_broken
};

struct State {
  std::uint8_t cells[kCells];
  std::uint8_t sizes;  ///< bit i: frame i has two cells of bytes, else one
  std::uint8_t producer, pushed, tail, head_seen;
  std::uint8_t consumer, popped, head, told, cry;
  std::uint8_t shared_head, starved;  ///< starved: tail + 1, so that the first one is not zero
  std::uint8_t producer_bell, consumer_bell;
};

constexpr std::uint8_t length_of(int frame) {
  return static_cast<std::uint8_t>(0x40 | frame);
}
constexpr std::uint8_t bytes_of(int frame) {
  return static_cast<std::uint8_t>(0x80 | frame);
}
constexpr bool is_bytes(std::uint8_t cell) {
  return (cell & 0x80) != 0;
}

struct Model {
  Variant variant = Variant::correct;

  static int units(const State& s, int frame) { return 1 + (s.sizes >> frame & 1); }
  bool room(const State& s) const {
    return kCells - (s.tail - s.head_seen) >= 1 + units(s, s.pushed);
  }
  std::uint8_t& next_length(State& s) const {
    return s.cells[(s.tail + 1 + units(s, s.pushed)) % kCells];
  }

  void operator()(const State& s, std::vector<Step<State>>& out) const {
    if (s.consumer == c_broken) return;
    State t = s;
    if (const char* what = produce(t)) out.push_back({t, what});
    // A waiting producer is not killed: the kill would hide a lost wake-up.
    if (s.producer < p_done && s.producer != p_wait) {
      t = s;
      t.producer = p_dead;
      t.consumer_bell = 1;  // PeerDied: the consumer drains a last time
      out.push_back({t, "producer is killed"});
    }
    t = s;
    if (const char* what = consume(t)) out.push_back({t, what});
  }

  const char* produce(State& s) const {
    switch (s.producer) {
      case p_fits: s.producer = room(s) ? write_from() : p_load_head; return "producer sees room?";
      case p_load_head:
        s.head_seen = s.shared_head;
        s.producer = room(s) ? write_from() : p_starve;
        return "producer loads the head";
      case p_starve:
        s.starved = static_cast<std::uint8_t>(s.tail + 1);
        s.producer = variant == Variant::no_second_look ? p_wait : p_look_again;
        return "producer says that it starves";
      case p_look_again:
        s.head_seen = s.shared_head;
        s.producer = room(s) ? p_unstarve : p_wait;
        return "producer looks again";
      case p_unstarve:
        s.starved = 0;
        s.producer = write_from();
        return "producer takes that back";
      case p_wait:
        if (s.producer_bell == 0) return nullptr;
        s.producer_bell = 0;
        s.producer = p_fits;
        return "producer is woken";
      case p_ring:
        s.consumer_bell = 1;
        s.producer = s.pushed == kFrames ? p_done : p_fits;
        return "producer rings";
      default: return write(s);
    }
  }

  ProducerAt write_from() const {
    return variant == Variant::length_first ? p_publish : p_first_byte;
  }

  /// Carries out the steps from room in the ring to a published frame.
  const char* write(State& s) const {
    switch (s.producer) {
      case p_first_byte:
        s.cells[(s.tail + 1) % kCells] = bytes_of(s.pushed);
        s.producer = p_last_byte;
        return "producer writes";
      case p_last_byte:
        if (units(s, s.pushed) == 2) s.cells[(s.tail + 2) % kCells] = bytes_of(s.pushed);
        if (variant == Variant::length_first)
          advance(s);
        else
          s.producer = variant == Variant::next_not_cleared || variant == Variant::next_cleared_late
                           ? p_publish
                           : p_clear_next;
        return "producer writes on";
      case p_clear_next:
        // Bytes may look like the length that will stand here. A length here is of an earlier
        // lap, so it may stay.
        if (is_bytes(next_length(s))) next_length(s) = 0;
        if (variant == Variant::next_cleared_late)
          advance(s);
        else
          s.producer = p_publish;
        return "producer clears the next length";
      case p_publish:
        if (variant == Variant::length_first && is_bytes(next_length(s))) next_length(s) = 0;
        s.cells[s.tail % kCells] = length_of(s.pushed);
        if (variant == Variant::length_first)
          s.producer = p_first_byte;
        else if (variant == Variant::next_cleared_late)
          s.producer = p_clear_next;
        else
          advance(s);
        return "producer publishes the length";
      default: return nullptr;
    }
  }
  void advance(State& s) const {
    s.tail = static_cast<std::uint8_t>(s.tail + 1 + units(s, s.pushed));
    ++s.pushed;
    s.producer = p_ring;
  }

  const char* consume(State& s) const {
    switch (s.consumer) {
      case c_sleep:
        if (s.consumer_bell == 0) return nullptr;
        s.consumer_bell = 0;
        s.consumer = c_pop;
        return "consumer is woken";
      case c_pop: return pop(s);
      case c_tell:
        s.told = s.shared_head = s.head;
        s.consumer = c_look;
        return "consumer tells its head";
      case c_look:
        s.cry = s.starved;
        s.consumer = s.cry != 0 ? c_tell_starving : c_pop;
        return "consumer looks for a cry";
      case c_tell_starving: {
        s.told = s.shared_head = s.head;
        const int tail = s.cry - 1;
        const bool half = tail <= s.head || tail - s.head <= kHalf;
        s.consumer = half || variant == Variant::forget_while_full ? c_take_cry : c_pop;
        return "consumer tells its head to a starving producer";
      }
      case c_take_cry: {
        const bool cried = s.starved != 0;
        const bool half = s.cry - 1 <= s.head || s.cry - 1 - s.head <= kHalf;
        s.starved = 0;
        s.consumer = cried && half ? c_ring : c_pop;
        return "consumer takes the cry";
      }
      case c_ring:
        s.producer_bell = 1;
        s.consumer = c_pop;
        return "consumer rings";
      default: return nullptr;
    }
  }

  /// Takes a frame in one step: nothing else changes the bytes of a published frame.
  const char* pop(State& s) const {
    const std::uint8_t length = s.cells[s.head % kCells];
    // The length of an earlier frame at this place is of an earlier lap.
    const bool earlier = length != 0 && !is_bytes(length) && length < length_of(s.popped);
    if (length == 0 || (earlier && variant != Variant::any_lap)) {
      s.consumer = c_sleep;
      return "consumer finds the ring empty";
    }
    bool whole = length == length_of(s.popped);
    for (int i = 1; whole && i <= units(s, s.popped); ++i)
      whole = s.cells[(s.head + i) % kCells] == bytes_of(s.popped);
    if (!whole) {
      s.consumer = c_broken;
      return "consumer takes something for a frame";
    }
    s.head = static_cast<std::uint8_t>(s.head + 1 + units(s, s.popped));
    ++s.popped;
    s.consumer = s.head - s.told >= (variant == Variant::tells_too_late ? kTellLate : kTell)
                     ? c_tell
                     : c_look;
    return "consumer pops a frame";
  }
};

Found run(Variant variant, std::uint8_t sizes) {
  State start{};
  start.sizes = sizes;
  return explore(start, Model{variant}, [](const State& s) {
    if (s.consumer == c_broken) return false;
    // Killed after it published a frame and before it counted it: one frame more has arrived.
    if (s.producer == p_dead) return s.popped >= s.pushed;
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
  EXPECT_GT(states, 10'000u);
}

TEST(RingModel, BrokenVariantsAreFound) {
  for (const Variant variant :
       {Variant::no_second_look, Variant::tells_too_late, Variant::forget_while_full,
        Variant::length_first, Variant::next_not_cleared, Variant::next_cleared_late,
        Variant::any_lap}) {
    bool stuck = false;
    for (int sizes = 0; sizes < 1 << kFrames && !stuck; ++sizes)
      stuck = run(variant, static_cast<std::uint8_t>(sizes)).stuck;
    EXPECT_TRUE(stuck) << "variant " << static_cast<int>(variant);
  }
}

}  // namespace
}  // namespace troupe::ring::model
