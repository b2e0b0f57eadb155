/// Collective operations of a group of ranks: one interface, several back ends (local.hpp: threads
/// of one process; shm.hpp: processes of one node).
///
///     communicator.allreduce(model.gradients(), Reduce::mean);   // every rank calls it
///     communicator.broadcast(model.parameters(), /*root=*/0);
///
/// Rules:
///  C-1  every rank makes the same calls in the same order with the same sizes; a difference is
///       found and ends the group with InvalidArgument, it never gives a wrong result;
///  C-2  sums run over ranks in ascending order, so every rank gets the same bits, and the same
///       inputs give the same bits on every back end of this kind;
///  C-3  every wait ends: in the result, or in an error. After an error the group is over for all
///       ranks: make a new one. The rank that finds what is wrong says it for all of them, so all
///       end with the same code and the same words: who is missing, and how far each rank has come.
///
/// Errors of every operation: TimedOut (a rank did not come within the timeout), WorkerDied (its
/// process died), Cancelled (some rank aborted or left), InvalidArgument (C-1). What the outputs
/// hold after an error is unspecified.
///
/// A rank that leaves out one of several equal calls is not found there: its next one is taken for
/// it. It is found where calls differ, or at the latest where it has one less than the others.
#pragma once

#include "troupe/runtime/base/error.hpp"
#include "troupe/runtime/base/units.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::collective {

enum class Reduce : std::uint8_t { sum, mean };

/// What a back end is asked to do; `count` is in elements of `type`.
struct Operation {
  enum class Kind : std::uint8_t { barrier, broadcast, allreduce, reduce_scatter, all_gather };
  enum class Type : std::uint8_t { bytes, f32, f64, i64 };
  Kind kind = Kind::barrier;
  Type type = Type::bytes;
  Reduce reduce = Reduce::sum;
  int root = 0;
  const void* in = nullptr;
  void* out = nullptr;
  std::uint64_t count = 0;  ///< of the smaller side: one rank's share in a scatter or gather
};

TROUPE_API std::string_view name_of(Operation::Kind kind) noexcept;

/// How far one rank has come.
struct RankProgress {
  enum class State : std::uint8_t { absent, joined, left };
  State state = State::absent;
  int pid = 0;
  bool stopped = false;  ///< its process stands still (SIGSTOP, a debugger)
  bool inside = false;   ///< in the operation; else after it
  Operation::Kind kind = Operation::Kind::barrier;
  std::uint64_t sequence = 0;  ///< number of the operation, from 1; 0: none yet
};

/// In words, equal ones together: "ranks 0, 2-7 in allreduce #13; rank 1 (process 71, stopped)
/// after allreduce #12".
TROUPE_API std::string text_of(std::span<const RankProgress> ranks);

/// One rank's end of a group. For one thread at a time, but for abort() and progress().
class TROUPE_API Communicator {
 public:
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  /// Leaves the group: ranks that still wait for this one end with Cancelled.
  virtual ~Communicator();

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  /// Longest wait for another rank within one operation; at first the group's (30 s).
  Duration timeout() const noexcept { return timeout_; }
  /// `forever` sets no limit. Throws InvalidArgument for zero and less, which no operation could
  /// meet.
  void set_timeout(Duration timeout);

  /// Replaces data on every rank by the sum (or mean) over ranks.
  void allreduce(std::span<float> data, Reduce reduce = Reduce::sum);
  void allreduce(std::span<double> data, Reduce reduce = Reduce::sum);
  /// Replaces counts on every rank by their sum.
  void allreduce(std::span<std::int64_t> data);

  /// Rank r gets the sum over ranks of part r; in has size() parts as long as out.
  void reduce_scatter(std::span<const float> in, std::span<float> out, Reduce reduce = Reduce::sum);

  /// Every rank gets the parts of all ranks in ascending order; out is size() times as long as in.
  void all_gather(std::span<const float> in, std::span<float> out);
  void all_gather(std::span<const std::byte> in, std::span<std::byte> out);

  /// Copies root's data to every rank.
  void broadcast(std::span<std::byte> data, int root);
  void broadcast(std::span<float> data, int root) { broadcast(std::as_writable_bytes(data), root); }

  /// Returns when every rank has called it.
  void barrier();

  /// Ends the group: every rank's running and later operations throw Cancelled with this reason
  /// (cut at 200 bytes). From any thread; never blocks. The first abort counts.
  virtual void abort(std::string_view reason) noexcept = 0;

  /// Of every rank, index = rank. From any thread; never waits.
  virtual std::vector<RankProgress> progress() const = 0;

 protected:
  /// Throws as set_timeout().
  Communicator(int rank, int size, Duration timeout);
  /// Carries out an operation whose arguments are checked.
  virtual void run(const Operation& operation) = 0;

 private:
  void run_gather(Operation::Type type, const void* in, void* out, std::size_t in_count,
                  std::size_t out_count);
  int rank_;
  int size_;
  Duration timeout_;
};

}  // namespace troupe::collective
