/// Wires: the links of one rank in one group, and what their ends tell about the wait for others.
///
/// A rank that waits longer than half of its timeout tells the ends that it waits, and for which
/// rank of the world, every 50 ms. An end that waits itself answers at once. So at the timeout an
/// end that has had 200 ms and is silent is the missing one. An end that answers has a second more
/// to end the group; then the rank that it waits for is the missing one.
#pragma once

#include "troupe/actors/collective/internal/rank.hpp"
#include "troupe/actors/collective/nodes/internal/gang.hpp"
#include "troupe/actors/collective/nodes/internal/layout.hpp"

#include <poll.h>

#include <deque>
#include <memory>
#include <string>
#include <vector>

namespace troupe::collective::nodes {

/// A link, and what its other end has said.
struct Side {
  std::unique_ptr<Link> link;  ///< null until its first use
  std::uint32_t use = 0;       ///< LinkName::use
  int rank = 0;                ///< of the group, at the other end
  bool awaited = false;        ///< the operation cannot go on without it
  bool left = false;           ///< the other end has left
  bool parted = false;         ///< this end has sent `end` or `left`
  bool asked = false;          ///< the other end waits, and has had no answer
  int waits_for = -1;          ///< for this rank of the world
  Time heard = {};             ///< when it said so
  Time told = {};              ///< when this end said so
  /// Data frames that this end has set aside, to see what comes behind them.
  std::deque<std::vector<std::byte>> held = {};
};

/// One thread at a time.
class Wires {
 public:
  Wires(internal::ArenaCommunicator& inner, Gang& gang, const Layout& layout, int rank);

  /// Adds a side for a rank of the group. The reference stays valid.
  Side& add(std::uint32_t use, int rank);
  /// Adds a side whose link is there.
  Side& add(std::unique_ptr<Link> link, int rank);
  /// Makes the side's link, unless it is there. Throws Unavailable.
  void open(Side& side);
  /// Does the same; an error ends the group.
  void open_or_fail(Side& side);

  /// Moves all links on without waiting, and takes what is no data. `looks_behind`: also behind a
  /// few frames of data.
  void advance(bool looks_behind = false) noexcept;
  /// Returns whether the side has a frame of data.
  static bool has_data(const Side& side) noexcept;
  /// The oldest one. Its bytes are valid until pop(). Precondition: has_data().
  static std::span<const std::byte> front(const Side& side) noexcept;
  static void pop(Side& side) noexcept;
  /// Returns whether all that was sent to the side has gone out, or can do so no more.
  static bool is_flushed(const Side& side) noexcept {
    return side.link->is_flushed() || side.link->state() == Link::State::closed;
  }

  /// Begins a wait for awaited sides, whose timeout runs anew.
  void begin(const internal::Operation& operation, Duration timeout) noexcept;
  /// Ends the wait.
  void end() noexcept;
  /// Waits until advance() may be of use, at most 50 ms. Throws when the group is over, when an
  /// awaited side is gone, or when one is late.
  void rest(const Post* self);
  /// Tells the ends for which rank of the world this rank waits: those that asked, or all.
  void tell(int missing, bool all) noexcept;
  /// Ends the group when an end has died.
  void check_ends() noexcept;

  /// Says `end` with the error of the group, or `left` when there is none. Never waits.
  void part() noexcept;
  /// Waits until the last words have gone out, at most until then.
  void flush(Time until) noexcept;

  /// Records how far a rank of another node has come, as a word of RankLine::progress.
  void note(int rank, std::uint64_t word) noexcept;
  /// Forgets how far ranks of other nodes have come, but not who has joined.
  void forget_progress() noexcept;
  /// Returns what texts call a rank of the group.
  std::string name_of(int rank) const;
  /// Puts what is known of other nodes' ranks into the progress of all ranks. Any thread.
  void fill(std::vector<RankProgress>& all) const;

 private:
  void take_words(Side& side, bool looks_behind) noexcept;
  void take_end(std::span<const std::byte> frame) noexcept;
  /// Returns the world rank that this rank waits for, as far as it can tell that side; or -1.
  int missing_for(const Side* side, Time now) const noexcept;
  void check_awaited();
  void judge(Time now);
  void poll(Duration most) noexcept;
  std::string name_of_world(int world_rank) const;

  internal::ArenaCommunicator& inner_;
  Gang& gang_;
  const Layout& layout_;
  int rank_;
  std::deque<Side> sides_;
  const internal::Operation* operation_ = nullptr;
  Time begun_{}, deadline_{}, served_{};
  Time asked_{};  // when the ends were asked in this wait; Time{}: not yet
  bool is_away_ = false;
  std::vector<pollfd> polled_;
  std::vector<std::atomic<std::uint64_t>> seen_;  // index = rank; 0: nothing, 1: left at the start
};

}  // namespace troupe::collective::nodes
