/// The shared memory of a group and of its splits. Both back ends are this: `local` puts it on
/// anonymous pages, `shm` into a memfd.
///
/// It has lanes. Lane 0 is the group's; each split takes the next one, for all of its colors: their
/// ranks are disjoint, and a rank keeps its number in the group for its places in every lane.
///
/// Every collective operation is a sequence of *phases*. In phase p each rank (1) writes its own
/// slot p % 2, (2) publishes p, (3) waits until every rank has published p, (4) reads any slot
/// p % 2. A slot is written again in phase p + 2, after every rank has published p + 1, that is
/// after it has read p: so one wait per phase is enough.
///
/// One word of each group, in the line of its first rank, says which phase is the last that all
/// have met, and whether the group has ended. Who finds all ranks arrived sets it to his phase, who
/// gives up (too late, a death) sets its mark: one exchange decides between them, so a phase
/// succeeds on every rank or on none. Header::over says that some group of the arena has ended;
/// the others then end by their own words, each phase still on all of their ranks or on none.
///
/// Sends have a ring of bytes for each ordered pair of ranks of a lane.
#pragma once

#include "troupe/actors/collective/communicator.hpp"
#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/fd.hpp"

#include <atomic>
#include <cstdint>
#include <memory>

namespace troupe::collective::internal {

/// What a rank says about the phase that it publishes; all ranks must say the same.
struct Announcement {
  std::uint8_t kind = 0, type = 0, reduce = 0, part = 0;
  std::int32_t root = 0;
  std::uint64_t count = 0;
  std::uint64_t offset = 0;
  friend bool operator==(const Announcement&, const Announcement&) = default;
};

/// One rank's control words in a lane; written by that rank only, but for those that say so.
struct alignas(128) RankLine {
  std::atomic<std::uint32_t> published;  ///< last phase
  std::atomic<std::uint32_t> sleepers;   ///< ranks parked on `published`; written by them
  std::atomic<std::uint32_t> state;      ///< RankState
  std::int32_t pid;                      ///< set before state becomes joined
  std::uint64_t pid_namespace;
  std::atomic<std::uint64_t> progress;  ///< number of its operation << 8 | its kind << 1 | inside
  Announcement announcements[2];
  /// Of the first rank of a group, written by all of it: the last phase that all have met << 32 |
  /// the rank that ended the group + 1, 0 if none has.
  alignas(128) std::atomic<std::uint64_t> fate;
  std::atomic<std::uint32_t> bell;         ///< rung by who moves bytes from or to a resting rank
  std::atomic<std::uint32_t> bell_sleeps;  ///< the rank is parked on it, or about to be
};
static_assert(sizeof(RankLine) == 256);
enum RankState : std::uint32_t { absent, joining, joined, left };

/// The counters of a ring of bytes; both wrap.
struct alignas(128) Fifo {
  std::atomic<std::uint32_t> written;
  alignas(64) std::atomic<std::uint32_t> read;
};
static_assert(sizeof(Fifo) == 128);

struct alignas(128) Header {
  static constexpr std::uint64_t kMagic = 0x6c6c6f6375657274;  // "treucoll" as bytes
  static constexpr std::uint32_t kVersion = 5;
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t size;
  std::uint64_t generation;
  std::uint64_t slot_bytes;
  std::uint32_t splits;
  std::atomic<std::uint32_t> lanes_taken;  ///< by splits
  /// Which group ended first: its lane << 32 | the rank that ended it + 1.
  std::atomic<std::uint64_t> over;
};

/// What a rank says for a whole group when it ends it: complete before `fate` names the rank.
struct alignas(128) Verdict {
  std::uint16_t code;
  std::uint16_t given_up;  ///< 1: by abort()
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

/// A mapping of all that.
class Arena {
 public:
  static std::uint64_t round_up_to_page(std::uint64_t n) noexcept;
  /// Bytes that a group needs. Most of them are never touched.
  static std::uint64_t bytes(const Shape& shape) noexcept;
  /// Anonymous pages.
  static std::shared_ptr<Arena> anonymous(const Shape& shape);
  /// Maps a memfd whose header has been checked and says this shape.
  static std::shared_ptr<Arena> of_memfd(const Fd& memory, const Shape& shape);
  /// Writes the header; all else begins as zeros.
  static void format(void* base, const Shape& shape, std::uint64_t generation);

  Arena(void* base, const Shape& shape) noexcept;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena();

  Header& header() noexcept { return *static_cast<Header*>(base_); }
  RankLine& line(std::uint32_t lane, int rank) noexcept;
  Verdict& verdict(std::uint32_t lane, int rank) noexcept;
  std::byte* slot(std::uint32_t lane, int rank, std::uint32_t phase) noexcept;
  Fifo& fifo(std::uint32_t lane, int from, int to) noexcept;
  /// fifo_bytes() of them.
  std::byte* fifo_data(std::uint32_t lane, int from, int to) noexcept;
  /// A power of two.
  std::uint32_t fifo_bytes() const noexcept;
  /// The next lane for a split; 0 when there is none.
  std::uint32_t take_lane() noexcept;
  /// Lanes that may be in use.
  std::uint32_t lanes() noexcept;
  int size() const noexcept { return shape_.size; }
  std::uint64_t slot_bytes() const noexcept { return shape_.slot_bytes; }

 private:
  std::byte* at(std::uint64_t offset) noexcept { return static_cast<std::byte*>(base_) + offset; }
  void* base_;
  Shape shape_;  // not read from the header again: other ranks can write there
};

}  // namespace troupe::collective::internal
