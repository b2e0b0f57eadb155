/// Collective operations of a group of ranks: one interface, several back ends (local/: threads of
/// one process; shm/: processes of one node; nodes/: processes of several nodes).
///
///     communicator.all_reduce(model.gradients(), Reduce::mean).wait();   // every rank calls it
///     communicator.broadcast(model.parameters(), /*root=*/0).wait();
///     Work sent = communicator.send(activations, /*to=*/rank + 1);
///
/// Rules:
///  COLL-1  Every rank makes the same calls in the same order with the same sizes, and sends match
///          receives. A difference ends the group with InvalidArgument; it never gives a wrong
///          result. Where a program names its calls (call.hpp), the error names those.
///  COLL-2  Sums run over ranks in ascending order. So every rank gets the same bits, and the same
///          inputs give the same bits on every back end of this kind. Subnormal numbers count as
///          zero.
///  COLL-3  Every wait ends, in the result or in an error. After an error the group, the group that
///          it was split from and all of their splits are over for all ranks: make a new one. The
///          rank that finds the fault records it for all ranks. So all end with the same code and
///          text, which names the missing ranks and how far each rank has come. Ranks on different
///          nodes have one code and one named rank; their texts may differ.
///  COLL-6  The operations of a communicator run in the order of the calls. Only those of one
///          group() run side by side.
///
/// Work::wait() throws the errors of operations: TimedOut (a rank did not come within the timeout),
/// WorkerDied (its process died), Cancelled (a rank aborted or left), InvalidArgument (COLL-1). The
/// contents of outputs after an error are unspecified. A call with arguments that are wrong by
/// themselves throws InvalidArgument at once, and the group goes on.
///
/// Limit: a rank that leaves out one of several equal calls is not detected there, since its next
/// call takes the place of the missing one. It is detected where calls differ, or at the latest
/// where it has one call less than the others.
#pragma once

#include "troupe/actors/collective/traffic.hpp"
#include "troupe/actors/collective/work.hpp"
#include "troupe/kernels/device.hpp"
#include "troupe/runtime/base/error.hpp"
#include "troupe/runtime/base/units.hpp"

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe::collective {

using kernels::Buffer;
using kernels::ConstBuffer;
using kernels::DType;
using kernels::Event;

/// The reductions. Sums and means of 16-bit numbers are made in f32 and rounded once. Sums of
/// integers wrap; a mean of integers is refused. The minimum and the maximum of values with a NaN
/// among them is a NaN.
enum class Reduce : std::uint8_t { sum, mean, max, min };

/// Where the operations of a communicator run.
enum class Progress : std::uint8_t {
  /// On the calling thread: a call returns when its operation has ended, and only the timeout
  /// limits it. A send may wait for its receiver.
  caller,
  /// On a thread of the communicator, with signals blocked: a call returns at once.
  thread,
};

enum class OperationKind : std::uint8_t {
  barrier,
  broadcast,
  all_reduce,
  reduce_scatter,
  all_gather,
  split,
  send,
  receive,
  exchange,
  group,
};
TROUPE_API std::string_view name_of(OperationKind kind) noexcept;

/// How far one rank has come.
struct RankProgress {
  enum class State : std::uint8_t { absent, joined, left };
  State state = State::absent;
  int pid = 0;
  bool stopped = false;  ///< its process is stopped (SIGSTOP, a debugger)
  bool inside = false;   ///< in the operation; else after it
  OperationKind kind = OperationKind::barrier;
  std::uint64_t sequence = 0;  ///< number of the operation, from 1; 0: none yet
};

/// Returns the progress as text, with equal ranks together: "ranks 0, 2-7 in all_reduce #13; rank 1
/// (process 71, stopped) after all_reduce #12".
TROUPE_API std::string text_of(std::span<const RankProgress> ranks);

/// Options of an operation.
struct Terms {
  Event after = {};  ///< the operation begins after it; the wait is limited by the timeout too
  Purpose purpose = Purpose::payload;
  std::int64_t padding = 0;  ///< elements of the larger side that are no payload
};

/// A list of sends and receives for Communicator::group. Those between two ranks in one direction
/// run in their order, all others side by side.
class TROUPE_API Transfers {
 public:
  struct One {
    bool sends = false;
    int peer = 0;
    DType type = DType::u8;
    std::int64_t count = 0;
    const void* from = nullptr;
    void* to = nullptr;
  };
  void send(ConstBuffer data, int to);
  void receive(Buffer data, int from);
  const std::vector<One>& all() const noexcept { return all_; }

 private:
  std::vector<One> all_;
};

namespace internal {
struct Operation;
class CallLog;
class FlightQueue;
}  // namespace internal

/// One rank's end of a group. One thread at a time may use it, except for abort(), is_over(),
/// progress() and traffic(), which any thread may call.
class TROUPE_API Communicator {
 public:
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  /// Leaves the group: ranks that still wait for this one end with Cancelled. First it waits for
  /// the operations that Work::wait(device) has left to a device, each within its timeout; only the
  /// other ranks learn of an error in them. Any other operation that has not ended ends the group.
  virtual ~Communicator();

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  /// Returns the longest wait for another rank within one operation. It begins with the group's (30
  /// s).
  Duration timeout() const noexcept { return timeout_.load(std::memory_order_relaxed); }
  /// Sets the longest wait; `forever` sets no limit. Throws InvalidArgument for zero and less.
  void set_timeout(Duration timeout);

  /// Replaces `data` on every rank by the reduction of all ranks' data, element by element.
  Work all_reduce(Buffer data, Reduce reduce = Reduce::sum, const Terms& terms = {});
  /// Gives rank r part r of the reduction of all ranks' `in`. `in` has size() parts as long as
  /// `out`. `out` may be this rank's part of `in`.
  Work reduce_scatter(ConstBuffer in, Buffer out, Reduce reduce = Reduce::sum,
                      const Terms& terms = {});
  /// Gives every rank the parts of all ranks, in ascending order. `out` is size() times as long as
  /// `in`. `in` may be this rank's part of `out`.
  Work all_gather(ConstBuffer in, Buffer out, const Terms& terms = {});
  /// Copies root's data to every rank.
  Work broadcast(Buffer data, int root, const Terms& terms = {});

  /// Sends to one rank, which must receive as many elements of the same type. Messages from one
  /// rank to another arrive in the order of their sends. A send is done when its memory may be
  /// reused, perhaps before the receiver has the message.
  Work send(ConstBuffer data, int to, const Terms& terms = {});
  Work receive(Buffer data, int from, const Terms& terms = {});
  /// Sends and receives side by side, so that two neighbours may call it at the same time without a
  /// deadlock.
  Work exchange(ConstBuffer out, int to, Buffer in, int from, const Terms& terms = {});
  /// Runs the sends and receives that `calls(Transfers&)` adds to its argument, side by side.
  template <class F>
  Work group(F&& calls, const Terms& terms = {}) {
    Transfers transfers;
    std::forward<F>(calls)(transfers);
    return transfer(OperationKind::group, transfers, terms);
  }

  /// Returns when every rank has called it; throws as wait() does.
  void barrier();

  /// Makes a group of the ranks that give the same color, in the order of (key, rank here). Every
  /// rank calls it, and it blocks. Returns nullptr for a negative color. Errors: NoSpace, on all
  /// ranks, when the group has used up its splits; the group goes on. The number of splits is
  /// fixed, counts those of splits, and does not grow when a split ends.
  std::unique_ptr<Communicator> split(int color, int key, Progress progress = Progress::caller);

  /// Ends the group and the groups that COLL-3 names: every rank's running and later operations end
  /// in Cancelled with this reason (cut at 200 bytes). Any thread may call it; it never blocks.
  /// Only the first abort has an effect.
  virtual void abort(std::string_view reason) noexcept = 0;

  /// Returns whether an error on any rank has ended this group or another that COLL-3 names. Any
  /// thread; never waits.
  virtual bool is_over() const noexcept = 0;
  /// Returns whether the group is over because of this rank: it called abort(), or left an
  /// operation that had not ended, as an exception does that unwinds the stack.
  virtual bool was_given_up() const noexcept = 0;

  /// Returns the progress of every rank, index = rank. Any thread; never waits.
  virtual std::vector<RankProgress> progress() const = 0;

  /// Returns the traffic of this rank's operations that are done. Any thread.
  Traffic traffic() const noexcept;

 protected:
  friend class Call;
  /// Returns the calls of this rank; null where a back end has none.
  virtual internal::CallLog* call_log() noexcept { return nullptr; }
  /// Throws as set_timeout().
  Communicator(int rank, int size, Duration timeout);
  /// Carries out an operation whose arguments are checked, on one thread at a time.
  virtual void run(internal::Operation& operation) = 0;
  /// Carries out and settles an operation, or begins it: a back end that settles it later sets
  /// Flight::carrier. Called when the communicator has no thread.
  virtual void launch(const std::shared_ptr<internal::Flight>& flight) noexcept;
  /// Adds the bytes of an operation to the traffic.
  void count(const internal::Operation& operation) noexcept;
  virtual std::unique_ptr<Communicator> join_split(const internal::Operation& done,
                                                   Progress progress) = 0;
  /// Starts the communicator's thread, for Progress::thread. A back end calls it at the end of its
  /// constructor, and stop() first in its destructor: after stop() run() is not called any more.
  void start(Progress progress);
  void stop() noexcept;

 private:
  Work transfer(OperationKind kind, const Transfers& transfers, const Terms& terms);
  Work submit(internal::Operation operation);
  void carry_out(internal::Flight& flight) noexcept;

  int rank_;
  int size_;
  std::atomic<Duration> timeout_;
  std::shared_ptr<internal::FlightQueue> queue_;         // null for Progress::caller
  std::array<std::atomic<std::uint64_t>, 8> traffic_{};  // in 1/size() bytes
};

}  // namespace troupe::collective
