/// The agent's half of membership: it sends heartbeats, and it ends an agent that is cut off before
/// control may start the agent's actors elsewhere. A plain state machine; Membership is control's
/// half.
///
///     SelfFencing fencing({}, self, session);
///     auto out = fencing.start(now);               // Reconnect: register with epoch 0
///     timer.set(fencing.next_tick());              // on_tick(now)
///     if (!fencing.may_serve(now)) refuse();       // before a call of an actor, and a reply
///
/// *Contact* is the time at which the last answered heartbeat was *sent*. After 3 s without contact
/// the agent asks the voters twice a second whether they hear control and whether it is fenced.
///
/// - The agent is *cut off* when a voter hears control, when a voter says that the agent is fenced,
///   or when fewer than half of the voters answer. A tie goes to the side of the agent beside
///   control. An agent that is cut off refuses actor calls 8 s after contact and exits after 10 s.
/// - Otherwise control is down and the agent is *carried*. It serves while fresh answers of a
///   majority say so, for 60 s at most. When they end, it refuses calls at once and exits 2.5 s
///   later, unless control answers.
/// - An agent that is registered but has no roster yet hosts no actor that could be started
///   elsewhere. It refuses calls 8 s after contact and waits 60 s for control.
/// - An agent that wakes from a long standstill finds its time over and its answers stale. It
///   serves nothing, since may_serve() depends on the clock and not on a tick. It asks control,
///   which may have stood still too. It exits when no answer with its epoch comes within a
///   heartbeat, or within 2.5 s if the connection to control must be made anew. A further
///   standstill gives it this time again, until it has been awake for 10 s past its end. Of a
///   standstill at most 1.5 s count as awake.
#pragma once

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/control/membership.hpp"

#include <deque>
#include <map>
#include <string>
#include <variant>
#include <vector>

namespace troupe::control {

/// Agent -> voters: asks whether they hear control and whether this agent is fenced.
struct AskControl {
  NodeId node;
  Epoch epoch = 0;
  std::uint64_t number = 0;
};
struct ControlAnswer {
  NodeId node;  ///< who answers
  std::uint64_t number = 0;
  bool hears_control = false;
  bool fenced = false;
};

struct SendToControl {
  Heartbeat message;
};
struct SendToPeer {
  NodeId node;
  std::variant<AskControl, ControlAnswer> message;
};
/// Asks the shell to connect to control (again) and to send RegisterNode with this epoch and
/// number. Repeated until `Registered` arrives.
struct Reconnect {
  Epoch epoch = 0;
  std::uint64_t number = 0;
};
/// Asks the shell to kill the workers and end this process now. Comes exactly once.
struct ExitNow {
  std::string why;
};
using SelfFencingEvent = std::variant<SendToControl, SendToPeer, Reconnect, ExitNow>;

struct SelfFencingOptions {
  Duration tick = std::chrono::milliseconds(250);
  Duration heartbeat = std::chrono::seconds(1);
  Duration ask_after = std::chrono::seconds(3);
  Duration ask_interval = std::chrono::milliseconds(500);
  Duration refuse_after = std::chrono::seconds(8);
  Duration exit_after = std::chrono::seconds(10);
  Duration carry_on = std::chrono::seconds(60);
  Duration answer_lasts = std::chrono::milliseconds(1500);  ///< from the sending of the question
  /// Time from the moment at which an agent refuses calls to its exit, if it was carried and is not
  /// any more, got its first roster too late, or stood still and has no connection.
  Duration doubt_for = std::chrono::milliseconds(2500);
  /// Time that a carried agent has to register when a voter hears control again.
  Duration rejoin_within = std::chrono::seconds(10);
};

class SelfFencing {
 public:
  using Out = std::vector<SelfFencingEvent>;
  /// `session`: of this start of the process, as in RegisterNode.
  SelfFencing(SelfFencingOptions options, NodeId self, SessionId session)
      : options_(options), self_(self), session_(session) {}

  /// Call once at the start of the process.
  Out start(Time now);
  /// Ignores a message of an older control than the one that the agent obeys.
  Out on_registered(const Registered& message, Time now);
  Out on_heartbeat_answer(const HeartbeatAnswer& message, Time now);
  Out on_roster(const Roster& message, Time now);
  Out on_fence(const Fence& message, Time now);
  /// Call when control's transport refuses this process: control has declared it dead.
  Out on_refused(const std::string& why, Time now);
  Out on_ask(const AskControl& message, Time now);
  Out on_answer(const ControlAnswer& message, Time now);
  /// Call when the machine has slept; `now` does not count that time. The agent serves nothing
  /// until control answers a heartbeat sent from now on, or a majority of voters answers. The time
  /// until its exit counts only time awake, so that a cluster on one sleeping machine wakes up
  /// whole.
  Out on_slept(Time now);
  /// Call when the connection to control has closed. The agent registers again.
  Out on_closed(Time now);
  Out on_tick(Time now);
  Time next_tick() const noexcept { return last_tick_ + options_.tick; }

  /// Returns whether this node may run actor methods and send their replies now. O(voters) without
  /// contact, else a comparison.
  bool may_serve(Time now) const;
  /// Returns until when may_serve() holds if nothing more happens, as of the last event. It is at
  /// most `refuse_after` after that event. The actors' processes stop at this time even when this
  /// process does not run.
  Time serves_until() const noexcept { return until_; }
  bool has_exited() const noexcept { return exited_; }
  Epoch epoch() const noexcept { return epoch_; }
  Epoch control_epoch() const noexcept { return control_epoch_; }
  /// Returns whether a Roster has arrived.
  bool has_roster() const noexcept { return roster_.version != 0; }
  bool hears_control(Time now) const {
    return registered_ && is_fresh() && now - contact_ < options_.ask_after;
  }

 private:
  struct Answer {
    Time asked{};
    bool hears_control = false, fenced = false;
  };
  /// Returns whether there was contact since the machine slept last.
  bool is_fresh() const noexcept { return contact_ >= woke_; }
  /// Returns whether this node stood still a moment ago, so that control's answer to its question
  /// may still come.
  bool may_prove_itself(Time now) const;
  bool carried(Time now) const;
  void heard(Time sent);
  void reconnect(Out& out, Time now);
  void beat(Out& out, Time now);
  void ask(Out& out, Time now);
  void exit(Out& out, const std::string& why);
  void judge(Out& out, Time now);
  Time reckon_until(Time now) const;
  void say_until(Time now);
  std::string why_fenced(Time now) const;
  void ask_anew(Out& out, Time now);

  SelfFencingOptions options_;
  NodeId self_;
  SessionId session_;
  Epoch epoch_ = 0;
  Epoch control_epoch_ = 0;
  bool registered_ = false;  ///< true from the first `Registered` on, even without a connection
  bool connected_ = false;
  bool exited_ = false;
  Time contact_{};
  Time woke_{};  ///< when the machine woke last, or the agent found that it had stood still
  Roster roster_;
  std::uint64_t sequence_ = 0;
  std::deque<std::pair<std::uint64_t, Time>> beats_;  ///< sent and not yet answered
  std::map<std::uint64_t, Time> registrations_;       ///< sent and not yet answered
  std::uint64_t registration_number_ = 0;
  Time next_beat_{}, next_ask_{}, last_tick_{};
  Time in_time_{};      ///< when judge() last found that this node may serve or has no roster yet
  Time judged_{};       ///< when judge() ran last
  Duration overdue_{};  ///< time awake past the moment at which this node should have exited
  Time until_{};
  struct Standstill {
    Duration length{};
    Time over{};
  } stood_;  ///< the last standstill after which control must answer
  std::map<std::uint64_t, Time> asks_;
  std::uint64_t ask_number_ = 0;
  std::map<NodeId, Answer> answers_;
  /// Set while this agent has had no contact for over exit_after and a voter hears control; since
  /// when.
  std::optional<Time> rejoin_since_;
};

}  // namespace troupe::control
