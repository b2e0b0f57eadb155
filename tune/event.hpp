/// Events: the records of an experiment's append-only log, one JSON object a line.
///
///     std::string line = to_json(event, space);   // {"t":12.5,"event":"report","trial":3,…}
///     Result<Event> back = event_from_json(line, space);
///
/// Input records (begin to interrupt) are enough to rebuild an experiment, since they hold the
/// answers of searcher and scheduler. All other records are consequences: people read them, and a
/// rebuild is checked against them.
#pragma once

#include "troupe/runtime/base/result.hpp"
#include "troupe/tune/scheduler.hpp"
#include "troupe/tune/searcher.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace troupe::tune {

/// Names saved weights; the weights themselves are stored by the runner (optimize(), Simulator).
struct Checkpoint {
  std::string key;   ///< under which the runner stores it
  std::string hash;  ///< of its contents, hexadecimal; equal hashes prove a copy
  std::uint64_t bytes = 0;
  long step = 0;
  friend bool operator==(const Checkpoint&, const Checkpoint&) = default;
};

/// What a searcher or a scheduler said while an input was applied.
struct Answer {
  enum class Kind : std::uint8_t { point, decisions, next };
  Kind kind = Kind::next;
  std::optional<Point> point = {};  ///< of a new trial; none: the space is used up
  Chosen by = Chosen::by_searcher;
  std::vector<Decision> decisions = {};
  int next = -1;  ///< the waiting trial that runs next
};

/// One record of the log. Each kind uses some of the fields; to_json() writes only those.
struct Event {
  enum class Kind : std::uint8_t {
    // inputs; is_input() relies on `interrupt` being the last of them
    begin,
    report,
    save,
    restore,
    end,
    lost,     ///< the node of an attempt was lost
    room,     ///< how many attempts fit on the cluster
    set,      ///< options that changed
    stored,   ///< the file of a checkpoint is on disk
    add,      ///< a point to try
    stop,     ///< the user stops a trial
    pause,    ///< the user holds a trial, or the study (trial -1)
    resume,   ///< the user lets it go on
    missing,  ///< the file of a checkpoint cannot be read
    tick,
    cancel,
    interrupt,
    // consequences
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
    kept,      ///< an exploit was revoked, since its donor ended without a checkpoint
    repeated,  ///< a trial failed several times in a row in the same way
  };
  Kind kind = Kind::tick;
  std::int64_t micros = 0;  ///< since the experiment began
  std::int64_t wall = 0;    ///< microseconds of the Unix epoch; 0: not known
  int trial = -1;
  int attempt = 0;
  long step = 0;
  double score = 0;
  int donor = -1;
  int room = 0;
  bool can_save = false;
  bool ok = true;         ///< end: the attempt ended without an error
  Checkpoint checkpoint;  ///< save, restore (hash), started, exploit, copied
  Point params;
  Point donor_params;
  std::map<std::string, double> metrics;  ///< of a report; set: options by name
  std::string text;                       ///< an error or a reason; set: who changed them
  std::vector<Answer> answers;            ///< inputs: in the order in which they were given

  double seconds() const noexcept { return static_cast<double>(micros) / 1e6; }
};

TROUPE_API std::string_view name_of(Event::Kind kind) noexcept;
/// Whether the record is an input; replaying all inputs rebuilds the experiment.
constexpr bool is_input(Event::Kind kind) noexcept {
  return kind <= Event::Kind::interrupt;
}

/// Writes an event as one line of JSON without a newline, with the fields that its kind uses.
/// Numbers can be read back unchanged (NaN is null, infinities are strings). Bytes that are not
/// UTF-8 become U+FFFD. Parameters have their names, options of a choice their texts. A value
/// without a parameter is called p0, p1, ….
TROUPE_API std::string to_json(const Event& event, const SearchSpace& space = {});
/// Reads such a line. An option that the space lacks becomes -1. Returns InvalidArgument when the
/// line is no event: bad JSON, an unknown kind, a missing field, or a value out of range.
TROUPE_API Result<Event> event_from_json(std::string_view line, const SearchSpace& space = {});
/// Whether plain_words() describes events of this kind.
constexpr bool has_words(Event::Kind kind) noexcept {
  using Kind = Event::Kind;
  switch (kind) {
    case Kind::begin:
    case Kind::report:
    case Kind::save:
    case Kind::restore:
    case Kind::end:
    case Kind::room:
    case Kind::stored:
    case Kind::tick:
    case Kind::started:
    case Kind::held:
    case Kind::yielded:
    case Kind::paused:
    case Kind::resumed: return false;
    default: return true;
  }
}
/// Describes an event in a sentence for people: `trial 3 copied trial 1's weights of step 20 (hash
/// 9f3a2100…), lr 0.0031 → 0.0037`. Empty for kinds that are not shown to people, such as report.
TROUPE_API std::string plain_words(const Event& event, const SearchSpace& space,
                                   std::string_view metric = "score");

}  // namespace troupe::tune
