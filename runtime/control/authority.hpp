/// What an agent may say to control, and about whose nodes, actors and jobs: one table, asked
/// before a word does anything. A plain state machine without a state.
///
/// Which node speaks is known from its connection, which CURVE proves; where a message names its
/// sender, that is not read. Each kind has a row: what of the speaker's own it has to be about.
///
///     if (authority.may_say(node, message)) carry_out(message);
///
/// Control may have forgotten what an agent still knows, and hears of things in any order. So only
/// what is known to be another's is refused: dropped, or answered with an error where it has an
/// answer. (A registration in another's name ends the sender, see Server.)
#pragma once

#include "troupe/runtime/control/messages.hpp"

#include <array>
#include <cstdint>
#include <string>
#include <variant>

namespace troupe::control {

/// What of the speaker's own a message is about.
enum class Own : std::uint8_t {
  anything,  ///< of the node that says it, by its connection; or nobody's
  life,      ///< of an actor, placed at the node
  handles,   ///< of an actor that was made there
  job,       ///< whose driver is there
  new_actor,
  new_job,
  killed,  ///< an actor of the killer's job, or a detached one
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
  // Whose question it is, its agent has judged.
  rows<KeyValueRequest, ListRequest, DrainRequest, NameObject>(t, Own::anything);
  rows<SpawnActor>(t, Own::new_actor);
  rows<ActorStarted>(t, Own::anything);  // of another life: it is stopped
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
  /// What control's cores know. Each is false only when it is known to be another's.
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

/// "KillActor"
std::string name_of(const ToControl& message);

}  // namespace troupe::control
