/// The experiment's log: append-only records, one JSON object a line.
///
///     std::string line = to_json(event);          // {"t":12.5,"event":"report","trial":3,…}
///     Result<Event> back = event_from_json(line);
///
/// Records of what came in (begin, report, save, restore, end, tick, cancel, interrupt) are enough
/// to rebuild an experiment; the others say what followed, for people and to check a rebuild.
#pragma once

#include "troupe/runtime/base/result.hpp"
#include "troupe/tune/domain.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace troupe::tune {

/// Saved weights, as the runtime knows them.
struct Checkpoint {
  std::string key;   ///< names it to whoever stores it
  std::string hash;  ///< of its contents, hexadecimal; equal hashes prove a copy
  std::uint64_t bytes = 0;
  long step = 0;
  friend bool operator==(const Checkpoint&, const Checkpoint&) = default;
};

struct Event {
  enum class Kind : std::uint8_t {
    // what came in
    begin,
    report,
    save,
    restore,
    end,
    tick,
    cancel,
    interrupt,
    // what followed
    created,
    started,
    exploit,
    copied,
    mismatch,
    held,
    yielded,
    paused,
    resumed,
    stopped,
    completed,
    retry,
    failed,
    best,
    over,
    kept,      ///< an exploit that did not happen: its donor ended before it had saved
    repeated,  ///< a trial failed several times in a row in the same way
  };
  Kind kind = Kind::tick;
  std::int64_t micros = 0;  ///< since the experiment began
  int trial = -1;
  int attempt = 0;
  long step = 0;
  double score = 0;
  int donor = -1;
  bool can_save = false;
  bool ok = true;         ///< end: without an error
  Checkpoint checkpoint;  ///< save, restore (hash), started, exploit, copied
  Point params;
  Point donor_params;
  std::map<std::string, double> metrics;
  std::string text;  ///< an error or a reason

  double seconds() const noexcept { return static_cast<double>(micros) / 1e6; }
};

TROUPE_API std::string_view name_of(Event::Kind kind) noexcept;
/// Whether the record is an input: replaying these rebuilds the experiment.
constexpr bool is_input(Event::Kind kind) noexcept {
  return kind <= Event::Kind::interrupt;
}

/// One line without a newline; only the fields that the kind uses. Numbers come back unchanged (NaN
/// is null, infinities are strings); bytes that are no UTF-8 become U+FFFD.
TROUPE_API std::string to_json(const Event& event);
/// InvalidArgument when the line is no event (unknown kinds and missing fields included).
TROUPE_API Result<Event> event_from_json(std::string_view line);
/// What happened in a sentence for people: `trial 3 copied trial 1's weights (hash 9f3a21…),
/// lr 0.0031 → 0.0037`. Empty for inputs that nobody wants to read.
TROUPE_API std::string plain_words(const Event& event, const SearchSpace& space,
                                   std::string_view metric = "score");

}  // namespace troupe::tune
