/// Arena: the shared memory of a group and of its splits. The back ends `local` and `shm` both use
/// it: `local` on anonymous pages, `shm` in a memfd.
///
/// Lanes. The arena is divided into lanes. Lane 0 belongs to the group. Each split takes the next
/// lane, for all of its colors: their ranks are disjoint, and a rank uses its number in the whole
/// group for its place in every lane.
///
/// Phases. Every collective operation is a sequence of phases. In phase p each rank (1) writes its
/// own slot p % 2, (2) publishes p, (3) waits until every rank has published p, (4) reads any slot
/// p % 2. A rank writes the same slot again in phase p + 2. By then every rank has published p + 1,
/// so it has finished its reads of phase p. Therefore one wait per phase is enough.
///
/// Fate. One word of each group, RankLine::fate in the line of its first rank, has the last phase
/// that all ranks have met and a mark for the end of the group. A rank that finds all ranks arrived
/// sets the phase. A rank that fails (timeout, death of a rank) sets the mark. Both use
/// compare-and-exchange on the one word, so a phase succeeds on every rank or on none.
///
/// Header::over says that some group of the arena has ended. The other groups then end by their own
/// fate words, so each of their phases is still met on all ranks or on none.
///
/// Calls. Each rank of the arena has a RankCalls, for all of its groups (call_log.hpp).
///
/// Rings. Sends use a ring of bytes for each ordered pair of ranks of a lane.
#pragma once

#include "troupe/actors/collective/communicator.hpp"
#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/fd.hpp"

#include <atomic>
#include <cstdint>
#include <memory>

namespace troupe::collective::internal {

/// A rank's description of the phase that it publishes. It must be equal on all ranks (COLL-1).
struct Announcement {
  std::uint8_t kind = 0, type = 0, reduce = 0, part = 0;
  std::int32_t root = 0;
  std::uint64_t count = 0;
  std::uint64_t offset = 0;
  std::uint64_t call = 0;
  friend bool operator==(const Announcement&, const Announcement&) = default;
};

/// One rank's control words in a lane. Only that rank writes them, except where a comment says
/// otherwise.
struct alignas(128) RankLine {
  std::atomic<std::uint32_t> published;  ///< last phase
  std::atomic<std::uint32_t> sleepers;   ///< number of ranks parked on `published`, which write it
  std::atomic<std::uint32_t> state;      ///< RankState
  std::int32_t pid;                      ///< set before state becomes joined
  std::uint64_t pid_namespace;
  std::atomic<std::uint64_t> progress;  ///< number of its operation << 8 | its kind << 1 | inside
  Announcement announcements[2];
  /// Until when this rank waits for another node, in ns of steady_now(); 0: it does not.
  std::atomic<std::int64_t> away_until;
  /// Used in the line of the group's first rank, and written by all of its ranks: the last phase
  /// that all have met << 32 | the rank that ended the group + 1, or 0 if none has.
  alignas(128) std::atomic<std::uint64_t> fate;
  std::atomic<std::uint32_t> bell;         ///< increased by a peer that moved bytes for this rank
  std::atomic<std::uint32_t> bell_sleeps;  ///< 1: this rank is parked on `bell`, or about to be
};
static_assert(sizeof(RankLine) == 256);
enum RankState : std::uint32_t { absent, joining, joined, left };

/// The last calls of a rank, which only that rank writes. Call n is in entry n % kKept.
struct alignas(128) RankCalls {
  static constexpr std::size_t kKept = 7, kWords = 3;
  struct Entry {
    std::atomic<std::uint64_t> number;
    std::atomic<std::uint64_t> text[kWords];  ///< its name, filled up with zeros
  };
  std::atomic<std::uint64_t> count;  ///< number of the last call, from 1; 0: none yet
  Entry entries[kKept];
};
static_assert(sizeof(RankCalls) == 256);

/// The counters of a ring of bytes. Both count all bytes ever moved, modulo 2^32. They are on
/// separate cache lines, since one rank writes each.
struct alignas(128) Fifo {
  std::atomic<std::uint32_t> written;
  alignas(64) std::atomic<std::uint32_t> read;
};
static_assert(sizeof(Fifo) == 128);

struct alignas(128) Header {
  static constexpr std::uint64_t kMagic = 0x6c6c6f6375657274;  // "treucoll" as bytes
  static constexpr std::uint32_t kVersion = 7;
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t size;
  std::uint64_t generation;
  std::uint64_t slot_bytes;
  std::uint32_t splits;
  std::atomic<std::uint32_t> lanes_taken;  ///< by splits
  /// The group that ended first: its lane << 32 | the rank that ended it + 1. 0: none.
  std::atomic<std::uint64_t> over;
};

/// Why a rank ended a group: a fault that it found, abort(), or different calls of ranks.
enum class Ending : std::uint16_t { fault, given_up, calls };

/// The error that a rank records for a whole group when it ends the group. It is complete before
/// `fate` names the rank.
struct alignas(128) Verdict {
  std::uint16_t code;
  Ending ending;
  char text[2044];
};

constexpr int kMaxSize = 1024;
constexpr std::uint32_t kMaxSplits = 64;
constexpr std::uint64_t kMinSlot = 4096, kMaxSlot = std::uint64_t{1} << 30;

struct Shape {
  int size = 1;
  std::uint64_t slot_bytes = 0;  ///< a multiple of a page
  std::uint32_t splits = 0;
};

/// A mapping of the arena.
class Arena {
 public:
  static std::uint64_t round_up_to_page(std::uint64_t n) noexcept;
  /// Returns the bytes that an arena needs. Most of them are never touched.
  static std::uint64_t bytes(const Shape& shape) noexcept;
  /// Makes an arena on anonymous pages.
  static std::shared_ptr<Arena> anonymous(const Shape& shape);
  /// Maps a memfd whose header has been checked and has this shape.
  static std::shared_ptr<Arena> of_memfd(const Fd& memory, const Shape& shape);
  /// Writes the header; all other bytes begin as zeros.
  static void format(void* base, const Shape& shape, std::uint64_t generation);

  Arena(void* base, const Shape& shape) noexcept;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena();

  Header& header() noexcept { return *static_cast<Header*>(base_); }
  RankLine& line(std::uint32_t lane, int rank) noexcept;
  Verdict& verdict(std::uint32_t lane, int rank) noexcept;
  RankCalls& calls(int rank) noexcept;
  std::byte* slot(std::uint32_t lane, int rank, std::uint32_t phase) noexcept;
  Fifo& fifo(std::uint32_t lane, int from, int to) noexcept;
  /// Returns the memory of a ring, fifo_bytes() long.
  std::byte* fifo_data(std::uint32_t lane, int from, int to) noexcept;
  /// A power of two, so that counters which wrap at 2^32 keep their place in the ring.
  std::uint32_t fifo_bytes() const noexcept;
  /// Takes the next lane for a split. Returns 0 when there is none.
  std::uint32_t take_lane() noexcept;
  /// Returns the number of lanes that may be in use.
  std::uint32_t lanes() noexcept;
  int size() const noexcept { return shape_.size; }
  std::uint64_t slot_bytes() const noexcept { return shape_.slot_bytes; }

 private:
  std::byte* at(std::uint64_t offset) noexcept { return static_cast<std::byte*>(base_) + offset; }
  void* base_;
  Shape shape_;  // a copy: the header may be changed by other ranks
};

/// Maps the memory of create_shm_group() for a rank. Throws InvalidArgument as join_shm_group().
std::shared_ptr<Arena> open_shm_arena(const Fd& memory, int rank, std::uint64_t generation);

}  // namespace troupe::collective::internal
