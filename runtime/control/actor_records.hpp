/// The stored form of the Directory: detached actors, all names, and tombstones. Files of older
/// builds can be read, those of newer ones are refused.
///
///     put_actor(spec, out.writes);
///     Result<StoredActors> stored = read_actors(store);      // of an earlier control
#pragma once

#include "troupe/runtime/base/result.hpp"
#include "troupe/runtime/control/actor_messages.hpp"
#include "troupe/runtime/control/store.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace troupe::control {

/// The name of an actor: its namespace and the name in it.
using ActorName = std::pair<std::string, std::string>;

inline ActorName actor_name(const ActorSpec& spec) {
  return {spec.name_space, spec.name};
}

struct StoredActors {
  struct Killed {
    ActorId id;
    std::uint64_t life = 0;
    bool gracefully = false;
  };
  std::vector<std::shared_ptr<const ActorSpec>> detached;
  std::map<ActorName, ActorId> names;
  std::vector<Killed> killed;
};

/// Errors: invalid_argument when a newer build wrote a record; those of Store::scan(). Blocks on the
/// disk.
Result<StoredActors> read_actors(Store& store);

void put_actor(const ActorSpec& spec, Batch& writes);
void drop_actor(ActorId id, Batch& writes);
void put_name(const ActorName& name, ActorId id, Batch& writes);
void drop_name(const ActorName& name, Batch& writes);
void put_killed(const StoredActors::Killed& killed, Batch& writes);
void drop_killed(ActorId id, Batch& writes);

}  // namespace troupe::control
