// Tests the doorbell's protocol in all interleavings of two writers and one reader. The reader
// sleeps, and may watch the ring of one writer while it is awake. It never sleeps while a frame
// of a living writer waits, even if a writer is killed between any two steps.
//
// Each step is one atomic operation of doorbell.cpp, in its order. All of them are sequentially
// consistent there, so interleavings are the only possible executions. The model must find each
// broken variant, which shows that it can find errors at all.
#include "explorer.hpp"

#include <gtest/gtest.h>

namespace troupe::ring::model::doorbell_model_test {
namespace {

enum class Variant {
  correct,
  check_then_announce,    ///< the reader looks at the marks before it announces that it sleeps
  look_then_mark,         ///< the writer looks at the flag before it marks its slot
  words_then_summary,     ///< take() clears the slots before the summary
  drain_then_take,        ///< the reader clears the marks after it has drained the rings
  summary_of_empty_word,  ///< the writer marks the summary only when its word was empty
  clear_then_write,       ///< the writer clears the flag before it writes the event
  clear_any_sleep,        ///< the writer clears the flag of a later sleep than it saw
  sleep_watching,         ///< the reader sleeps while the mark of the watched ring stays set
};

constexpr int kWriters = 2;
constexpr std::uint8_t kFrames = 2;
constexpr int kWatchable = 1;  // the writer whose ring may be watched
constexpr std::uint8_t kItsSlot = 1 << kWatchable;

enum WriterAt : std::uint8_t {
  w_look_early,
  w_publish,
  w_load_slot,
  w_mark_slot,
  w_load_summary,
  w_mark_summary,
  w_look,
  w_write_event,
  w_clear,
  w_done,
  w_dead
};
enum ReaderAt : std::uint8_t {
  r_pending,
  r_marked,
  r_marked_beside,
  r_watch_slot,
  r_watch_summary,
  r_take_summary,
  r_take_words,
  r_drain,
  r_late_words,
  r_late_summary,
  r_announce,
  r_check,
  r_take_back,
  r_sleep,
  r_awake,
  r_empty_event
};

struct Writer {
  std::uint8_t at;
  std::uint8_t published;
  std::uint8_t sleep;  ///< the flag's value that it saw
};

struct State {
  Writer writers[kWriters];
  std::uint8_t words[2];
  std::uint8_t summary;
  std::uint8_t sleeping;  ///< number of the sleep, 0: awake
  std::uint8_t event;     ///< whether the eventfd is readable
  std::uint8_t consumed[kWriters];
  std::uint8_t reader;
  std::uint8_t to_take;  ///< words of the summary that take() has yet to look at
  std::uint8_t slots;    ///< slots to drain, one bit per writer
  std::uint8_t sleeps;
  std::uint8_t killed;
  std::uint8_t heard;     ///< ring drained since the last watch or sleep
  std::uint8_t watching;  ///< its ring is watched, and its mark stays set
};

struct Model {
  Variant variant = Variant::correct;
  bool same_word = true;  ///< whether the two slots share a word
  bool kill = true;       ///< whether writer 0 may be killed
  bool watch = false;     ///< whether the reader may watch

  int word_of(int writer) const { return same_word ? 0 : writer; }

  void operator()(const State& s, std::vector<Step<State>>& out) const {
    for (int i = 0; i < kWriters; ++i) {
      if (s.writers[i].at >= w_done) continue;
      State t = s;
      const char* what = write(t, i);
      out.push_back({t, what});
    }
    if (kill && s.killed == 0 && s.writers[0].at < w_done) {
      State t = s;
      t.killed = 1;
      t.writers[0].at = w_dead;
      out.push_back({t, "writer 0 is killed"});
    }
    State t = s;
    if (const char* what = read(t)) out.push_back({t, what});
    if (watch && s.reader == r_pending && s.heard != 0 && s.watching == 0) {
      t = s;
      t.heard = 0;
      t.reader = r_watch_slot;
      out.push_back({t, "reader is about to spin"});
    }
  }

  std::uint8_t kept_word(const State& s) const {
    return s.watching != 0 ? static_cast<std::uint8_t>(1 << word_of(kWatchable)) : 0;
  }
  std::uint8_t kept_slot(const State& s, int word) const {
    return s.watching != 0 && word == word_of(kWatchable) ? kItsSlot : 0;
  }

  WriterAt first() const { return variant == Variant::look_then_mark ? w_look_early : w_publish; }
  WriterAt after_mark(bool word_was_empty) const {
    return variant == Variant::summary_of_empty_word && !word_was_empty ? w_look : w_load_summary;
  }
  void frame_done(Writer& w) const { w.at = w.published == kFrames ? w_done : first(); }

  const char* write(State& s, int i) const {
    Writer& w = s.writers[i];
    const auto bit = static_cast<std::uint8_t>(1 << i);
    const auto word_bit = static_cast<std::uint8_t>(1 << word_of(i));
    std::uint8_t& word = s.words[word_of(i)];
    switch (w.at) {
      case w_look_early:
        w.sleep = s.sleeping;
        w.at = w_publish;
        return "writer looks at the flag";
      case w_publish:
        ++w.published;
        w.at = w_load_slot;
        return "writer publishes a frame";
      case w_load_slot:
        if ((word & bit) == 0)
          w.at = w_mark_slot;
        else
          w.at = after_mark(false);
        return "writer loads its slot";
      case w_mark_slot:
        w.at = after_mark(word == 0);
        word |= bit;
        return "writer marks its slot";
      case w_load_summary:
        w.at = (s.summary & word_bit) == 0 ? w_mark_summary : w_look;
        return "writer loads the summary";
      case w_mark_summary:
        s.summary |= word_bit;
        w.at = w_look;
        return "writer marks the summary";
      case w_look:
        if (variant != Variant::look_then_mark) w.sleep = s.sleeping;
        if (w.sleep == 0) {
          frame_done(w);
        } else {
          w.at = variant == Variant::clear_then_write ? w_clear : w_write_event;
        }
        return "writer looks at the flag";
      case w_write_event:
        s.event = 1;
        if (variant == Variant::clear_then_write)
          frame_done(w);
        else
          w.at = w_clear;
        return "writer writes the event";
      case w_clear:
        if (variant == Variant::clear_then_write) {
          const bool mine = s.sleeping != 0;
          s.sleeping = 0;
          if (mine)
            w.at = w_write_event;
          else
            frame_done(w);
          return "writer takes the flag";
        }
        if (variant == Variant::clear_any_sleep || s.sleeping == w.sleep) s.sleeping = 0;
        frame_done(w);
        return "writer clears the flag";
      default: return nullptr;
    }
  }

  const char* read(State& s) const {
    switch (s.reader) {
      case r_pending:
        if (s.watching != 0) {
          if (s.consumed[kWatchable] < s.writers[kWatchable].published) s.slots = kItsSlot;
          s.reader = r_marked;
          return "reader looks at the watched ring";
        }
        if (s.summary != 0)
          s.reader = variant == Variant::words_then_summary ? r_take_words : r_take_summary;
        else
          s.reader = variant == Variant::check_then_announce ? r_check : r_announce;
        s.to_take = variant == Variant::words_then_summary ? 3 : 0;
        return "reader looks for marks";
      case r_marked:
        s.reader = s.summary != kept_word(s) ? r_take_summary : r_marked_beside;
        return "reader looks for other marks";
      case r_marked_beside:
        if (s.words[word_of(kWatchable)] != kItsSlot)
          s.reader = r_take_summary;
        else
          s.reader = s.slots != 0 ? r_drain : r_announce;
        return "reader looks beside the watched mark";
      case r_watch_slot:
        s.words[word_of(kWatchable)] |= kItsSlot;
        s.reader = r_watch_summary;
        return "reader marks the slot itself";
      case r_watch_summary:
        s.summary |= static_cast<std::uint8_t>(1 << word_of(kWatchable));
        s.watching = 1;
        s.reader = r_pending;
        return "reader marks the summary itself";
      case r_take_summary:
        s.to_take = s.summary | kept_word(s);
        if (variant != Variant::drain_then_take && variant != Variant::words_then_summary)
          s.summary = kept_word(s);
        s.reader = r_take_words;
        return "reader takes the summary";
      case r_take_words: {
        const int word = (s.to_take & 1) != 0 ? 0 : 1;
        const std::uint8_t kept = kept_slot(s, word);
        s.to_take = static_cast<std::uint8_t>(s.to_take & ~(1 << word));
        s.slots |= static_cast<std::uint8_t>(s.words[word] & ~kept);
        if (variant != Variant::drain_then_take) s.words[word] = kept;
        if (s.to_take == 0)
          s.reader = variant == Variant::words_then_summary ? r_late_summary : r_drain;
        return "reader takes a word of slots";
      }
      case r_drain: return drain(s);
      case r_late_words:  // only when the rings are drained first
        s.words[0] = s.words[1] = 0;
        s.reader = r_late_summary;
        return "reader clears the slots";
      case r_late_summary:
        s.summary = 0;
        s.reader = variant == Variant::words_then_summary ? r_drain : r_pending;
        return "reader clears the summary";
      case r_announce:
        s.heard = 0;
        if (s.watching != 0 && variant != Variant::sleep_watching) {
          s.watching = 0;
          s.reader = r_pending;
          return "reader watches no longer";
        }
        s.sleeping = ++s.sleeps;
        s.reader = variant == Variant::check_then_announce ? r_sleep : r_check;
        return "reader announces sleep";
      case r_check:
        if (variant == Variant::check_then_announce)
          s.reader = s.summary != 0 ? r_pending : r_announce;
        else
          s.reader = s.summary != kept_word(s) ? r_take_back : r_sleep;
        return "reader checks the marks";
      case r_take_back:
        s.sleeping = 0;
        s.reader = r_pending;
        return "reader stays awake";
      case r_sleep:
        if (s.event == 0) return nullptr;
        s.reader = r_awake;
        return "reader wakes up";
      case r_awake:
        s.sleeping = 0;
        s.reader = r_empty_event;
        return "reader clears its flag";
      default:
        s.event = 0;
        s.reader = r_pending;
        return "reader empties the event";
    }
  }

  const char* drain(State& s) const {
    for (int i = 0; i < kWriters; ++i) {
      if ((s.slots & (1 << i)) == 0) continue;
      if (s.consumed[i] < s.writers[i].published) {
        ++s.consumed[i];
        if (watch && i == kWatchable) s.heard = 1;
        return "reader pops a frame";
      }
      s.slots = static_cast<std::uint8_t>(s.slots & ~(1 << i));
      break;
    }
    if (s.slots == 0) s.reader = variant == Variant::drain_then_take ? r_late_words : r_pending;
    return "reader finds a ring empty";
  }

  State start() const {
    State s{};
    for (Writer& w : s.writers) w.at = first();
    return s;
  }
};

Found run(const Model& model) {
  return explore(model.start(), model, [](const State& s) {
    for (int i = 0; i < kWriters; ++i) {
      if (s.writers[i].at == w_dead) continue;  // PeerDied made the reader drain its ring
      if (s.consumed[i] != kFrames) return false;
    }
    return true;
  });
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
// One thread walks all interleavings. Under a sanitizer a part of them shows every kind of
// access.
constexpr bool kAll = false;
#else
constexpr bool kAll = true;
#endif

TEST(DoorbellModel, NoWakeUpIsLostInAnyInterleaving) {
  for (const bool same_word : {true, false})
    for (const bool watch : {true, false}) {  // with a kill, or with a reader that watches
      if (!kAll && (!same_word || !watch)) continue;
      const Found found = run({Variant::correct, same_word, !watch, watch});
      EXPECT_FALSE(found.stuck) << "same word " << same_word << ", watch " << watch << '\n'
                                << found.trace;
      EXPECT_GT(found.states, watch ? 100'000u : 500'000u);
    }
}

bool finds(Variant variant) {
  bool stuck = false;
  for (const bool same_word : {true, false}) stuck |= run({variant, same_word, true}).stuck;
  return stuck;
}

TEST(DoorbellModel, BrokenVariantsAreFound) {
  EXPECT_TRUE(finds(Variant::check_then_announce));
  EXPECT_TRUE(finds(Variant::look_then_mark));
  EXPECT_TRUE(finds(Variant::words_then_summary));
  EXPECT_TRUE(finds(Variant::drain_then_take));
  EXPECT_TRUE(finds(Variant::clear_any_sleep));
  EXPECT_TRUE(run({Variant::sleep_watching, true, false, true}).stuck);
}

TEST(DoorbellModel, VariantsThatOnlyAKillBreaksAreFoundByIt) {
  for (const Variant variant : {Variant::clear_then_write, Variant::summary_of_empty_word}) {
    EXPECT_FALSE(run({variant, true, false}).stuck);
    EXPECT_TRUE(run({variant, true, true}).stuck);
  }
}

}  // namespace
}  // namespace troupe::ring::model::doorbell_model_test
