/// A doorbell: one shared wake-up page per process. The process owns it; each of its peers (the
/// writers) has a slot there to say that a ring has news.
///
/// A writer marks its slot ready, and the owner takes all ready slots at once. A writer writes the
/// eventfd only when the owner has announced that it sleeps, so a busy pair exchanges messages
/// without a system call.
///
///     reader: bell.take(slots);                         // which channels have something
///             bell.prepare_sleep() && poll(bell.fd());  // false: something arrived meanwhile
///             bell.finish_sleep();
///     writer: peer_bell.ring(slot);
///
/// No wake-up is lost. The writer marks a slot, then reads the sleep flag. The owner sets the sleep
/// flag, then reads the marks. All four accesses are sequentially consistent, so at least one side
/// sees the other (Dekker's algorithm). A writer may be killed between any two steps; the other
/// writers can still wake the owner.
///
/// An owner that spins and talks to one peer may *watch* that peer's ring: it polls the ring itself
/// and leaves the slot marked. The writer then finds its mark and writes nothing here. The page
/// stays in both caches, and a message costs the cache lines of its frame alone.
#pragma once

#include "troupe/runtime/base/fd.hpp"
#include "troupe/runtime/base/result.hpp"
#include "troupe/runtime/base/units.hpp"

#include <atomic>
#include <cstdint>
#include <vector>

namespace troupe::ring {

class Consumer;

/// Number of slots of a doorbell: one per peer channel.
inline constexpr std::uint32_t kMaxSlots = 4096;

/// The shared page. Every process that maps it may wake its owner. A malicious writer can do
/// three things: wake the owner without news, overwrite the owner's published value `said`, and
/// erase the marks of others. Their frames then wait until they ring again.
struct DoorbellPage {
  alignas(64) std::atomic<std::uint32_t> sleeping;  ///< number of the present sleep; 0: awake
  std::atomic<std::uint32_t> slept_on;              ///< 1 + the CPU of the last sleep; 0: none yet
  // `summary` is on the same cache line as `sleeping`, because ring() reads both.
  std::atomic<std::uint64_t> summary;    ///< bit i: words[i] may be non-zero
  std::atomic<std::uint64_t> words[64];  ///< bit j of word i: slot 64 i + j is ready
  std::atomic<std::int64_t> said;        ///< a value that the owner publishes; see say()
};

/// One end of a doorbell: the owner's or a peer's.
class Doorbell {
 public:
  Doorbell() noexcept = default;
  /// A new doorbell of this process. Errors: out_of_memory when memfd or eventfd cannot be had.
  static Result<Doorbell> create();
  /// A peer's doorbell from its descriptors; takes them over. Errors: invalid_argument when the
  /// size is wrong, the memory could shrink, or ringing could block.
  static Result<Doorbell> attach(Fd memory, Fd event);
  Doorbell(Doorbell&&) noexcept;
  Doorbell& operator=(Doorbell&&) noexcept;
  ~Doorbell();

  explicit operator bool() const noexcept { return page_ != nullptr; }
  int memory_fd() const noexcept { return memory_.get(); }
  int event_fd() const noexcept { return event_.get(); }

  /// Returns the value that the owner published last by say(); 0: none yet. The reference is valid
  /// as long as the page is mapped, also in a signal handler.
  const std::atomic<std::int64_t>& said() const noexcept { return page_->said; }

  // --- writer ---
  /// Marks the slot and wakes the owner if it sleeps. One or two atomic operations when the owner
  /// is busy.
  void ring(std::uint32_t slot) noexcept {
    if (mark(slot)) wake_sleeper();
  }
  /// Marks the slot. Returns true when the owner sleeps; the caller or another writer must then
  /// wake it.
  bool mark(std::uint32_t slot) noexcept;
  /// Returns the CPU on which the owner last went to sleep; -1 when it never has. The owner may run
  /// on another CPU by now.
  int slept_on() const noexcept {
    return static_cast<int>(page_->slept_on.load(std::memory_order_relaxed)) - 1;
  }
  /// Wakes the owner if it sleeps, without marking a slot.
  void wake_sleeper() noexcept;
  /// Writes the eventfd, whether the owner sleeps or not. It raises an edge even when the eventfd's
  /// counter is full.
  void wake() noexcept;

  // --- owner ---
  /// Publishes a value that every process with this page can read at any time. Wakes no process.
  void say(std::int64_t word) noexcept { page_->said.store(word, std::memory_order_relaxed); }
  /// Moves the ready slots into `slots` (cleared first). Returns false when there are none. A slot
  /// may be reported although its ring is empty.
  bool take(std::vector<std::uint32_t>& slots) noexcept;
  /// Returns true when a slot is marked or the watched ring has a frame. Cheap, for spinning.
  bool pending() const noexcept {
    return page_->summary.load(std::memory_order_seq_cst) != kept_word_ ||
           (watched_ != nullptr && watched_pending());
  }
  /// Watches a ring: from now on a frame in `ring` makes the slot ready, instead of its mark. It
  /// replaces the ring watched before. `ring` must stay valid until unwatch().
  void watch(std::uint32_t slot, const Consumer& ring) noexcept;
  /// Ends watching. The slot is ready once more, because its mark is still set.
  void unwatch() noexcept;
  const Consumer* watched() const noexcept { return watched_; }
  std::uint32_t watched_slot() const noexcept { return watched_slot_; }
  /// Returns true when the watched ring has a frame and no slot was marked before that frame was
  /// published.
  bool only_watched() const noexcept;
  /// Announces sleep. Returns false, without the announcement, when a slot is ready already. A
  /// sleeping owner is woken by marks alone; if a ring is watched, the call therefore ends watching
  /// and returns false.
  bool prepare_sleep() noexcept;
  /// Takes the announcement back and empties the eventfd.
  void finish_sleep() noexcept;
  /// Announces sleep, polls the eventfd and finishes. Returns when a slot may be ready or at the
  /// timeout.
  void sleep(Duration timeout) noexcept;

 private:
  bool watched_pending() const noexcept;
  bool beside_watched() const noexcept;
  bool marked() const noexcept;
  void take_marks(std::vector<std::uint32_t>& slots) noexcept;

  Fd memory_;
  Fd event_;
  DoorbellPage* page_ = nullptr;
  std::uint32_t sleep_ = 0;  ///< owner: number of its last sleep
  // Owner: the watched ring and its slot. The slot's bits in `summary` (kept_word_) and in its word
  // (kept_slot_) stay set while the ring is watched.
  const Consumer* watched_ = nullptr;
  std::uint32_t watched_slot_ = 0;
  std::uint64_t kept_word_ = 0;
  std::uint64_t kept_slot_ = 0;
};

}  // namespace troupe::ring
