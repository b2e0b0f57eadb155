/// The agent's half of membership: heartbeats, and the rule by which an agent that is cut off ends
/// itself before anybody may start its actors elsewhere. A plain state machine.
///
///     SelfFencing fencing({}, self, session);
///     auto out = fencing.start(now);               // Reconnect: register with epoch 0
///     timer.set(fencing.next_tick());              // on_tick(now)
///     if (!fencing.may_serve(now)) refuse();       // before a call of an actor, and a reply
///
/// Contact is the time at which the last answered heartbeat was *sent*. At 3 s without contact the
/// voters are asked twice a second. Cut off, when a peer hears control or says that we are
/// fenced, or when fewer than half of the voters answer (a tie goes to the side of the agent
/// beside control): actor calls are refused from 8 s and the agent exits at 10 s. Otherwise control
/// is down: carry on, for 60 s at most, while fresh answers of a majority keep saying so; when they
/// do not any more, refuse, and exit 2.5 s later unless control has answered. Who was registered
/// and has no roster yet hosts no actor that could be started elsewhere: it refuses from 8 s, and
/// waits for control for 60 s. An agent that wakes from a long stop finds its time over and its
/// answers stale: it serves nothing, since may_serve() depends on the clock and not on a tick. It
/// asks control, which may have stood still with it, and exits when no answer with its epoch comes
/// within a heartbeat, or within 2.5 s where the connection to control has to be made anew. A
/// further stop gives it this time again, until it has been awake for 10 s past its end; a stop
/// counts as 1.5 s of that.
#pragma once

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/control/membership.hpp"

#include <deque>
#include <map>
#include <string>
#include <variant>
#include <vector>

namespace troupe::control {

/// Agent -> voters: do you hear control, and are we fenced?
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
/// Connect to control (again) and send RegisterNode with this epoch and number; repeated until
/// registered.
struct Reconnect {
  Epoch epoch = 0;
  std::uint64_t number = 0;
};
/// End this process now, workers first killed; exactly once.
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
  /// Who was carried on and is not any more refuses at once, and exits after this; so does who got
  /// its first roster too late, and who stood still and has no connection.
  Duration doubt_for = std::chrono::milliseconds(2500);
  /// Carrying on, and a peer hears control again: time to register before we exit.
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
  /// Ignored from an older control.
  Out on_registered(const Registered& message, Time now);
  Out on_heartbeat_answer(const HeartbeatAnswer& message, Time now);
  Out on_roster(const Roster& message, Time now);
  Out on_fence(const Fence& message, Time now);
  /// Control's end of the connection takes nothing of this process any more.
  Out on_refused(const std::string& why, Time now);
  Out on_ask(const AskControl& message, Time now);
  Out on_answer(const ControlAnswer& message, Time now);
  /// The machine has slept, and `now` does not say for how long. Nothing is served until control
  /// answers what is sent from now on, or others answer for it; when to exit is reckoned by time
  /// awake: a cluster on one machine that sleeps wakes up whole.
  Out on_slept(Time now);
  /// The connection to control closed: register again.
  Out on_closed(Time now);
  Out on_tick(Time now);
  Time next_tick() const noexcept { return last_tick_ + options_.tick; }

  /// Whether this node may run actor methods and send their replies at this moment. O(voters) only
  /// without contact, else a comparison.
  bool may_serve(Time now) const;
  /// Until when that is so if nothing more happens, as of the last event, and never more than
  /// `refuse_after` after it; for those who must stop when this process does not run.
  Time serves_until() const noexcept { return until_; }
  bool has_exited() const noexcept { return exited_; }
  Epoch epoch() const noexcept { return epoch_; }
  Epoch control_epoch() const noexcept { return control_epoch_; }
  /// Since it was registered first, control has said who votes.
  bool has_roster() const noexcept { return roster_.version != 0; }
  bool hears_control(Time now) const {
    return registered_ && is_fresh() && now - contact_ < options_.ask_after;
  }

 private:
  struct Answer {
    Time asked{};
    bool hears_control = false, fenced = false;
  };
  /// The contact is one since the machine slept last.
  bool is_fresh() const noexcept { return contact_ >= woke_; }
  /// Whether this node stood still, and control still has time to answer what it asks since.
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
  bool registered_ = false;  ///< ever
  bool connected_ = false;
  bool exited_ = false;
  Time contact_{};
  Time woke_{};  ///< since the machine slept last
  Roster roster_;
  std::uint64_t sequence_ = 0;
  std::deque<std::pair<std::uint64_t, Time>> beats_;  ///< sent and not yet answered
  std::map<std::uint64_t, Time> registrations_;       ///< likewise
  std::uint64_t registration_number_ = 0;
  Time next_beat_{}, next_ask_{}, last_tick_{};
  Time in_time_{};      ///< when it was seen last that this node may serve, or has no roster yet
  Time judged_{};       ///< when that was looked at last
  Duration overdue_{};  ///< time awake past this node's end, since the contact
  Time until_{};
  struct Standstill {
    Duration length{};
    Time over{};
  } stood_;  ///< the last one after which control must answer
  std::map<std::uint64_t, Time> asks_;
  std::uint64_t ask_number_ = 0;
  std::map<NodeId, Answer> answers_;
  /// Since when, without contact for over exit_after, a peer has been hearing control.
  std::optional<Time> rejoin_since_;
};

}  // namespace troupe::control
