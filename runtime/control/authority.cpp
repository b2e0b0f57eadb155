#include "troupe/runtime/control/authority.hpp"

#include "troupe/runtime/base/error.hpp"

#include <typeinfo>

namespace troupe::control {

bool Authority::may_say(NodeId from, const ToControl& message) const {
  switch (authority::kTable[message.index()].own) {
    case Own::anything: return true;
    case Own::handles: return facts_.made(from, std::get<HandlesGone>(message).actor);
    case Own::new_actor: return facts_.may_make(from, std::get<SpawnActor>(message));
    case Own::new_job: return facts_.may_start(from, std::get<StartJob>(message).job.id);
    case Own::killed: return facts_.may_kill(from, std::get<KillActor>(message));
    case Own::life:
      if (const auto* failed = std::get_if<ActorStartFailed>(&message))
        return facts_.may_tell_of(from, failed->actor, failed->incarnation);
      if (const auto* gone = std::get_if<ActorGone>(&message))
        return facts_.may_tell_of(from, gone->actor, gone->incarnation);
      return false;
    case Own::job:
      if (const auto* finish = std::get_if<FinishJob>(&message))
        return facts_.may_end(from, finish->job);
      if (const auto* died = std::get_if<DriverDied>(&message))
        return facts_.may_end(from, died->job);
      return false;
  }
  return false;
}

std::string name_of(const ToControl& message) {
  const std::string full =
      std::visit([](const auto& one) { return readable_type(typeid(one).name()); }, message);
  return full.substr(full.rfind(':') + 1);
}

}  // namespace troupe::control
