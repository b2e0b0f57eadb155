/// Node's check of what processes may send: every message of a process passes may_say() before it
/// has an effect.
#include "troupe/runtime/agent/node.hpp"
#include "troupe/runtime/base/log.hpp"

#include <bit>
#include <cstdio>

namespace troupe::agent {

// --- what is known to be another's

bool Node::Claims::may_return(ProcessIndex who, LeaseId lease) const {
  const auto holder = node.leases_.holder_of(lease);
  const auto taker = holder ? holder : node.remote_.taker_of(lease);
  return !taker || *taker == who || node.leases_.is_under(who, lease);
}

/// A process counts a ref for a process or node to which it gives the ref, and takes the count back
/// if the frame did not leave.
bool Node::Claims::may_count(ProcessIndex who, const wire::Hold& hold) const {
  if (hold.process == who) return true;
  if (hold.process == kSelf || hold.process >= node.next_process_) return false;
  if (hold.delta >= 0 || node.references_.is_dead(hold.process)) return true;
  if (node.references_.is_node(hold.process))
    return node.references_.unsent(who, hold.process, hold.object) + hold.delta >= 0;
  return hold.delta == -1 &&
         node.in_flight_refs_.gave(who, hold.process, {hold.frame, hold.waiting}, hold.object);
}

bool Node::Claims::may_make(ProcessIndex who, ObjectId object) const {
  return !node.references_.is_anothers(object, who);
}

bool Node::Claims::may_place(ProcessIndex who, const wire::Location& place) const {
  return !node.in_flight_refs_.is_anothers(who, place);
}

bool Node::Claims::may_create(ProcessIndex, const wire::CreateActor& create) const {
  return !node.references_.is_made(create.lifetime) && !node.actors_.was_made_here(create.actor);
}

// --- the check

/// Returns whether the process may send this message. If not, the consequence is carried out here.
bool Node::may_say(Process& from, const wire::NodeMessage& message) {
  const Objection objection = authority_.objection({from.index, from.speaks_as}, message);
  if (objection == Objection::none) [[likely]]
    return true;
  object_to(from, message, objection);
  return false;
}

/// Counts a message that the process may not send, and returns a sentence about it. Logs the 1st,
/// 2nd, 4th, 8th … of a process, so that one that goes on does not fill the disk.
std::string Node::account_of(Process& from, const std::string& said) const {
  const std::string sentence = "a " + std::string(agent::name_of(from.speaks_as)) + " (process " +
                               std::to_string(from.told_pid) + " of job " + from.job.str() +
                               ") said " + said;
  if (std::has_single_bit(++from.objections))
    log_line("%s: refused, %llu so far: %s", options_.name.c_str(),
             static_cast<unsigned long long>(from.objections), sentence.c_str());
  return sentence;
}

void Node::object_to(Process& from, const wire::NodeMessage& message, Objection objection) {
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
