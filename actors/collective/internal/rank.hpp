/// ArenaCommunicator: one rank's end of a group in an arena, for the back ends `local` and `shm`.
#pragma once

#include "troupe/actors/collective/internal/arena.hpp"
#include "troupe/actors/collective/internal/call_log.hpp"
#include "troupe/actors/collective/internal/coordinator.hpp"
#include "troupe/actors/collective/internal/operation.hpp"
#include "troupe/actors/collective/local/link.hpp"

#include <mutex>
#include <string>
#include <vector>

namespace troupe::collective::internal {

/// The ranks and the lane that a group has in the arena.
struct Seats {
  std::uint32_t lane = 0;
  std::vector<int> members;  ///< ranks of the arena, index = rank of the group
};

/// How texts number the ranks of a group that is one node's part of a group over several nodes.
struct Numbers {
  int first = 0;      ///< the number of the first rank
  int size = 0;       ///< ranks of the group over all nodes; 0: those of this group
  int whole = 0;      ///< the number that rank 0 of the arena has in the whole
  bool part = false;  ///< the group does not have all ranks of the whole
};

/// What a group over several nodes does while a rank waits for others of its node.
class Watcher {
 public:
  virtual ~Watcher() = default;
  /// Is called every 50 ms, on the waiting thread. `rank` is the first that has not come, or this
  /// one, whose input is not ready.
  virtual void idle(int rank) noexcept = 0;
  /// Returns the progress of all nodes' ranks.
  virtual std::vector<RankProgress> whole_progress() const = 0;
};

/// Return the value of RankLine::progress, and put one into RankProgress.
std::uint64_t progress_word(OperationKind kind, std::uint64_t sequence, bool inside) noexcept;
void take_progress(std::uint64_t word, RankProgress& one) noexcept;

class ArenaCommunicator final : public Coordinator {
 public:
  /// How a rank joins.
  struct How {
    Duration timeout{};
    bool watch_processes = false;  ///< check while waiting whether other ranks' processes are dead
    Progress progress = Progress::caller;
    SimulatedLink link = {};
    Numbers numbers = {};
    Watcher* watcher = nullptr;  ///< outlives the communicator
  };
  /// Joins as `rank`. Throws InvalidArgument when it is taken.
  ArenaCommunicator(std::shared_ptr<Arena> arena, Seats seats, int rank, const How& how);
  ~ArenaCommunicator() override;
  void abort(std::string_view reason) noexcept override;
  bool is_over() const noexcept override;
  bool was_given_up() const noexcept override;
  std::vector<RankProgress> progress() const override;
  void run(Operation& operation) override;
  std::unique_ptr<Communicator> join_split(const Operation& done, Progress progress) override;
  CallLog* call_log() noexcept override { return &calls_; }

  void agree(const Operation& operation) override;
  void note_done(OperationKind kind, std::uint64_t sequence) noexcept override;
  std::uint64_t sequence() const noexcept override { return operations_; }
  void count_anew() noexcept override;
  void end(Code code, const std::string& why) noexcept override;
  bool check_ranks() override;
  Error error_of(OperationKind kind, std::uint64_t sequence) noexcept override;
  std::string name_of_rank(int rank) const override;
  std::string late_words(Time limit, const Operation& operation) const override;
  /// Ends the group and throws the error that ended it.
  [[noreturn]] void fail(Code code, const std::string& why) override;

  // For groups over several nodes, of which this group is one node's part.
  /// Begins an operation: counts it, records the progress, and waits for its input.
  void begin(const Operation& operation);
  /// Records the end of the operation in the rank's progress.
  void finish() noexcept { note_progress(false); }
  /// Steps 2 and 3 of a phase; the rank's slot is written. offset and part tell phases apart.
  void meet(std::uint64_t offset, std::uint8_t part = 0);
  /// Return the slot that this rank may write before it meets the others, and that of a rank in the
  /// phase that was met last.
  std::byte* my_slot() noexcept { return arena_->slot(seats_.lane, self(), phase_ + 1); }
  std::byte* slot_of(int other) noexcept { return arena_->slot(seats_.lane, at(other), phase_); }
  /// Says until when this rank waits for another node, so that others wait longer for it. Time{}:
  /// it does not.
  void set_away(Time until) noexcept;
  /// Ends the group and throws when ranks of this node have made different calls.
  void check_calls() { check_calls(0); }
  /// The error of a group that is over, as its text says it on every rank.
  struct Ended {
    Code code = Code::cancelled;
    Ending ending = Ending::fault;
    std::string text;
  };
  /// Precondition: is_over(). Any thread.
  Ended ended() noexcept;
  /// Ends the group with a text as it is, unless it has ended. Any thread.
  void end_with(const Ended& how) noexcept;
  /// Precondition: is_over().
  [[noreturn]] void throw_aborted();

 private:
  // operations.cpp
  void all_reduce(const Operation& operation);
  void all_reduce_direct(const Operation& operation);
  void all_reduce_sliced(const Operation& operation);
  void reduce_scatter(const Operation& operation);
  void all_gather(const Operation& operation);
  void broadcast(const Operation& operation);
  void split(Operation& operation);
  std::vector<const std::byte*> slots_at(std::uint64_t first);

  // transfers.cpp
  class Stream;
  void move(const Operation& operation, const std::vector<Transfers::One>& messages) override;
  bool advance(Stream& stream);
  bool can_any(const std::vector<Stream>& streams) const noexcept;
  void rest(const std::vector<Stream>& streams, Time deadline);
  void check_peers(const std::vector<Stream>& streams, Time deadline);
  void ring(int other) noexcept;

  // rank.cpp
  /// Waits for Terms::after of the operation.
  void await_input();
  void simulate_link() const;
  void wait_for(int other, Time deadline);
  bool arrived(int other) noexcept;
  /// Returns whether some rank has recorded in the fate word that all have met in this phase.
  bool is_met() const noexcept;
  bool has_ended() const noexcept;
  /// Records in the fate word that all ranks have met, after this rank found all arrived. Throws
  /// when the group ended first.
  void settle();
  /// Throws when a rank cannot arrive any more: it left, or its process is dead.
  void check();
  void fail_late(Time deadline);  ///< returns if the last rank arrives at the last moment
  /// Throws unless all ranks have published the same announcement. All must have arrived.
  void compare();
  /// Ends the group and throws when ranks have made different calls of the program. Returns if all
  /// ranks have met in phase `unless_met` meanwhile (0: no such condition).
  void check_calls(std::uint32_t unless_met);
  bool has_left(int other) noexcept;
  bool process_is_dead(int other);
  std::string death_of(int other) const;
  bool shares_pids(const RankLine& line) const noexcept;
  /// Ends the group and records the error for all ranks. When another group of the arena has ended,
  /// that group's error counts instead. Does nothing if a rank has ended this one before, or if all
  /// have met in phase `unless_met` (0: no such condition).
  void end_group(Code code, std::string_view verdict, std::uint32_t unless_met,
                 Ending ending = Ending::fault) noexcept;
  /// Copies the error of another group of the arena that has ended. Returns whether there is one.
  bool take_verdict(Verdict& mine) const noexcept;
  /// Ends this group if another group of the arena has ended, with that group's error.
  void adopt(std::uint32_t unless_met) noexcept;
  /// Ends the group and throws the error that ended it. Returns if all ranks have met in this phase
  /// meanwhile.
  void fail_phase(Code code, const std::string& why);
  void note_progress(bool inside) noexcept;
  std::string describe(OperationKind kind, std::uint64_t sequence) const;
  /// Returns the progress of all ranks as a text, also of those on other nodes.
  std::string progress_text() const;
  /// Returns until when this rank waits for the other one: longer than `limit` when that one waits
  /// for another node.
  Time limit_for(int other, Time limit) const noexcept;
  Time deadline_from(Time now) const noexcept;

  int at(int rank) const noexcept { return seats_.members[static_cast<std::size_t>(rank)]; }
  int self() const noexcept { return at(rank()); }
  RankLine& line(int rank) const noexcept { return arena_->line(seats_.lane, at(rank)); }
  std::atomic<std::uint64_t>& fate() const noexcept { return line(0).fate; }

  std::shared_ptr<Arena> arena_;
  Seats seats_;
  CallLog calls_;
  std::uint32_t phase_ = 0;  // the last one that this rank published
  std::uint64_t operations_ = 0;
  const Operation* current_ = nullptr;  // while run() runs
  OperationKind kind_{};                // of the last operation, if operations_ is not 0
  std::mutex saying_;                   // guards this rank's Verdict: abort() is for any thread
  bool watch_processes_;
  SimulatedLink link_;
  Numbers numbers_;
  Watcher* watcher_;
  std::uint64_t pid_namespace_ = 0;
  std::mutex looking_;         // guards processes_
  std::vector<Fd> processes_;  // pidfd per rank, opened when first needed
};

}  // namespace troupe::collective::internal
