/// Decides whether an agent may send a message about a node, an actor or a job. Service asks it
/// before the message does anything. A plain state machine without a state.
///
/// The connection tells which node sent the message, and CURVE proves it. A sender that the message
/// itself names is not read. A table has a row for each kind of message: what of the sender's own
/// the message must be about.
///
///     if (authority.may_say(node, message)) carry_out(message);
///
/// Control may have forgotten actors and jobs that an agent still knows, and messages of several
/// agents arrive in any order. So a message is refused only when its subject is known to be
/// another's: it is answered with an error, or dropped if it has no answer. (Server drops a node
/// that registers in another's name.)
#pragma once

#include "troupe/runtime/control/messages.hpp"

#include <array>
#include <cstdint>
#include <string>
#include <variant>

namespace troupe::control {

/// What a message must be about so that its sender may send it.
enum class Own : std::uint8_t {
  anything,   ///< no rule: about the sender itself, known by its connection, or a question
  life,       ///< a life of an actor that was placed at the sender
  handles,    ///< the handles of an actor that the sender made
  job,        ///< a job whose driver is at the sender
  new_actor,  ///< an actor id that no other node has used
  new_job,    ///< a job id that no other node has used
  killed,     ///< an actor of the killer's job, or a detached one
};

namespace authority {

struct Row {
  Own own = Own::anything;
  bool is_a_row = false;
};
using Table = std::array<Row, std::variant_size_v<ToControl>>;

template <class Message, class... Kinds>
constexpr std::size_t kind_of(const std::variant<Kinds...>*) {
  std::size_t at = 0, found = sizeof...(Kinds);
  ((std::is_same_v<Message, Kinds> ? (void)(found = at++) : (void)++at), ...);
  return found;
}
template <class... Messages>
constexpr void rows(Table& table, Own own) {
  ((table[kind_of<Messages>(static_cast<const ToControl*>(nullptr))] = {own, true}), ...);
}

constexpr Table table() {
  Table t{};
  rows<RegisterNode, Heartbeat, Leaving, NodeReport, NodePace, NodeHosts>(t, Own::anything);
  rows<FindActor, WatchActor, GetJob>(t, Own::anything);
  // The sender's agent has judged which of its processes may ask these.
  rows<KeyValueRequest, ListRequest, DrainRequest, NameObject>(t, Own::anything);
  rows<SpawnActor>(t, Own::new_actor);
  rows<ActorStarted>(t, Own::anything);  // a life of another node's is stopped by Directory
  rows<ActorStartFailed, ActorGone>(t, Own::life);
  rows<HandlesGone>(t, Own::handles);
  rows<KillActor>(t, Own::killed);
  rows<StartJob>(t, Own::new_job);
  rows<FinishJob, DriverDied>(t, Own::job);
  return t;
}

constexpr bool is_whole(const Table& rows) {
  for (const Row& row : rows)
    if (!row.is_a_row) return false;
  return true;
}

inline constexpr Table kTable = table();
static_assert(is_whole(kTable), "a message for control has no row: about what may it be?");

}  // namespace authority

class Authority {
 public:
  /// What control's cores know. Each function returns false only when the subject is known to be
  /// another's.
  class Facts {
   public:
    virtual ~Facts() = default;
    virtual bool may_tell_of(NodeId from, ActorId actor, std::uint64_t life) const = 0;
    virtual bool made(NodeId from, ActorId actor) const = 0;
    virtual bool may_make(NodeId from, const SpawnActor& spawn) const = 0;
    virtual bool may_kill(NodeId from, const KillActor& kill) const = 0;
    virtual bool may_start(NodeId from, JobId job) const = 0;
    virtual bool may_end(NodeId from, JobId job) const = 0;
  };

  explicit Authority(const Facts& facts) : facts_(facts) {}
  bool may_say(NodeId from, const ToControl& message) const;

 private:
  const Facts& facts_;
};

/// Returns the name of the message's type: "KillActor".
std::string name_of(const ToControl& message);

}  // namespace troupe::control
