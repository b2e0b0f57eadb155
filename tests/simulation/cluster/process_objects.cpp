/// Values and references of a simulated process, by the rules of client/engine_objects.cpp.
#include "tests/simulation/cluster/process.hpp"
#include "tests/simulation/cluster/program.hpp"

#include <algorithm>
#include <cstring>

namespace troupe::detail {
namespace {
/// Called when the last handle of an entry is gone. The process returns the count when it has
/// finished its current step.
void release(ObjectEntry* entry) noexcept {
  auto* record = static_cast<sim::cluster::Entry*>(entry);
  record->home->released(record);
}
Engine* no_engine() noexcept {
  return nullptr;
}
constexpr EngineHooks kHooks{.current = &no_engine, .release = &release};
}  // namespace
}  // namespace troupe::detail

namespace troupe::sim::cluster {

// Runs after the constructors of globals, in which the real engine may have installed its own
// hooks.
void Process::own_objects() noexcept {
  detail::install(&detail::kHooks);
}

namespace {

Blob bytes_of_content(std::uint64_t content) {
  Blob bytes(sizeof content);
  std::memcpy(bytes.data(), &content, sizeof content);
  return bytes;
}
std::uint64_t content_at(const wire::Value& value, BlobView payload) {
  std::uint64_t content = 0;
  if (value.payload_size == sizeof content)
    std::memcpy(&content, payload.data() + value.payload_offset, sizeof content);
  return content;
}

}  // namespace

// --- the table

ObjectHandle Process::create() {
  auto* entry = new Entry;
  entry->home = this;
  entry->id = ObjectId{high_, ++low_};
  ++live_;
  return ObjectHandle::adopt(entry);
}

ObjectHandle Process::keep(Entry& entry) {
  if (entry.handles.load(std::memory_order_relaxed) == 0) return {};
  entry.handles.fetch_add(1, std::memory_order_relaxed);
  return ObjectHandle::adopt(&entry);
}

ObjectHandle Process::adopt(ObjectId id, bool& fresh) {
  fresh = false;
  if (const auto found = table_.find(id); found != table_.end())
    if (ObjectHandle handle = keep(*found->second)) return handle;
  fresh = true;
  auto* entry = new Entry;
  entry->home = this;
  entry->id = id;
  entry->promoted = true;
  ++live_;
  table_[id] = entry;
  return ObjectHandle::adopt(entry);
}

void Process::mark_promoted(Entry& entry) {
  entry.promoted = true;
  table_.emplace(entry.id, &entry);
}

void Process::released(Entry* entry) {
  if (dying_)
    delete entry;
  else
    released_.push_back(entry);
}

void Process::collect() {
  while (!released_.empty()) {
    std::vector<Entry*> gone;
    gone.swap(released_);
    for (Entry* entry : gone) free_entry(entry);
  }
}

void Process::free_entry(Entry* entry) {
  if (entry->promoted) {
    const auto found = table_.find(entry->id);
    if (found != table_.end() && found->second == entry) table_.erase(found);
  }
  --live_;
  if (entry->promoted)
    tell(wire::Hold{entry->id, index_, -1});
  else if (entry->owns_location && entry->adopted)
    tell(wire::Free{entry->location});
  else if (entry->owns_location)
    machine_.truth().check(machine_.store().free(entry->location), "an object is freed twice");
  delete entry;
}

// --- settling

void Process::settle(Entry& entry, const wire::Value& value, BlobView payload) {
  if (entry.ready) return arrive(entry, value, payload);
  switch (value.kind) {
    case Kind::pending: entry.kind = Kind::inline_bytes; break;
    case Kind::inline_bytes:
      entry.kind = Kind::inline_bytes;
      entry.content = content_at(value, payload);
      entry.nested = adopt_refs(value.refs);
      break;
    case Kind::shared:
      entry.kind = Kind::shared;
      entry.location = value.location;
      entry.nested = adopt_refs(value.refs);
      entry.adopted = true;
      break;
    case Kind::error:
      entry.kind = Kind::error;
      entry.error = value.error;
      break;
    case Kind::forwarded: {
      ObjectHandle source = std::move(adopt_refs({value.forward}).front());
      entry.source = std::move(source);
      machine_.truth().mark(Mark::forwarded);
      if (entry.fulfil && !entry_of(entry.source).ready) {
        entry.fulfil = false;
        tell(wire::Fulfil{entry.id, outgoing_forward(entry.source, {})});
      }
      return follow(entry);
    }
    case Kind::remote:
      if (!entry.promoted || entry.fulfil) {
        give_back(value);
        return settle_error(entry, Error(Code::internal, "a result came without its bytes"));
      }
      entry.kind = Kind::remote;
      entry.nested = adopt_refs(value.refs);
      break;
  }
  finish_settling(entry);
}

void Process::arrive(Entry& entry, const wire::Value& value, BlobView payload) {
  const bool wanted = entry.kind == Kind::remote && !entry.source && !entry.fetched;
  if (!wanted || value.kind == Kind::remote) return give_back(value);
  switch (value.kind) {
    case Kind::inline_bytes:
      entry.fetched = true;
      entry.fetched_kind = value.kind;
      entry.fetched_content = content_at(value, payload);
      entry.fetched_nested = adopt_refs(value.refs);
      break;
    case Kind::shared:
      entry.fetched = true;
      entry.fetched_kind = value.kind;
      entry.fetched_location = value.location;
      entry.fetched_nested = adopt_refs(value.refs);
      break;
    case Kind::error: entry.fetch_error = value.error; break;
    default:
      give_back(value);
      entry.fetch_error =
          Error(Code::internal, "the bytes of an object came without bytes").shared_info();
  }
  if (!entry.fetched) entry.fetching = false;
  for (const auto& waiter : std::exchange(entry.waiters, {})) waiter(entry);
}

void Process::follow(Entry& entry) {
  Entry& source = entry_of(entry.source);
  if (!source.ready) {
    const ObjectHandle mine = keep(entry);
    source.waiters.push_back([this, mine](Entry&) { follow(entry_of(mine)); });
    return need(source, entry.wants_bytes);
  }
  entry.kind = source.kind;
  entry.content = source.content;
  entry.location = source.location;
  entry.nested = source.nested;
  entry.adopted = source.adopted;
  entry.error = source.error;
  if (entry.kind == Kind::remote && entry.wants_bytes) need(source, true);
  finish_settling(entry);
}

void Process::settle_error(Entry& entry, const Error& error) {
  if (entry.ready) return;
  entry.kind = Kind::error;
  entry.error = error.shared_info();
  finish_settling(entry);
}

void Process::finish_settling(Entry& entry) {
  if (entry.kind == Kind::shared && !entry.source) entry.owns_location = !entry.promoted;
  if (entry.fulfil) {
    entry.fulfil = false;
    Blob payload;
    wire::Fulfil message;
    message.object = entry.id;
    message.value = record_of(entry, payload);
    tell(std::move(message), std::move(payload));
  }
  if (entry.kind == Kind::inline_bytes) machine_.truth().delivered(entry.id, entry.content);
  entry.ready = true;
  for (const auto& waiter : std::exchange(entry.waiters, {})) waiter(entry);
}

// --- references

const Entry& Process::origin_of(const Entry& entry) {
  const Entry* at = &entry;
  while (at->kind == Kind::remote && at->source) at = &entry_of(at->source);
  return *at;
}
bool Process::is_here(const Entry& entry) const {
  return entry.ready && (entry.kind != Kind::remote || origin_of(entry).fetched);
}
bool Process::fetch_failed(const Entry& entry) const {
  return entry.ready && !is_here(entry) && !origin_of(entry).fetching;
}

void Process::need(Entry& entry, bool bytes) {
  Entry* at = &entry;
  at->wants_bytes |= bytes;
  while (at->source) {
    at = &entry_of(at->source);
    at->wants_bytes |= bytes;
  }
  if (!at->promoted || at->fulfil || (bytes ? at->fetching : at->awaited)) return;
  if (at->ready && (!bytes || is_here(*at))) return;
  at->awaited = true;
  at->fetching = at->wants_bytes;
  tell(wire::Await{at->id, at->wants_bytes});
}

wire::Value Process::record_of(Entry& entry, Blob& payload) {
  if (entry.kind != Kind::remote && !(entry.source && entry.kind == Kind::shared))
    return outgoing_entry(entry, {}, payload);
  return outgoing_forward(entry.source, {});
}

void Process::promote(Entry& entry) {
  if (entry.promoted) return;
  mark_promoted(entry);
  wire::Promote message;
  message.object = entry.id;
  Blob payload;
  if (entry.ready) {
    message.value = record_of(entry, payload);
    entry.owns_location = false;
  } else {
    entry.fulfil = true;
  }
  tell(std::move(message), std::move(payload));
}

/// Counts the receiver of a handle. A `to` without a holder is the agent, which counts what it
/// finds itself.
void Process::share(const ObjectHandle& handle, const Peer& to) {
  Entry& entry = entry_of(handle);
  promote(entry);
  if (to.holder == 0) return;
  wire::Hold hold = in_flight_hold(to);
  hold.object = entry.id;
  tell(hold);
}

std::vector<ObjectHandle> Process::adopt_refs(const std::vector<ObjectId>& ids) {
  std::vector<ObjectHandle> handles;
  for (const ObjectId id : ids) {
    bool fresh = false;
    handles.push_back(adopt(id, fresh));
    if (!fresh) tell(wire::Hold{id, index_, -1});
  }
  return handles;
}

void Process::drop_refs(const wire::Call& call) {
  for (const auto& argument : call.arguments) give_back(argument);
}

void Process::give_back(const wire::Value& value) {
  for (const ObjectId id : value.refs) tell(wire::Hold{id, index_, -1});
  if (value.kind == Kind::forwarded) tell(wire::Hold{value.forward, index_, -1});
}

// --- values on their way out

wire::Value Process::outgoing_entry(Entry& entry, const Peer& to, Blob& payload) {
  wire::Value value;
  value.kind = entry.kind;
  if (entry.kind == Kind::error) value.error = entry.error;
  if (entry.kind == Kind::inline_bytes) append(value, bytes_of_content(entry.content), payload);
  if (entry.kind == Kind::shared) {
    if (!entry.adopted) tell(wire::Adopt{entry.location});
    entry.adopted = true;
    value.location = entry.location;
  }
  if (entry.kind == Kind::inline_bytes || entry.kind == Kind::shared)
    for (const auto& ref : entry.nested) {
      share(ref, to);
      value.refs.push_back(ref.id());
    }
  return value;
}

wire::Value Process::outgoing(const ObjectHandle& handle, const Peer& to, Blob& payload) {
  Entry& entry = entry_of(handle);
  const bool in_memory = entry.kind == Kind::shared;
  if (entry.kind != Kind::remote && !(in_memory && to.remote))
    return outgoing_entry(entry, to, payload);
  const ObjectHandle* origin = &handle;
  while (entry_of(*origin).source) origin = &entry_of(*origin).source;
  return outgoing_forward(*origin, to);
}

wire::Value Process::outgoing_forward(const ObjectHandle& handle, const Peer& to) {
  share(handle, to);
  wire::Value value;
  value.kind = Kind::forwarded;
  value.forward = handle.id();
  return value;
}

wire::Value Process::outgoing(const Outgoing& from, const Peer& to, Blob& payload) {
  wire::Value value;
  value.kind = from.kind;
  value.error = from.error;
  if (from.kind == Kind::forwarded) return outgoing_forward(from.forward, to);
  if (from.kind == Kind::inline_bytes) append(value, bytes_of_content(from.content), payload);
  if (from.kind == Kind::shared) {
    if (to.remote) {
      ObjectHandle handle = create();
      Entry& entry = entry_of(handle);
      entry.kind = from.kind;
      entry.location = from.location;
      entry.owns_location = true;
      entry.nested = from.refs;
      entry.ready = true;
      return outgoing_forward(handle, to);
    }
    const wire::Hold hold = in_flight_hold(to);
    tell(wire::Adopt{from.location, 0, hold.process, hold.frame, hold.waiting});
    value.location = from.location;
  }
  for (const auto& ref : from.refs) {
    share(ref, to);
    value.refs.push_back(ref.id());
  }
  return value;
}

ObjectHandle Process::put(std::uint64_t content, std::uint64_t bytes,
                          std::vector<ObjectHandle> refs) {
  ObjectHandle handle = create();
  Entry& entry = entry_of(handle);
  entry.kind = bytes == 0 ? Kind::inline_bytes : Kind::shared;
  entry.content = content;
  if (bytes != 0) {
    entry.location = machine_.store().add(index_, content, bytes);
    entry.owns_location = true;
  }
  entry.nested = std::move(refs);
  entry.ready = true;
  machine_.truth().promise(handle.id(), content);
  return handle;
}

/// Precondition: the value is here, or its fetch has failed.
Opened Process::open(const ObjectHandle& handle) {
  const Entry& entry = entry_of(handle);
  Opened opened;
  const Entry& origin = origin_of(entry);
  Kind kind = entry.kind;
  const wire::Location* at = &entry.location;
  opened.content = entry.content;
  opened.nested = entry.nested;
  if (kind == Kind::error) {
    opened.error = entry.error;
    return opened;
  }
  if (kind == Kind::remote) {
    if (!origin.fetched) {
      opened.error = origin.fetch_error ? origin.fetch_error
                                        : Error(Code::internal, "no fetch, no error").shared_info();
      return opened;
    }
    kind = origin.fetched_kind;
    at = &origin.fetched_location;
    opened.content = origin.fetched_content;
    opened.nested = origin.fetched_nested;
  }
  if (kind == Kind::shared) {
    const Store::Object* object = machine_.store().find(*at);
    machine_.truth().check(object != nullptr, "an object that is held was freed");
    if (object != nullptr) opened.content = object->content;
  }
  machine_.truth().delivered(handle.id(), opened.content);
  return opened;
}

}  // namespace troupe::sim::cluster
