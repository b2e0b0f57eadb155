#include "troupe/runtime/agent/objects.hpp"

#include "troupe/runtime/agent/pull_priority.hpp"
#include "troupe/runtime/wire/cases.hpp"
#include "troupe/runtime/wire/values.hpp"

#include <algorithm>

namespace troupe::agent {

using wire::Cases;

// --- from processes

void Objects::on_store(Process& from, wire::NodeMessage& message) {
  std::visit(
      Cases{[&](wire::NeedExtent& m) {
              below_.extents.need({from.index, from.store_index, from.job, from.job_number}, m,
                                  steady_now());
            },
            [&](wire::WhereIs& m) { below_.extents.where_is(from.index, m, steady_now()); },
            [&](wire::GiveBack& m) {
              (void)below_.host.release_extent(from.store_index, objectstore::ExtentId{m.extent});
            },
            [&](wire::ExtentMapped& m) {
              if (const auto done =
                      below_.host.confirm_extent(from.store_index, objectstore::ExtentId{m.extent});
                  !done)
                below_.processes.break_off(from, done.error().message());
            },
            [&](wire::NeedReader& m) { readers_.push_back({from.index, m, 0}); },
            [&](wire::Adopt& m) { on_adopt(from, m); }, [&](wire::Free& m) { free(m.location); },
            [&](wire::Unpinned& m) { below_.host.unpinned(m.process, m.slot); },
            [](auto&) {}},  // only agents send these: see Authority
      message);
}

/// Records an object that is now in the store: which process it is in flight to, and for accounting
/// which job and call site made it.
void Objects::on_adopt(Process& from, const wire::Adopt& message) {
  const wire::Location& at = message.location;
  if (const auto done = below_.host.adopt(from.store_index, wire::store_location(at)); !done) {
    (void)below_.processes.account_of(
        from, "Adopt of an object that it does not have: " + done.error().message());
    return;
  }
  if (in_flight_refs_.adopted(from.index, message.process != 0 ? message.process : from.index,
                              {message.frame, message.waiting}, at))
    free(at);
  if (below_.transfers || below_.options.job_bytes.count != 0)  // else the accounting has no reader
    below_.memory.made(message, from);
  below_.extents.may_spill(at);
}

/// Takes back what a dead process had counted for this one in frames that never arrived.
void Objects::undo(ProcessIndex process, const InFlightRefs::Undone& undone) {
  for (const ObjectId object : undone.counts) below_.references.hold(object, process, -1);
  for (const wire::Location& location : undone.free) free(location);
  below_.references.forget(undone.forgotten);
}

void Objects::process_died(ProcessIndex index, const std::set<ProcessIndex>& peers) {
  const InFlightRefs::Died given = in_flight_refs_.died(index, peers);
  for (const wire::Location& location : given.free) free(location);
  for (const ProcessIndex to : given.asked)  // without a channel no frame has arrived
    if (peers.count(to) == 0) undo(to, in_flight_refs_.arrived(to, index, 0));
  for (const ProcessIndex dead : given.forgotten) below_.references.forget(dead);
}

ActorHost::BytesByNode Objects::bytes_near(const wire::Call& call) const {
  constexpr std::uint64_t kWorthIt = 256 << 10;
  constexpr int kMostSteps = 16;
  ActorHost::BytesByNode near;
  if (!below_.transfers) return near;
  for (const wire::Value& argument : call.arguments) {
    const wire::Value* value = &argument;
    ObjectId object;
    for (int step = 0;
         value != nullptr && value->kind == wire::Value::Kind::forwarded && step < kMostSteps;
         ++step)
      value = below_.references.value_of(object = value->forward);
    NodeId node;
    std::uint64_t bytes = 0;
    if (value != nullptr && value->kind == wire::Value::Kind::shared) {
      node = below_.self;
      bytes = value->location.length;
    } else if (value != nullptr && value->kind == wire::Value::Kind::remote) {
      node = below_.owners.owner_of(object);
      bytes = value->remote_bytes;
    }
    if (!node || bytes < kWorthIt) continue;
    const auto known =
        std::find_if(near.begin(), near.end(), [&](const auto& one) { return one.first == node; });
    if (known == near.end())
      near.emplace_back(node, bytes);
    else
      known->second += bytes;
  }
  return near;
}

// --- the loop

void Objects::carry_out_deferred() {
  // The ring of an ending process may hold the Adopt of what is to be freed.
  for (const wire::Location& location :
       below_.processes.has_unread() ? std::vector<wire::Location>() : frees_.take_due()) {
    in_flight_refs_.gone(location);
    below_.memory.freed(location, steady_now());
    const objectstore::Location at = wire::store_location(location);
    if (objectstore::Spiller* spiller = below_.extents.spiller())
      (void)spiller->free(at);
    else
      (void)below_.host.free(at);
  }
  for (ReaderRequest& request : std::exchange(readers_, {}))
    if (Process* to = below_.processes.find(request.process))
      if (!give_reader(*to, request.request, request.tries >= 3))
        readers_.push_back({request.process, request.request, request.tries + 1});
}

/// Answers NeedReader. Returns false if the memory is not there yet and another try may find it.
bool Objects::give_reader(Process& to, const wire::NeedReader& request, bool last_try) {
  wire::GiveReader answer;
  answer.is_segment = request.is_segment;
  answer.id = request.id;
  Error error(Code::internal, "");
  if (request.is_segment) {
    auto segment = below_.host.segment_for_reader(static_cast<std::uint32_t>(request.id));
    if (segment) {
      answer.incarnation = segment->incarnation;
      below_.processes.send_with(to, answer, {segment->memory.get()});
      return true;
    }
    error = segment.error();
  } else {
    auto extent = below_.host.extent_for_reader(objectstore::ExtentId{request.id});
    if (extent) {
      answer.bytes = extent->bytes;
      below_.processes.send_with(to, answer, {extent->memory.get()});
      return true;
    }
    error = extent.error();
  }
  if (error.code() == Code::unavailable && !last_try) return false;
  answer.error = error.shared_info();
  below_.processes.send(to, answer);
  return true;
}

void Objects::send_notices() {
  for (const objectstore::Notice& notice : below_.host.take_notices()) {
    for (const auto& [index, process] : below_.processes) {
      if (process->store_index == 0) continue;  // an observer maps nothing
      switch (notice.kind) {
        case objectstore::Notice::Kind::recycle:
          if (process->introduced && process->store_index == notice.process)
            below_.processes.send(*process, wire::Recycle{notice.slot, notice.generation});
          break;
        case objectstore::Notice::Kind::forget_extent:
          below_.processes.send(*process, wire::Forget{false, notice.extent.value});
          break;
        case objectstore::Notice::Kind::forget_segment:
          below_.processes.send(*process, wire::Forget{true, notice.process});
          break;
      }
    }
  }
}

// --- ReferenceTable::Out

void Objects::ready(ProcessIndex process, ObjectId object, const wire::Value& value,
                    BlobView payload) {
  if (process == kSelf) return below_.replica_host.replicas().arrived(object, value);
  if (const auto node = below_.remote.node_of(process))
    return below_.out.send(*node, below_.owners.answer_of(object, value), payload);
  NodeId holder;
  if (value.kind == wire::Value::Kind::remote)
    if (const auto owner = below_.references.owner_of(object))
      holder = below_.remote.node_of(*owner).value_or(NodeId{});
  below_.processes.send(process, wire::Ready{object, value, holder}, payload);
}

void Objects::free(const wire::Location& location) {
  if (below_.replica_host.gave_back_lent(location)) return;
  in_flight_refs_.freed(location);
  frees_.add(location);
}

void Objects::peer_hold(ProcessIndex to, ObjectId object, ProcessIndex holder, std::int32_t delta) {
  const auto node = below_.remote.node_of(to);
  const auto who = holder == kSelf ? std::optional(below_.self) : below_.remote.node_of(holder);
  if (node && who) below_.out.send(*node, wire::PeerHold{object, *who, delta}, {});
}

void Objects::peer_await(ProcessIndex owner, ObjectId object) {
  if (below_.owners.is_lost(owner))
    return wire::has_copies(object) ? below_.replica_host.replicas().look(owner, object)
                                    : below_.copies.look_for(owner, object, steady_now());
  if (const auto node = below_.remote.node_of(owner))
    below_.out.send(*node, wire::PeerAwait{object}, {});
}

void Objects::pull(ProcessIndex owner, ObjectId object, std::uint64_t bytes) {
  if (owner == kSelf || below_.owners.is_lost(owner))
    return wire::has_copies(object) ? below_.replica_host.replicas().fetch(owner, object, bytes)
                                    : below_.copies.want(owner, object, bytes, steady_now());
  if (const auto node = below_.remote.node_of(owner))
    below_.transfers->pull(*node, object, bytes, steady_now(),
                           pull_priority(below_.replica_host.replicas(), object));
}

// --- Transfers::Out

std::optional<Transfers::Held> Objects::find(ObjectId object) {
  const wire::Value* value = below_.references.value_of(below_.replica_host.served(object));
  if (value == nullptr || value->kind != wire::Value::Kind::shared) return std::nullopt;
  const bool own = !below_.references.owner_of(object);
  if (below_.extents.spiller() == nullptr)
    return Transfers::Held{value->location, value->location, own};
  const auto at = below_.extents.where(wire::store_location(value->location));
  if (!at) return std::nullopt;
  return Transfers::Held{wire::wire_location(*at), value->location, own};
}

void Objects::done(ObjectId object, NodeId from, const wire::Location& location) {
  below_.extents.may_spill(location);
  below_.references.pulled(
      below_.replica_host.replicas().pulled(object, from) ? wire::original_of(object) : object,
      location);
}

void Objects::failed(ObjectId object, NodeId from, const Error& error) {
  if (below_.replica_host.replicas().pull_failed(object, from, error)) return;
  if (below_.copies.is_reading(object)) return;  // the owner died meanwhile: a copy is being read
  below_.references.pull_failed(object, error);
}

// --- ReplicaHost::Store

bool Objects::look_in_folders(ProcessIndex owner, ObjectId object,
                              std::optional<std::uint64_t> bytes) {
  if (!below_.copies.is_open()) return false;
  if (bytes)
    below_.copies.want(owner, object, *bytes, steady_now());
  else
    below_.copies.look_for(owner, object, steady_now());
  return true;
}

bool Objects::is_on_disk(const wire::Location& at) const {
  const objectstore::Spiller* spiller = below_.extents.spiller();
  const auto seen = spiller != nullptr ? spiller->look(wire::store_location(at)) : std::nullopt;
  return seen && seen->on_disk;
}

// --- Extents::Out

void Objects::press() {
  for (const auto& [index, process] : below_.processes)
    if (process->introduced && process->bell)
      below_.processes.send(*process, wire::MemoryPressure{});
}

void Objects::memory_answer(const std::optional<Error>& why) {
  if (why)
    below_.transfers->memory_refused(*why, steady_now());
  else
    below_.transfers->memory_came(steady_now());
}

}  // namespace troupe::agent
