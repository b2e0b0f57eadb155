/// One rank's way through an arena.
#pragma once

#include "troupe/actors/collective/internal/arena.hpp"
#include "troupe/actors/collective/internal/operation.hpp"
#include "troupe/actors/collective/local/link.hpp"

#include <deque>
#include <mutex>
#include <string>
#include <vector>

namespace troupe::collective::internal {

/// Which ranks of the arena a group has, and where.
struct Seats {
  std::uint32_t lane = 0;
  std::vector<int> members;  ///< ranks of the arena, index = rank of the group
};

class ArenaCommunicator final : public Communicator {
 public:
  /// How a rank joins.
  struct How {
    Duration timeout{};
    bool watch_processes = false;  ///< look for the death of others' processes while waiting
    Progress progress = Progress::caller;
    SimulatedLink link = {};
  };
  /// Takes the rank's place; throws InvalidArgument when it is taken.
  ArenaCommunicator(std::shared_ptr<Arena> arena, Seats seats, int rank, const How& how);
  ~ArenaCommunicator() override;
  void abort(std::string_view reason) noexcept override;
  bool is_over() const noexcept override;
  bool was_given_up() const noexcept override;
  std::vector<RankProgress> progress() const override;
  void run(Operation& operation) override;
  std::unique_ptr<Communicator> join_split(const Operation& done, Progress progress) override;

  // For back ends whose devices move the data, while this communicator speaks for their ranks.
  /// Returns when every rank that the operation concerns has asked for the same, and its input is
  /// ready; throws as run() does. The rank is inside the operation until note_done().
  void agree(const Operation& operation);
  /// The operation has ended; nothing when another one was begun since. From any thread.
  void note_done(OperationKind kind, std::uint64_t sequence) noexcept;
  /// Of the operation that was begun last, from 1.
  std::uint64_t sequence() const noexcept { return operations_; }
  /// The next operation is the first.
  void count_anew() noexcept;
  /// Ends the group, unless it has ended; says how far each rank is. From any thread.
  void end(Code code, const std::string& why) noexcept;
  /// The same when the process of a rank is dead; whether the group is over.
  bool end_if_dead();
  /// What ended the group, as an operation's error. Precondition: is_over(). From any thread.
  Error error_of(OperationKind kind, std::uint64_t sequence) noexcept;
  std::string name_of_rank(int rank) const;
  int rank_of_whole() const noexcept { return self(); }
  std::string late_words(Time limit, const Operation& operation) const;

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
  std::byte* my_slot() noexcept { return arena_->slot(seats_.lane, self(), phase_ + 1); }
  std::byte* slot_of(int other) noexcept { return arena_->slot(seats_.lane, at(other), phase_); }

  // transfers.cpp
  class Stream;
  void transfer(const Operation& operation);
  bool advance(Stream& stream);
  bool can_any(const std::vector<Stream>& streams) const noexcept;
  void rest(const std::vector<Stream>& streams, Time deadline);
  void check_peers(const std::vector<Stream>& streams, Time deadline);
  void ring(int other) noexcept;
  /// What a rank says of a send or a receive that a device carries out.
  struct Call {
    std::uint64_t count = 0;
    std::uint32_t type = 0;
    std::uint32_t sends = 0;
  };
  void agree_on_transfers(const Operation& operation);
  void agree_with_self(const Operation& operation);
  void compare(const Transfers::One& mine, const Call& theirs);
  Call next_call(int peer, bool sends);
  void move(const std::vector<Transfers::One>& messages);

  // rank.cpp
  /// What begins every operation.
  void begin(const Operation& operation);
  /// Steps 2 and 3 of a phase; the rank's slot is written. offset and part tell phases apart.
  void meet(std::uint64_t offset, std::uint8_t part = 0);
  void await_input();
  void simulate_link() const;
  void wait_for(int other, Time deadline);
  bool arrived(int other) noexcept;
  /// Whether some rank has found all of them arrived in this phase.
  bool is_met() const noexcept;
  bool has_ended() const noexcept;
  /// All have arrived: says so, or throws when the group had ended before.
  void settle();
  /// Throws when some rank cannot come any more.
  void check();
  void fail_late(Time deadline);  ///< returns when the last one came at the last moment
  /// All have arrived: throws unless they said the same.
  void compare();
  bool has_left(int other) noexcept;
  bool process_is_dead(int other);
  std::string death_of(int other) const;
  bool shares_pids(const RankLine& line) const noexcept;
  /// Says for all ranks what ended the group, unless somebody has, or all have met in phase
  /// `unless_met` (0: whatever they have met).
  void end_group(Code code, std::string_view verdict, std::uint32_t unless_met,
                 bool given_up = false) noexcept;
  /// Ends this group, too, when another one of the arena has ended.
  void adopt(std::uint32_t unless_met) noexcept;
  /// Ends the group and throws what ended it; returns when all have met in this phase after all.
  void fail_phase(Code code, const std::string& why);
  /// The same, whatever was met.
  [[noreturn]] void fail(Code code, const std::string& why);
  [[noreturn]] void throw_aborted();
  void note_progress(bool inside) noexcept;
  static std::string describe(OperationKind kind, std::uint64_t sequence, int rank, int size);
  Time deadline_from(Time now) const noexcept;

  int at(int rank) const noexcept { return seats_.members[static_cast<std::size_t>(rank)]; }
  int self() const noexcept { return at(rank()); }
  RankLine& line(int rank) const noexcept { return arena_->line(seats_.lane, at(rank)); }
  std::atomic<std::uint64_t>& fate() const noexcept { return line(0).fate; }

  std::shared_ptr<Arena> arena_;
  Seats seats_;
  std::uint32_t phase_ = 0;  // last one met
  std::uint64_t operations_ = 0;
  const Operation* current_ = nullptr;  // while run() runs
  OperationKind kind_{};                // of the last one, once operations_ is not 0
  std::mutex saying_;                   // the rank's verdict: abort() comes from any thread
  bool watch_processes_;
  SimulatedLink link_;
  std::uint64_t pid_namespace_ = 0;
  std::mutex looking_;                   // at processes_
  std::vector<Fd> processes_;            // pidfd per rank, opened when first needed
  std::vector<std::deque<Call>> heard_;  // of each rank, and not matched yet
};

}  // namespace troupe::collective::internal
