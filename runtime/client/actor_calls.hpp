/// The calls of this process to actors: one queue per actor, in caller order. A plain state
/// machine.
///
/// Calls start in the order in which they were made: a call whose argument is not ready holds back
/// the later ones. When an actor dies, a call that its worker had not begun goes to the next
/// incarnation; one that it had begun ends in an error whose outcome is unknown (at most once).
///
/// Invariants: CALL-1 a call is sent at most once to each incarnation, and never after it may have
/// begun elsewhere. CALL-2 order of sending is order of calling.
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
  /// A handle as long as the call is under way, unless nobody has wanted it for a while.
  detail::ObjectHandle lifetime;
  std::uint32_t waiting = 0;            ///< arguments that are not ready
  bool light = false;                   ///< sent plain, with one result
  std::shared_ptr<const Error> doomed;  ///< an argument ended in this error: fails in its turn
  std::uint64_t sequence = 0;
};

class ActorCalls {
 public:
  class Out {
   public:
    virtual ~Out() = default;
    /// Writes the call to the worker's ring and sets call.sequence; false when the ring is full.
    virtual bool send(std::uint64_t worker, ActorCall& call) = 0;
    virtual void watch(ActorId actor) = 0;
    virtual void fail(ActorCall& call, const Error& error) = 0;
  };

  explicit ActorCalls(Out& out) : out_(out) {}
  ActorCalls(const ActorCalls&) = delete;
  ActorCalls& operator=(const ActorCalls&) = delete;

  /// Throws Overloaded at 1 Mi queued calls of the actor; to be asked before anything points at the
  /// next one.
  void check_room(ActorId actor) const;
  /// Queues the call. When this throws, it was not sent, and stays the caller's.
  void submit(std::unique_ptr<ActorCall>&& call);
  /// The worker that would be sent a call whose arguments are ready at once, or 0. Whoever sends it
  /// there hands it in by sent(), before any other input; there is memory for it.
  std::uint64_t open_way(ActorId actor);
  void sent(std::unique_ptr<ActorCall> call) noexcept;
  void argument_ready(ActorCall& call);
  void argument_failed(ActorCall& call, const Error& error);

  void update(const wire::ActorUpdate& update);
  /// This life of the actor is in this process, which is that worker: nobody needs to be asked.
  void lives_here(ActorId actor, std::uint64_t incarnation, std::uint64_t worker);
  /// This process has killed it for good: later calls fail at once, those under way when its
  /// process has ended.
  void killed(ActorId actor);
  /// This process has asked to end its present life. Later calls wait for the next one: the agent
  /// answers each such word by an update `restarting` of the life that it has taken it for.
  void ending_life(ActorId actor);
  /// Calls hold their actor. Where nothing else here does, and nothing holds a result of them, they
  /// do so no longer than kUnwantedSent, or kUnwantedQueued while one of them has not been sent:
  /// their actor ends then, and runs what it has been sent. (A result that was passed to another
  /// process counts as held.) False: no calls are left that may come to that. Linear in the calls.
  bool let_go_of_unwanted(Time now);
  static constexpr Duration kUnwantedSent = std::chrono::seconds(2);
  static constexpr Duration kUnwantedQueued = std::chrono::seconds(10);
  static constexpr Duration kUnwantedLook = std::chrono::milliseconds(500);
  void writable(std::uint64_t worker);
  ActorCall* in_flight(std::uint64_t worker, std::uint64_t sequence);
  /// Its last reply came. The call is the caller's from here on.
  std::unique_ptr<ActorCall> ended(std::uint64_t worker, std::uint64_t sequence);
  /// `started`: the highest sequence that the worker began; its ring was drained before.
  void worker_died(std::uint64_t worker, std::uint64_t started, const Error& reason);
  bool has_worker(std::uint64_t worker) const { return by_worker_.count(worker) != 0; }
  /// Whether a call to the actor that has not ended is to give this result. Linear in those calls.
  bool owes(ActorId actor, const detail::ObjectEntry& result) const;
  /// Why a call waits longer than a method takes.
  struct Delay {
    bool silent = false;  ///< its actor's node says nothing, and is not known to be dead
    /// Else: how the actor's last life ended, and when the next is tried, of steady_now().
    std::shared_ptr<const ErrorInfo> last_end;
    Time retry_at{};
  };
  /// Of the call that is to give this result. Linear in the calls of actors that are so.
  std::optional<Delay> delay_of(const detail::ObjectEntry& result) const;
  std::size_t live() const noexcept { return live_; }

 private:
  struct Peer {
    wire::ActorState state = wire::ActorState::pending;
    std::uint64_t incarnation = 0;
    std::uint64_t worker = 0;
    std::uint64_t last_worker = 0;  ///< the newest index that it was told to be alive under
    /// A life that began elsewhere before the end of this one was heard of: it waits until it is
    /// known which calls this one had begun.
    std::optional<wire::ActorUpdate> next;
    bool full = false;
    std::uint32_t endings = 0;     ///< ending_life() that the agent has not answered
    std::uint64_t ended_life = 0;  ///< no call goes to this one, nor to earlier ones
    Delay delay;
    Time unwanted_since = Time::max();
    std::shared_ptr<const Error> error;
    std::deque<std::unique_ptr<ActorCall>> queue;
    FlightQueue<std::unique_ptr<ActorCall>> in_flight;
  };
  Peer* peer_of(ActorId actor);
  Peer* peer_on(std::uint64_t worker);
  void begin_life(Peer& peer, const wire::ActorUpdate& update);
  void delay(ActorId actor, Peer& peer, Delay delay);
  static bool is_wanted(const Peer& peer);
  void flush(Peer& peer);
  void fail_all(Peer& peer);

  Out& out_;
  std::map<ActorId, Peer> peers_;  ///< which are never forgotten
  std::pair<const ActorId, Peer>* asked_ = nullptr;
  std::map<std::uint64_t, ActorId> by_worker_;
  std::set<ActorId> delayed_;  ///< whose peers have a Delay
  Peer* lately_ = nullptr;     ///< peer_on() looks here first
  std::size_t live_ = 0;
};

}  // namespace troupe::client
