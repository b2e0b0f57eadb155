#include "troupe/runtime/control/actor_records.hpp"

#include "troupe/runtime/control/codec.hpp"
#include "troupe/runtime/control/internal/amounts.hpp"

#include <string_view>

namespace troupe::control {
namespace {

constexpr std::uint8_t kActorNameFormat = 1;
constexpr std::uint8_t kActorFormat = 2;   ///< format 1 has no lifetime and owner
constexpr std::uint8_t kKilledFormat = 2;  ///< format 1 has no `gracefully`
constexpr const char* kActorPrefix = "actor/";
constexpr const char* kActorNamePrefix = "name/";
constexpr const char* kKilledPrefix = "killed/";

std::string actor_key(ActorId id) {
  return kActorPrefix + id.str();
}

/// The length of the namespace keeps ("a/b", "c") and ("a", "b/c") apart.
std::string actor_name_key(const ActorName& name) {
  return kActorNamePrefix + std::to_string(name.first.size()) + "/" + name.first + "/" +
         name.second;
}

std::string killed_key(ActorId id) {
  return kKilledPrefix + id.str();
}

std::string encode(const ActorSpec& spec) {
  RecordWriter out(kActorFormat);
  out.id(spec.id).id(spec.job).bytes(spec.name).bytes(spec.name_space).bytes(spec.class_name);
  out.bytes(spec.creation).i64(spec.max_restarts).i64(spec.restart_window.count());
  out.boolean(spec.detached);
  const scheduling::ResourceDemand& demand = spec.demand;
  internal::write_amounts(demand.need, demand.labels, out);
  out.u64(static_cast<std::uint64_t>(demand.placement)).id(demand.node).boolean(demand.soft);
  out.id(spec.lifetime).id(spec.owner);
  return out.take();
}

bool decode(std::string_view bytes, ActorSpec& spec) {
  RecordReader in(bytes);
  spec.id = in.id<ActorId>();
  spec.job = in.id<JobId>();
  spec.name = in.bytes();
  spec.name_space = in.bytes();
  spec.class_name = in.bytes();
  spec.creation = in.bytes();
  spec.max_restarts = static_cast<std::int32_t>(in.i64());
  spec.restart_window = Duration(in.i64());
  spec.detached = in.boolean();
  scheduling::ResourceDemand& demand = spec.demand;
  internal::read_amounts(in, demand.need, demand.labels);
  const std::uint64_t placement = in.u64();
  demand.placement = static_cast<scheduling::Placement>(placement);
  demand.node = in.id<NodeId>();
  demand.soft = in.boolean();
  if (in.version() == kActorFormat) {
    spec.lifetime = in.id<ObjectId>();
    spec.owner = in.id<NodeId>();
  }
  return in.ok() && in.version() >= 1 && in.version() <= kActorFormat && placement <= 3;
}

}  // namespace

Result<StoredActors> read_actors(Store& store) {
  StoredActors stored;
  bool readable = true;
  auto read = store.scan(kActorPrefix, [&](std::string_view, std::string_view value) {
    auto spec = std::make_shared<ActorSpec>();
    readable = readable && decode(value, *spec);
    stored.detached.push_back(std::move(spec));
  });
  if (!read) return read.error();
  read = store.scan(kActorNamePrefix, [&](std::string_view, std::string_view value) {
    RecordReader in(value);
    std::string name_space = in.bytes();
    std::string name = in.bytes();
    stored.names[{std::move(name_space), std::move(name)}] = in.id<ActorId>();
    readable = readable && in.ok();
  });
  if (!read) return read.error();
  read = store.scan(kKilledPrefix, [&](std::string_view, std::string_view value) {
    RecordReader in(value);
    StoredActors::Killed killed;
    killed.id = in.id<ActorId>();
    killed.life = in.u64();
    killed.gracefully = in.version() == kKilledFormat && in.boolean();
    stored.killed.push_back(killed);
    readable = readable && in.ok() && in.version() >= 1 && in.version() <= kKilledFormat;
  });
  if (!read) return read.error();
  if (!readable)
    return Error(Code::invalid_argument,
                 "a record of an actor or name cannot be read: it was written by a newer build");
  return stored;
}

void put_actor(const ActorSpec& spec, Batch& writes) {
  writes.put(actor_key(spec.id), encode(spec));
}
void drop_actor(ActorId id, Batch& writes) {
  writes.del(actor_key(id));
}
void put_name(const ActorName& name, ActorId id, Batch& writes) {
  writes.put(actor_name_key(name),
             RecordWriter(kActorNameFormat).bytes(name.first).bytes(name.second).id(id).take());
}
void drop_name(const ActorName& name, Batch& writes) {
  writes.del(actor_name_key(name));
}
void put_killed(const StoredActors::Killed& killed, Batch& writes) {
  writes.put(
      killed_key(killed.id),
      RecordWriter(kKilledFormat).id(killed.id).u64(killed.life).boolean(killed.gracefully).take());
}
void drop_killed(ActorId id, Batch& writes) {
  writes.del(killed_key(id));
}

}  // namespace troupe::control
