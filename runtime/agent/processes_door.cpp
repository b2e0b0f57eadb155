/// What processes may send: each message passes may_say() before it has an effect.
#include "troupe/runtime/agent/processes.hpp"

#include <bit>
#include <cstdio>

namespace troupe::agent {

// --- what is known to be another's

bool Processes::Claims::may_return(ProcessIndex who, LeaseId lease) const {
  const auto holder = processes.below_.leases.holder_of(lease);
  const auto taker = holder ? holder : processes.below_.remote.taker_of(lease);
  return !taker || *taker == who || processes.below_.leases.is_under(who, lease);
}

/// A process counts a ref for a process or node to which it gives the ref, and takes the count back
/// if the frame did not leave.
bool Processes::Claims::may_count(ProcessIndex who, const wire::Hold& hold) const {
  if (hold.process == who) return true;
  if (hold.process == kSelf || hold.process >= processes.next_) return false;
  if (hold.delta >= 0 || processes.below_.references.is_dead(hold.process)) return true;
  if (processes.below_.references.is_node(hold.process))
    return processes.below_.references.unsent(who, hold.process, hold.object) + hold.delta >= 0;
  return hold.delta == -1 && processes.below_.in_flight_refs.gave(
                                 who, hold.process, {hold.frame, hold.waiting}, hold.object);
}

bool Processes::Claims::may_make(ProcessIndex who, ObjectId object) const {
  return !processes.below_.references.is_anothers(object, who);
}

bool Processes::Claims::may_place(ProcessIndex who, const wire::Location& place) const {
  return !processes.below_.in_flight_refs.is_anothers(who, place);
}

bool Processes::Claims::may_create(ProcessIndex, const wire::CreateActor& create) const {
  return !processes.below_.references.is_made(create.lifetime) &&
         !processes.below_.actors.was_made_here(create.actor);
}

// --- the check

std::string Processes::account_of(Process& from, const std::string& said) const {
  const std::string sentence = "a " + std::string(agent::name_of(from.speaks_as)) + " (process " +
                               std::to_string(from.told_pid) + " of job " + from.job.str() +
                               ") said " + said;
  if (std::has_single_bit(++from.objections))
    below_.events.tell({EventKind::refused, Severity::warning,
                        "refused, " + std::to_string(from.objections) + " so far: " + sentence,
                        from.job, ActorId{}, from.told_pid});
  return sentence;
}

void Processes::object_to(Process& from, const wire::NodeMessage& message, Objection objection) {
  if (objection == Objection::never)
    return break_off(
        from, account_of(from, agent::name_of(message) + ", which such a process never says"));
  const std::string why =
      account_of(from, agent::name_of(message) + " about what is another process's");
  const auto* create = std::get_if<wire::CreateActor>(&message);
  if (create == nullptr || create->request == 0) return;
  wire::FoundActor answer;
  answer.request = create->request;
  answer.error = Error(Code::invalid_argument, why, Outcome::not_executed).shared_info();
  send(from, answer);
}

}  // namespace troupe::agent
