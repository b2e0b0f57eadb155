/// Coordinator: a group of hosts as the back end `nccl` uses it. Its ranks agree on operations that
/// devices carry out, share their errors, and know how far each rank is.
///
///     coordinator.agree(operation);                      // every rank makes the same one
///     const std::uint64_t sequence = coordinator.sequence();
///     …                                                  // the device moves the data
///     coordinator.note_done(operation.kind, sequence);
///
/// Ranks that share memory meet in each agree(). Ranks on other nodes are compared at the group's
/// next operation of the hosts; until then only a send or receive meets its peer there.
#pragma once

#include "troupe/actors/collective/internal/call_log.hpp"
#include "troupe/actors/collective/internal/operation.hpp"

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

namespace troupe::collective::internal {

class Coordinator : public Communicator {
 public:
  void run(Operation& operation) override = 0;
  std::unique_ptr<Communicator> join_split(const Operation& done, Progress progress) override = 0;
  CallLog* call_log() noexcept override = 0;

  /// Returns when every rank of the operation that shares memory with this one has started the
  /// same, and its input is ready; for a send or receive, when its peer has. Throws as run() does.
  /// The rank counts as inside the operation until note_done().
  virtual void agree(const Operation& operation) = 0;
  /// Records the end of an operation in this rank's progress, unless a later one has begun. Any
  /// thread.
  virtual void note_done(OperationKind kind, std::uint64_t sequence) noexcept = 0;
  /// Returns the number of the operation that was begun last, from 1.
  virtual std::uint64_t sequence() const noexcept = 0;
  /// Makes the next operation number 1.
  virtual void count_anew() noexcept = 0;
  /// Ends the group, unless it has ended, with `why` and the progress of each rank as text. Any
  /// thread; never waits.
  virtual void end(Code code, const std::string& why) noexcept = 0;
  /// Ends the group if the process of a rank is dead, or if another node has ended it; tells other
  /// nodes of an end. Returns whether the group is over. Any thread; never waits.
  virtual bool check_ranks() = 0;
  /// Returns the error that ended the group, as the error of an operation. Precondition: is_over().
  /// Any thread.
  virtual Error error_of(OperationKind kind, std::uint64_t sequence) noexcept = 0;
  /// Returns what texts call a rank of the group.
  virtual std::string name_of_rank(int rank) const = 0;
  /// Returns the end of a sentence on an operation that `limit` ended.
  virtual std::string late_words(Time limit, const Operation& operation) const = 0;

 protected:
  using Communicator::Communicator;
  /// Agrees with the peers of sends and receives. Each rank sends a description of each of them to
  /// the peer, and compares the peer's with its own. A device moves nothing before both ends agree.
  void agree_on_transfers(const Operation& operation);
  /// Carries out these messages on the hosts, as a part of the operation.
  virtual void move(const Operation& operation, const std::vector<Transfers::One>& messages) = 0;
  /// Ends the group and throws the error that ended it.
  [[noreturn]] virtual void fail(Code code, const std::string& why) = 0;

 private:
  /// A rank's description of a send or receive that a device will carry out.
  struct Call {
    std::uint64_t count = 0;
    std::uint32_t type = 0;
    std::uint32_t sends = 0;
  };
  void agree_with_self(const Operation& operation);
  void compare(const Transfers::One& mine, const Call& theirs);
  Call next_call(const Operation& operation, int peer, bool sends);

  std::vector<std::deque<Call>> heard_;  // per rank, its announced calls not matched yet
};

/// Returns what a message has, such as "10 x f32".
std::string words_of_message(std::uint64_t count, std::uint32_t type);

}  // namespace troupe::collective::internal
