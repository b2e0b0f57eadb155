/// All communicators of NCCL that one rank has on its device: calls one after another, looks after
/// the operations under way, and aborts all of them together.
#pragma once

#include "troupe/actors/collective/internal/flight.hpp"
#include "troupe/actors/collective/internal/rank.hpp"
#include "troupe/actors/collective/nccl/internal/library.hpp"
#include "troupe/runtime/base/signal_masked_thread.hpp"

#include <condition_variable>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace troupe::collective::nccl {

using Control = collective::internal::ArenaCommunicator;
using collective::internal::Flight;
using Request = collective::internal::Operation;
class NcclCommunicator;

/// One communicator. NCCL may write `comm` until it is ready, so it stays where it is.
struct Entry {
  Comm comm = nullptr;
  Control* control = nullptr;  ///< speaks for its ranks; outlives the entry
};

/// Calls of NCCL are made under one lock, and none of them waits: NCCL is non-blocking.
class Comms final : public collective::internal::Carrier {
 public:
  /// An operation that the device has not done yet.
  struct Under {
    std::shared_ptr<Flight> flight;
    NcclCommunicator* of = nullptr;
    std::uint64_t sequence = 0;
    Time limit{};
  };
  Comms(const Library& library, Duration abort_within);
  Comms(const Comms&) = delete;
  Comms& operator=(const Comms&) = delete;
  ~Comms() override;

  const Library& library() const noexcept { return nccl_; }
  /// A new communicator; returns when NCCL has it ready. Throws as call() does.
  Entry& join(Control& control, const UniqueId& id, const Request& request);
  /// Every rank of the parent calls it; null for those without a color.
  Entry* split(Entry& parent, const Request& request);
  void speak_for(Entry& entry, Control& control);
  /// Makes calls of NCCL, and returns when what they enqueue is in the device's queue. Throws what
  /// ends the group: an error of NCCL, or the operation's deadline.
  void call(Entry& entry, const Request& request, const std::function<Result()>& calls);
  /// From now on this settles the operation.
  void add(Under under);
  /// Waits for what the communicator has asked for.
  void drain(const NcclCommunicator& of);
  /// The same when a device alone waits for it. False, at once, when somebody has the Work of an
  /// operation that has not ended.
  bool drain_device(const NcclCommunicator& of);
  /// Gives the communicator back; aborts all when the group is over.
  void leave(Entry& entry);
  /// Precondition: the group is over. Aborts all communicators, then settles what was under way.
  void finish() noexcept;
  /// Ends the group and all of this, and throws what ended it.
  [[noreturn]] void fail(Control& control, const Request& request, Code code,
                         const std::string& why);

  void lower(const Flight& last, Time to) override;
  void abort(const Flight& flight, std::string_view reason) noexcept override;
  bool await(const Flight& flight, Time until) noexcept override;

 private:
  struct Trouble;
  /// Operations of the communicator that have not ended.
  std::vector<std::shared_ptr<Flight>> flights_of(const NcclCommunicator& of);
  void watch();
  /// Settles what is done, and ends what must end.
  void poll() noexcept;
  void settle_done();
  Trouble find_trouble();
  static void end_late(const Under& under, Time limit);
  void look_for_errors(Trouble& trouble);
  void await_ready(Entry& entry, const Request& request, Time deadline);
  Result state_of(const Entry& entry);
  void abort_all() noexcept;
  void settle_all() noexcept;
  void close(Entry& entry);
  void stop() noexcept;
  [[noreturn]] void die() const noexcept;

  const Library& nccl_;
  Duration abort_within_;
  std::mutex calls_;  // of NCCL, and all below
  std::condition_variable changed_;
  std::list<Entry> entries_;
  std::vector<Under> under_;
  Time asked_{}, looked_{};  // for what must end; for deaths
  bool stopping_ = false, over_ = false;
  SignalMaskedThread watcher_;
  std::mutex ending_;  // of the two below
  std::condition_variable ended_changed_;
  bool ended_ = false;
  SignalMaskedThread aborter_;
};

}  // namespace troupe::collective::nccl
