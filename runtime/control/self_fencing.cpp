#include "troupe/runtime/control/self_fencing.hpp"

#include "troupe/runtime/base/buggify.hpp"

#include <algorithm>
#include <utility>

namespace troupe::control {

SelfFencing::Out SelfFencing::start(Time now) {
  Out out;
  last_tick_ = judged_ = now;
  reconnect(out, now);
  return out;
}

void SelfFencing::reconnect(Out& out, Time now) {
  next_beat_ = now + options_.heartbeat;
  registrations_[++registration_number_] = now;
  if (registrations_.size() > 256) registrations_.erase(registrations_.begin());
  out.emplace_back(Reconnect{epoch_, registration_number_});
}

/// Takes note that control has answered a message that was sent at this time.
void SelfFencing::heard(Time sent) {
  if (sent <= contact_) return;
  contact_ = sent;
  overdue_ = {};
}

SelfFencing::Out SelfFencing::on_registered(const Registered& message, Time now) {
  Out out;
  if (message.session != session_) return out;  // it answers an earlier process of this node
  const auto sent = registrations_.find(message.number);
  if (exited_ || message.control_epoch < control_epoch_ || sent == registrations_.end()) return out;
  control_epoch_ = message.control_epoch;
  if (epoch_ != 0 && message.epoch != epoch_) {
    exit(out, "control gave this node another epoch");
    return out;
  }
  epoch_ = message.epoch;
  registered_ = connected_ = true;
  heard(sent->second);
  registrations_.erase(registrations_.begin(), std::next(sent));
  // An answer to an old request proves that control is back, not that it heard this node in time.
  // The voters' answers still count until a fresh answer of control comes.
  if (hears_control(now)) {
    rejoin_since_.reset();
    answers_.clear();
  }
  beats_.clear();
  next_beat_ = now;
  judge(out, now);
  if (!exited_) beat(out, now);
  return out;
}

SelfFencing::Out SelfFencing::on_heartbeat_answer(const HeartbeatAnswer& message, Time now) {
  Out out;
  if (exited_ || message.control_epoch < control_epoch_) return out;
  if (message.control_epoch > control_epoch_) {
    control_epoch_ = message.control_epoch;
    connected_ = false;
    reconnect(out, now);  // this control has started since and knows the node from its store only
  }
  while (!beats_.empty() && beats_.front().first <= message.sequence) {
    if (beats_.front().first == message.sequence) heard(beats_.front().second);
    beats_.pop_front();
  }
  if (hears_control(now)) {
    rejoin_since_.reset();
    answers_.clear();
  }
  judge(out, now);
  return out;
}

SelfFencing::Out SelfFencing::on_roster(const Roster& message, Time now) {
  Out out;
  judge(out, now);  // by the old voters first: new ones must not revive an agent whose time is over
  if (exited_ || message.version <= roster_.version) return out;
  roster_ = message;
  say_until(now);
  if (connected_) {  // the heartbeat names the version: it is the promise that control waits for
    next_beat_ = now;
    beat(out, now);
  }
  return out;
}

SelfFencing::Out SelfFencing::on_fence(const Fence& message, Time) {
  Out out;
  if (epoch_ != 0 && message.epoch == epoch_)  // else it is for an earlier process of this node
    exit(out, "control has declared this node dead: " + message.why);
  return out;
}

/// An agent with epoch 0 may be refused too: a control that dies before it sends `Registered`
/// leaves a record of the node, and the next control waits for the node and declares it dead.
SelfFencing::Out SelfFencing::on_refused(const std::string& why, Time) {
  Out out;
  exit(out, std::string("control has declared this node dead") +
                (epoch_ == 0 ? " before it could hear that it was a member: " : ": ") + why);
  return out;
}

SelfFencing::Out SelfFencing::on_slept(Time now) {
  Out out;
  if (exited_) return out;
  judge(out, now);
  if (!exited_) ask_anew(out, now);
  return out;
}

/// Drops all contact and answers of before, and asks control and the voters at once.
void SelfFencing::ask_anew(Out& out, Time now) {
  woke_ = now;
  answers_.clear();
  asks_.clear();
  next_beat_ = next_ask_ = now;
  say_until(now);
  if (connected_)
    beat(out, now);
  else
    reconnect(out, now);
}

SelfFencing::Out SelfFencing::on_closed(Time now) {
  Out out;
  if (exited_) return out;
  connected_ = false;
  reconnect(out, now);
  return out;
}

SelfFencing::Out SelfFencing::on_ask(const AskControl& message, Time now) {
  Out out;
  judge(out, now);
  // Without a roster this process has promised nothing, so its answer must not count.
  if (exited_ || (roster_.version == 0 && !TROUPE_MUTANT("fencing.votes_without_roster")))
    return out;
  ControlAnswer answer;
  answer.node = self_;
  answer.number = message.number;
  answer.hears_control = hears_control(now);
  answer.fenced = std::binary_search(roster_.fenced.begin(), roster_.fenced.end(),
                                     std::pair<NodeId, Epoch>(message.node, message.epoch));
  out.emplace_back(SendToPeer{message.node, answer});
  return out;
}

SelfFencing::Out SelfFencing::on_answer(const ControlAnswer& message, Time now) {
  Out out;
  judge(out, now);  // before the answer counts: it must not revive an agent whose time is over
  const auto asked = asks_.find(message.number);
  if (exited_ || asked == asks_.end()) return out;
  Answer& answer = answers_[message.node];
  if (asked->second >= answer.asked)
    answer = {asked->second, message.hears_control, message.fenced};
  return out;
}

/// Returns whether a majority of the voters says that control is gone and this node is not fenced.
bool SelfFencing::carried(Time now) const {
  if (now - contact_ >= options_.carry_on) return false;
  std::size_t count = 0;
  bool with_control_host = false;
  for (const NodeId voter : roster_.voters) {
    bool counts = voter == self_;
    if (!counts) {
      const auto answer = answers_.find(voter);
      if (answer == answers_.end() || now - answer->second.asked >= options_.answer_lasts) continue;
      if (answer->second.fenced && !TROUPE_MUTANT("fencing.ignores_fenced")) return false;
      // In the first 10 s without contact, a voter that hears control shows that this node is cut
      // off. Later (rejoin_since_) it shows that control is back.
      if (answer->second.hears_control && !rejoin_since_) return false;
      counts = true;
    }
    ++count;
    with_control_host = with_control_host || voter == roster_.beside_control;
  }
  if (rejoin_since_ && now - *rejoin_since_ >= options_.rejoin_within) return false;
  const std::size_t all = roster_.voters.size();
  if (TROUPE_MUTANT("fencing.minority_carries_on")) return true;
  return 2 * count > all || (all > 0 && 2 * count == all && with_control_host);
}

bool SelfFencing::may_serve(Time now) const {
  if (exited_ || !registered_) return false;
  return (is_fresh() && now - contact_ < options_.refuse_after) || carried(now);
}

Time SelfFencing::reckon_until(Time now) const {
  if (exited_ || !registered_) return {};
  const Time by_contact = is_fresh() ? contact_ + options_.refuse_after : Time{};
  if (!carried(now)) return by_contact;
  // Without further events the answers only expire. Try the moments at which one does.
  std::vector<Time> ends{contact_ + options_.carry_on};
  if (rejoin_since_) ends.push_back(*rejoin_since_ + options_.rejoin_within);
  for (const auto& entry : answers_) ends.push_back(entry.second.asked + options_.answer_lasts);
  std::sort(ends.begin(), ends.end());
  Time until = now;
  for (const Time end : ends)
    if (end > until && carried(end - Duration(1))) until = end;
  return std::max(until, by_contact);
}

/// Sets until_, capped at `refuse_after` from now. The cap matters for an agent that alone is the
/// majority: once it has promised a roster with other voters and stands still from then on, control
/// may declare it dead 10 s later.
void SelfFencing::say_until(Time now) {
  until_ = std::min(reckon_until(now), now + options_.refuse_after);
}

void SelfFencing::exit(Out& out, const std::string& why) {
  if (exited_) return;
  exited_ = true;
  until_ = {};
  out.emplace_back(ExitNow{why});
}

/// Ends the process when its time is over. Every event calls it first, so that a late event cannot
/// hide that the time was over.
void SelfFencing::judge(Out& out, Time now) {
  const Duration stood = now - std::exchange(judged_, now);
  if (exited_ || !registered_) return;
  // While the agent is carried, a voter that hears control again starts the time to register.
  if (now - contact_ >= options_.exit_after + options_.ask_interval) {
    const bool heard = std::any_of(answers_.begin(), answers_.end(), [&](const auto& entry) {
      return entry.second.hears_control && now - entry.second.asked < options_.answer_lasts;
    });
    if (heard && !rejoin_since_) rejoin_since_ = now;
    if (!heard) rejoin_since_.reset();
  }
  // Control may have stood still too, and has then declared nobody dead. It answers within a
  // heartbeat.
  if (stood >= options_.answer_lasts && !carried(now)) {
    stood_ = {stood, now};
    if (now - contact_ >= options_.refuse_after) ask_anew(out, now);
  }
  say_until(now);
  // Before its first roster the node hosts no actor that control could start elsewhere.
  if (now < until_ || roster_.version == 0) in_time_ = now;
  if (now - contact_ < options_.exit_after || carried(now)) return;
  // The agent was carried, or had no roster, until a moment ago. Control may be back and may have
  // fenced this node meanwhile. It takes that back when it hears this node.
  if (now - in_time_ < options_.doubt_for && now - contact_ < options_.carry_on) return;
  overdue_ += std::min(stood, options_.answer_lasts);
  if (overdue_ < options_.exit_after && may_prove_itself(now)) return;
  exit(out, why_fenced(now));
}

bool SelfFencing::may_prove_itself(Time now) const {
  return now - stood_.over < (connected_ ? options_.heartbeat : options_.doubt_for);
}

/// Returns by which rule the agent exits, in words for people.
std::string SelfFencing::why_fenced(Time now) const {
  const bool stood_still = now - stood_.over < options_.doubt_for + options_.answer_lasts;
  if (!stood_still && now - contact_ >= options_.carry_on)
    return "control was away for longer than this node carries on";
  std::size_t answered = 0;
  bool fenced = false, heard = false;
  for (const auto& [voter, answer] : answers_) {
    if (now - answer.asked >= options_.answer_lasts) continue;
    ++answered;
    fenced = fenced || answer.fenced;
    heard = heard || answer.hears_control;
  }
  std::string why = "this node is cut off from control, and its actors may be started elsewhere: ";
  if (stood_still)
    return why + "it stood still itself for " +
           std::to_string(
               std::chrono::duration_cast<std::chrono::milliseconds>(stood_.length).count()) +
           " ms, and control has not answered since";
  if (fenced) return why + "control had not heard it for so long that it gave this node up";
  if (heard) return why + "others hear control";
  const bool votes = std::binary_search(roster_.voters.begin(), roster_.voters.end(), self_);
  return why + std::to_string(answered) + " of " +
         std::to_string(roster_.voters.size() - (votes ? 1 : 0)) + " other nodes that vote answer";
}

void SelfFencing::beat(Out& out, Time now) {
  if (now < next_beat_) return;
  next_beat_ = now + options_.heartbeat;
  Heartbeat heartbeat;
  heartbeat.node = self_;
  heartbeat.epoch = epoch_;
  heartbeat.sequence = ++sequence_;
  heartbeat.roster = roster_.version;
  beats_.emplace_back(sequence_, now);
  if (beats_.size() > 256) beats_.pop_front();
  out.emplace_back(SendToControl{heartbeat});
}

void SelfFencing::ask(Out& out, Time now) {
  if (now < next_ask_) return;
  next_ask_ = now + options_.ask_interval;
  asks_[++ask_number_] = now;
  while (now - asks_.begin()->second >= options_.answer_lasts) asks_.erase(asks_.begin());
  for (const NodeId voter : roster_.voters)
    if (voter != self_) out.emplace_back(SendToPeer{voter, AskControl{self_, epoch_, ask_number_}});
}

SelfFencing::Out SelfFencing::on_tick(Time now) {
  Out out;
  last_tick_ = now;
  judge(out, now);
  if (exited_) return out;
  if (connected_)
    beat(out, now);
  else if (now >= next_beat_)
    reconnect(out, now);
  if (registered_ && (!is_fresh() || now - contact_ >= options_.ask_after)) ask(out, now);
  return out;
}

}  // namespace troupe::control
