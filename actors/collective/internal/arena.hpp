/// The shared memory of a group and one rank's way through it. Both back ends are this: `local`
/// puts it on anonymous pages, `shm` into a memfd.
///
/// Every operation is a sequence of *phases*. In phase p each rank (1) writes its own slot p % 2,
/// (2) publishes p, (3) waits until every rank has published p, (4) reads any slot p % 2. A slot is
/// written again in phase p + 2, after every rank has published p + 1, that is after it has read p:
/// so one wait per phase is enough.
///
/// One word of the group says which phase is the last that all have met, and whether the group has
/// ended. Who finds all ranks arrived sets it to his phase, who gives up (too late, a death) sets
/// its mark: one exchange decides between them, so a phase succeeds on every rank or on none.
#pragma once

#include "troupe/actors/collective/communicator.hpp"
#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/fd.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace troupe::collective::internal {

/// What a rank says about the phase that it publishes; all ranks must say the same.
struct Announcement {
  std::uint8_t kind = 0, type = 0, reduce = 0, part = 0;
  std::int32_t root = 0;
  std::uint64_t count = 0;
  std::uint64_t offset = 0;
  friend bool operator==(const Announcement&, const Announcement&) = default;
};

/// One rank's control words; written by that rank only, but for sleepers.
struct alignas(128) RankLine {
  std::atomic<std::uint32_t> published;  ///< last phase
  std::atomic<std::uint32_t> sleepers;   ///< ranks parked on `published`
  std::atomic<std::uint32_t> state;      ///< RankState
  std::int32_t pid;                      ///< set before state becomes joined
  std::uint64_t pid_namespace;
  std::atomic<std::uint64_t> progress;  ///< number of its operation << 8 | its kind << 1 | inside
  Announcement announcements[2];
};
static_assert(sizeof(RankLine) == 128);
enum RankState : std::uint32_t { absent, joining, joined, left };

struct alignas(128) Header {
  static constexpr std::uint64_t kMagic = 0x6c6c6f6375657274;  // "treucoll" as bytes
  static constexpr std::uint32_t kVersion = 3;
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t size;
  std::uint64_t generation;
  std::uint64_t slot_bytes;
  /// The last phase that all have met << 32 | the rank that ended the group + 1, 0 if none has.
  std::atomic<std::uint64_t> fate;
};

/// What a rank says for all of them when it ends the group: complete before `fate` names the rank.
struct alignas(128) Verdict {
  std::uint32_t code;
  char text[2044];
};

constexpr int kMaxSize = 1024;
constexpr std::uint64_t kMinSlot = 4096, kMaxSlot = std::uint64_t{1} << 30;

/// A mapping of header, rank lines and slots.
class Arena {
 public:
  /// Bytes that a group needs.
  static std::uint64_t bytes(int size, std::uint64_t slot_bytes) noexcept;
  /// Anonymous pages.
  static std::shared_ptr<Arena> anonymous(int size, std::uint64_t slot_bytes);
  /// Maps a memfd whose header has been checked and says size and slot_bytes.
  static std::shared_ptr<Arena> of_memfd(const Fd& memory, int size, std::uint64_t slot_bytes);
  static void format(void* base, int size, std::uint64_t slot_bytes, std::uint64_t generation);

  Arena(void* base, int size, std::uint64_t slot_bytes) noexcept;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena();

  Header& header() noexcept { return *static_cast<Header*>(base_); }
  RankLine& line(int rank) noexcept;
  Verdict& verdict(int rank) noexcept;
  std::byte* slot(int rank, std::uint32_t phase) noexcept;
  int size() const noexcept { return size_; }
  std::uint64_t slot_bytes() const noexcept { return slot_bytes_; }

 private:
  void* base_;
  int size_;  // not read from the header again: other ranks can write there
  std::uint64_t slot_bytes_;
};

/// A rank in an arena.
class ArenaCommunicator final : public Communicator {
 public:
  /// Takes the rank's place; throws InvalidArgument when it is taken. `watch_processes`: look for
  /// the death of other ranks' processes while waiting.
  ArenaCommunicator(std::shared_ptr<Arena> arena, int rank, Duration timeout, bool watch_processes);
  ~ArenaCommunicator() override;
  void abort(std::string_view reason) noexcept override;
  std::vector<RankProgress> progress() const override;

 protected:
  void run(const Operation& operation) override;

 private:
  template <class T>
  void allreduce(const Operation& operation);
  template <class T>
  void allreduce_direct(T* data, std::uint64_t count, T factor);
  template <class T>
  void allreduce_sliced(T* data, std::uint64_t count, T factor);
  void reduce_scatter(const Operation& operation);
  void all_gather(const Operation& operation);
  void broadcast(const Operation& operation);

  /// Steps 2 and 3 of a phase; the rank's slot is written. offset and part tell phases apart.
  void meet(std::uint64_t offset, std::uint8_t part = 0);
  void wait_for(int other, Time deadline);
  bool arrived(int other) noexcept;
  /// Whether some rank has found all of them arrived in this phase.
  bool is_met() const noexcept;
  bool is_over() const noexcept;
  /// All have arrived: says so, or throws when the group had ended before.
  void settle();
  /// Throws when some rank cannot come any more.
  void check();
  void fail_late();  ///< returns when the last one came at the last moment
  /// All have arrived: throws unless they said the same.
  void compare();
  bool process_is_dead(int other);
  bool shares_pids(const RankLine& line) const noexcept;
  /// Says for all ranks what ended the group, unless somebody has, or all have met in phase
  /// `unless_met` (0: whatever they have met).
  void end_group(Code code, std::string_view verdict, std::uint32_t unless_met) noexcept;
  /// Ends the group and throws what ended it; returns when all have met in this phase after all.
  void fail_phase(Code code, const std::string& why);
  [[noreturn]] void throw_aborted();
  void note_progress(bool inside) noexcept;
  std::string describe() const;

  std::byte* my_slot() noexcept { return arena_->slot(rank(), phase_ + 1); }
  std::byte* slot_of(int other) noexcept { return arena_->slot(other, phase_); }
  template <class T>
  std::vector<const T*> slots_at(std::uint64_t first);

  std::shared_ptr<Arena> arena_;
  std::uint32_t phase_ = 0;  // last one met
  std::uint64_t operations_ = 0;
  Operation current_;  // the last one, once operations_ is not 0
  std::mutex saying_;  // the rank's verdict: abort() comes from any thread
  bool watch_processes_;
  std::uint64_t pid_namespace_ = 0;
  std::vector<Fd> processes_;  // pidfd per rank, opened when first needed
};

}  // namespace troupe::collective::internal
