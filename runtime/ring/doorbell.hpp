/// One wake-up page per process, shared by everybody who writes to it.
///
/// A writer marks its slot ready; the reader takes all ready slots at once. The eventfd is written
/// only when the reader has said that it sleeps, so a busy pair exchanges messages without a system
/// call.
///
///     reader: bell.take(slots);                         // which channels have something
///             bell.prepare_sleep() && poll(bell.fd());  // false: something arrived meanwhile
///             bell.finish_sleep();
///     writer: peer_bell.ring(slot);
///
/// Sleep flag and ready words are sequentially consistent read-modify-writes: between the writer's
/// mark and its look at the flag, and the reader's flag and its look at the marks, at least one
/// side sees the other (Dekker). A writer may be killed between any two steps without silencing the
/// others.
///
/// An owner that spins and talks to one peer may *watch* that peer's ring: it looks at the ring
/// itself and leaves the slot marked, so that the writer finds its mark and writes nothing here.
/// The page then stays in both caches, and a message costs the cache lines of its frame alone.
#pragma once

#include "troupe/runtime/base/fd.hpp"
#include "troupe/runtime/base/result.hpp"
#include "troupe/runtime/base/units.hpp"

#include <atomic>
#include <cstdint>
#include <vector>

namespace troupe::ring {

class Consumer;

/// Slots a process can own: one per peer channel.
inline constexpr std::uint32_t kMaxSlots = 4096;

/// The shared page. Everybody who holds it may wake its owner. The worst that a bad writer does is
/// to wake it for nothing, to wipe out others' marks (what they wrote waits for their next ring),
/// or to put words into its owner's mouth.
struct DoorbellPage {
  alignas(64) std::atomic<std::uint32_t> sleeping;  ///< number of the present sleep; 0: awake
  std::atomic<std::uint32_t> slept_on;  ///< the CPU of the last sleep, and one; 0: none yet
  // On the same cache line as `sleeping`: a ring touches all three.
  std::atomic<std::uint64_t> summary;    ///< bit i: words[i] may be non-zero
  std::atomic<std::uint64_t> words[64];  ///< bit j of word i: slot 64 i + j is ready
  std::atomic<std::int64_t> said;        ///< by the owner, to all who hold the page; see say()
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

  /// What the owner has said last; 0: nothing. It stays readable as long as the page is mapped,
  /// also for a signal handler.
  const std::atomic<std::int64_t>& said() const noexcept { return page_->said; }

  // --- writer ---
  /// Marks the slot and wakes the owner if it sleeps. One or two atomic operations when the owner
  /// is busy.
  void ring(std::uint32_t slot) noexcept {
    if (mark(slot)) nudge();
  }
  /// Marks the slot. True: the owner sleeps, and does so until somebody wakes it.
  bool mark(std::uint32_t slot) noexcept;
  /// On which CPU the owner last went to sleep; -1 when it never has. Where it is by now is its own
  /// affair.
  int slept_on() const noexcept {
    return static_cast<int>(page_->slept_on.load(std::memory_order_relaxed)) - 1;
  }
  /// Wakes the owner without marking a slot.
  void nudge() noexcept;
  /// Writes the event, whether the owner sleeps or not: an edge in any case, however often it was
  /// written and not read.
  void wake() noexcept;

  // --- owner ---
  /// Something that all who hold the page can look up at any time; wakes nobody.
  void say(std::int64_t word) noexcept { page_->said.store(word, std::memory_order_relaxed); }
  /// Moves the ready slots into `slots` (cleared first); false when there are none. A slot may be
  /// spurious.
  bool take(std::vector<std::uint32_t>& slots) noexcept;
  /// True when some slot is marked, or the watched ring has a frame; cheap, for spinning.
  bool pending() const noexcept {
    return page_->summary.load(std::memory_order_seq_cst) != kept_word_ ||
           (watched_ != nullptr && watched_pending());
  }
  /// From here on a frame in `ring` makes the slot ready, instead of its mark. It replaces what was
  /// watched before, and lives until unwatch().
  void watch(std::uint32_t slot, const Consumer& ring) noexcept;
  /// Nothing is watched any more. The slot is ready once, since its mark stands.
  void unwatch() noexcept;
  const Consumer* watched() const noexcept { return watched_; }
  std::uint32_t watched_slot() const noexcept { return watched_slot_; }
  /// The watched ring has a frame, and no slot was marked before that was published.
  bool only_watched() const noexcept;
  /// Announces sleep; false (and not asleep) when a slot is ready already, as a watched one is: who
  /// sleeps is woken by marks, so it watches nothing from here on.
  bool prepare_sleep() noexcept;
  /// Takes the announcement back and empties the eventfd.
  void finish_sleep() noexcept;
  /// prepare, poll, finish in one; returns when something may be ready or at the timeout.
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
  // Owner: what it watches, and the marks of that, which stay.
  const Consumer* watched_ = nullptr;
  std::uint32_t watched_slot_ = 0;
  std::uint64_t kept_word_ = 0;
  std::uint64_t kept_slot_ = 0;
};

}  // namespace troupe::ring
