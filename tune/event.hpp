/// Events: the records of an experiment's append-only log, one JSON object a line.
///
///     std::string line = to_json(event);          // {"t":12.5,"event":"report","trial":3,…}
///     Result<Event> back = event_from_json(line);
///
/// Input records (begin, report, save, restore, end, lost, room, tick, cancel, interrupt) are enough
/// to rebuild an experiment. All other records are consequences: people read them, and a rebuild is checked
/// against them.
#pragma once

#include "troupe/runtime/base/result.hpp"
#include "troupe/tune/domain.hpp"

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

/// One record of the log. Each kind uses some of the fields; to_json() writes only those.
struct Event {
  enum class Kind : std::uint8_t {
    // inputs; is_input() relies on `interrupt` being the last of them
    begin,
    report,
    save,
    restore,
    end,
    lost,  ///< the node of an attempt was lost
    room,  ///< how many attempts fit on the cluster
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
  std::map<std::string, double> metrics;
  std::string text;  ///< an error or a reason

  double seconds() const noexcept { return static_cast<double>(micros) / 1e6; }
};

TROUPE_API std::string_view name_of(Event::Kind kind) noexcept;
/// Whether the record is an input; replaying all inputs rebuilds the experiment.
constexpr bool is_input(Event::Kind kind) noexcept {
  return kind <= Event::Kind::interrupt;
}

/// Writes an event as one line of JSON without a newline, with the fields that its kind uses.
/// Numbers can be read back unchanged (NaN is null, infinities are strings). Bytes that are not
/// UTF-8 become U+FFFD.
TROUPE_API std::string to_json(const Event& event);
/// Reads such a line. Returns InvalidArgument when it is no event: bad JSON, an unknown kind, a
/// missing field, or a value out of range.
TROUPE_API Result<Event> event_from_json(std::string_view line);
/// Describes an event in a sentence for people: `trial 3 copied trial 1's weights of step 20 (hash
/// 9f3a2100…), lr 0.0031 → 0.0037`. Empty for kinds that are not shown to people, such as report.
TROUPE_API std::string plain_words(const Event& event, const SearchSpace& space,
                                   std::string_view metric = "score");

}  // namespace troupe::tune
