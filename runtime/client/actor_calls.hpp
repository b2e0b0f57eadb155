/// The calls of this process to actors: one queue for each actor, in the order of calling. A
/// plain state machine, driven by ClientEngine.
///
/// Calls start in the order in which they were made: a call whose argument is not ready holds
/// back the later ones. When an actor dies, the calls that its worker had not begun go to the
/// next incarnation. A call that the worker had begun ends in an error with outcome `unknown` (at
/// most once).
///
/// Invariants: CALL-1 a call is sent at most once to each incarnation, and never after it may
/// have begun elsewhere. CALL-2 calls are sent in the order in which they were made.
#pragma once

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/client/flight_queue.hpp"
#include "troupe/runtime/client/free_list.hpp"
#include "troupe/runtime/engine/engine.hpp"
#include "troupe/runtime/wire/messages.hpp"

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace troupe::client {

struct ActorCall final : FromFreeList<ActorCall> {
  ActorId actor;
  detail::Call call;
  detail::SmallVector<detail::ObjectHandle, 1> results;  ///< empty: a tell
  /// A handle of the actor, which keeps it alive during the call. let_go_of_unwanted() may drop
  /// it.
  detail::ObjectHandle lifetime;
  std::uint32_t waiting = 0;  ///< arguments that are not ready
  bool light = false;         ///< sent as a plain call, with one result
  /// Error of an argument. The call fails in its turn.
  std::shared_ptr<const Error> argument_error;
  std::uint64_t sequence = 0;
};

class ActorCalls {
 public:
  class Out {
   public:
    virtual ~Out() = default;
    /// Writes the call to the worker's ring and sets call.sequence; false when the ring is full.
    virtual bool send(ProcessIndex worker, ActorCall& call) = 0;
    virtual void watch(ActorId actor) = 0;
    virtual void fail(ActorCall& call, const Error& error) = 0;
  };

  /// The most calls of this process to one actor that have not ended.
  static constexpr std::size_t kMostCalls = 1 << 20;

  explicit ActorCalls(Out& out, std::size_t most = kMostCalls) : out_(out), most_(most) {}
  ActorCalls(const ActorCalls&) = delete;
  ActorCalls& operator=(const ActorCalls&) = delete;

  /// Throws Overloaded when as many calls to the actor have not ended as may, queued ones and those
  /// that its worker has. Call it before anything points at the next call.
  void check_room(ActorId actor) const;
  /// Queues the call and sends it as soon as possible. When this throws, the call was not sent,
  /// and stays the caller's.
  void submit(std::unique_ptr<ActorCall>&& call);
  /// Returns the worker that would get a call whose arguments are ready, or 0: also when
  /// check_room() would throw. The caller may then write the call to that worker's ring itself. It
  /// must report that with sent() before any other input. Memory for sent() is reserved here.
  ProcessIndex open_way(ActorId actor);
  void sent(std::unique_ptr<ActorCall> call) noexcept;
  void argument_ready(ActorCall& call);
  void argument_failed(ActorCall& call, const Error& error);

  void update(const wire::ActorUpdate& update);
  /// The actor's process cannot be reached now: the calls that wait for it fail. Later calls do
  /// not.
  void fail_queued(ActorId actor, const Error& error);
  /// This life of the actor runs in this process, which is `worker`. The agent need not be asked.
  void lives_here(ActorId actor, std::uint64_t incarnation, ProcessIndex worker);
  /// This process has killed the actor for good. Later calls fail at once; calls in flight fail
  /// when the actor's process has ended.
  void killed(ActorId actor);
  /// This process has asked the agent to end the actor's present life. Later calls wait for the
  /// next life. The agent answers each such request with an update `restarting` that names the
  /// life which it ends.
  void ending_life(ActorId actor);
  /// Drops the actor handles of calls that nobody wants, so that their actor may end. Before its
  /// end the actor still runs the calls that it has received.
  ///
  /// Nobody wants an actor's calls when no other handle of the actor and no handle of a result is
  /// left in this process. (A result that was passed to another process counts as held.) The
  /// handles are dropped after kUnwantedSent, or after kUnwantedQueued while a call is not yet
  /// sent. Returns false when there is no live call. Linear in the calls.
  bool let_go_of_unwanted(Time now);
  static constexpr Duration kUnwantedSent = std::chrono::seconds(2);
  static constexpr Duration kUnwantedQueued = std::chrono::seconds(10);
  static constexpr Duration kUnwantedLook = std::chrono::milliseconds(500);
  void writable(ProcessIndex worker);
  ActorCall* in_flight(ProcessIndex worker, std::uint64_t sequence);
  /// The last reply to a call has come. Returns the call, which is the caller's from here on.
  std::unique_ptr<ActorCall> ended(ProcessIndex worker, std::uint64_t sequence);
  /// The worker died. `started` is the highest sequence that it began; the caller has drained its
  /// ring.
  void worker_died(ProcessIndex worker, std::uint64_t started, const Error& reason);
  bool has_worker(ProcessIndex worker) const { return by_worker_.count(worker) != 0; }
  /// Returns whether an unfinished call to the actor is to produce this result. Linear in those
  /// calls.
  bool owes(ActorId actor, const detail::ObjectEntry& result) const;
  /// The reason why a call waits longer than its method takes.
  struct Delay {
    bool silent = false;  ///< the actor's node is silent, and not known to be dead
    /// Otherwise: how the actor's last life ended, and when the next one is tried (steady_now()
    /// time).
    std::shared_ptr<const ErrorInfo> last_end;
    Time retry_at{};
  };
  /// Returns the delay of the call that is to produce this result. Linear in the calls of delayed
  /// actors.
  std::optional<Delay> delay_of(const detail::ObjectEntry& result) const;
  /// An unfinished call, and what its actor does as far as this process knows.
  struct Place {
    const ActorCall* call = nullptr;
    wire::ActorState state = wire::ActorState::pending;
    bool sent = false;       ///< its actor's process has it
    std::size_t before = 0;  ///< calls of this process to the actor that were made earlier
  };
  /// Returns the place of the call that is to produce this result. Linear in the calls, of which it
  /// looks at kMostLooked.
  std::optional<Place> place_of(const detail::ObjectEntry& result) const;
  static constexpr std::size_t kMostLooked = 1 << 16;
  /// Calls look_at(Place) with at most `most` calls that have not ended.
  template <class F>
  void each(std::size_t most, F look_at) const {
    for (const auto& [actor, peer] : peers_) {
      std::size_t before = 0;
      for (; before < peer.in_flight.size() && most > 0; ++before, --most)
        look_at(Place{peer.in_flight[before].get(), peer.state, true, before});
      for (std::size_t i = 0; i < peer.queue.size() && most > 0; ++i, ++before, --most)
        look_at(Place{peer.queue[i].get(), peer.state, false, before});
    }
  }
  /// Calls look_at(ActorId, std::size_t) with each actor and how many calls to it have not ended.
  template <class F>
  void each_queue(F look_at) const {
    for (const auto& [actor, peer] : peers_)
      look_at(actor, peer.in_flight.size() + peer.queue.size());
  }
  std::size_t live() const noexcept { return live_; }

 private:
  struct Peer {
    wire::ActorState state = wire::ActorState::pending;
    std::uint64_t incarnation = 0;
    ProcessIndex worker;
    ProcessIndex last_worker;  ///< the newest worker index of an `alive` update
    /// The update of a next life that arrived before this life's end. It waits until
    /// worker_died() says which calls this life had begun.
    std::optional<wire::ActorUpdate> next;
    bool full = false;
    std::uint32_t endings = 0;     ///< ending_life() requests without an answer
    std::uint64_t ended_life = 0;  ///< the latest life that must get no more calls
    Delay delay;
    Time unwanted_since = Time::max();
    std::shared_ptr<const Error> error;
    std::deque<std::unique_ptr<ActorCall>> queue;
    FlightQueue<std::unique_ptr<ActorCall>> in_flight;
  };
  Peer* peer_of(ActorId actor);
  Peer* peer_on(ProcessIndex worker);
  void begin_life(Peer& peer, const wire::ActorUpdate& update);
  void delay(ActorId actor, Peer& peer, Delay delay);
  static bool is_wanted(const Peer& peer);
  void flush(Peer& peer);
  void fail_all(Peer& peer, const Error& error);

  Out& out_;
  const std::size_t most_;
  std::map<ActorId, Peer> peers_;  ///< never erased
  /// The cache of peer_of().
  std::pair<const ActorId, Peer>* asked_ = nullptr;
  std::map<ProcessIndex, ActorId> by_worker_;
  std::set<ActorId> delayed_;  ///< actors whose peers have a Delay
  Peer* lately_ = nullptr;     ///< cache of peer_on()
  std::size_t live_ = 0;
};

}  // namespace troupe::client
