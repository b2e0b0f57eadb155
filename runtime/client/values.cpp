#include "troupe/runtime/client/values.hpp"

#include <algorithm>
#include <utility>

namespace troupe::client {

Error Values::of_another_session() {
  return Error(Code::invalid_argument,
               "this Ref, or handle of an actor, is of a session that has ended, and what it named "
               "went with that",
               Outcome::not_executed);
}

// --- settling

std::shared_ptr<const Stored> Values::stored(const wire::Value& value, BlobView payload) {
  auto stored = std::allocate_shared<Stored>(FreeListAllocator<Stored>());
  stored->bytes = payload.subspan(value.payload_offset, value.payload_size);
  if (!value.refs.empty()) stored->refs = adopt_refs(value.refs);
  return stored;
}

void Values::settle(Entry& entry, const wire::Value& value, BlobView payload, NodeId holder) {
  if (entry.rebuilding) {
    entry.rebuilding = false;
    entry.refused = value.kind == wire::Value::Kind::error;
  }
  switch (value.kind) {
    case wire::Value::Kind::pending:  // a result of type void
      entry.kind = wire::Value::Kind::inline_bytes;
      entry.value = std::make_shared<const Stored>();
      break;
    case wire::Value::Kind::inline_bytes:
      entry.kind = wire::Value::Kind::inline_bytes;
      entry.value = stored(value, payload);
      break;
    case wire::Value::Kind::shared:
      entry.kind = wire::Value::Kind::shared;
      entry.location = value.location;
      entry.nested = adopt_refs(value.refs);
      entry.bundled = value.ref_count > wire::kMaxRefs;
      entry.adopted = true;
      break;
    case wire::Value::Kind::error:
      entry.kind = wire::Value::Kind::error;
      entry.error = value.error;
      break;
    case wire::Value::Kind::forwarded: return settle_forward(entry, adopt_one(value.forward));
    case wire::Value::Kind::remote:
      if (!entry.promoted || entry.fulfil) {  // the agent could not fetch it
        give_back(value);
        return settle_error(entry, Error(Code::internal, "a result came without its bytes"));
      }
      entry.kind = wire::Value::Kind::remote;
      entry.nested = adopt_refs(value.refs);
      entry.location.edit().length = value.remote_bytes;
      entry.location.edit().segment = classes_.number_of(holder);
      break;
  }
  finish_settling(entry);
}

/// Gives the entry the value of another object. Precondition: the entry is not ready.
void Values::settle_forward(Entry& entry, detail::ObjectHandle source) {
  for (const Entry* at = &entry_of(source); at != nullptr;
       at = at->source ? &entry_of(at->source) : nullptr)
    if (at == &entry)
      return settle_error(entry, Error(Code::invalid_argument,
                                       "the object was forwarded to itself: it has no value"));
  entry.source = std::move(source);
  if (entry.fulfil && !entry_of(entry.source).ready.load(std::memory_order_relaxed)) {
    // Others wait for it at the agent, which can follow the source by itself. This process may
    // end before the source is ready.
    entry.fulfil = false;
    tell(wire::Fulfil{entry.id, outgoing_forward(entry.source, for_agent())});
  }
  follow(entry);
}

void Values::arrive(Entry& entry, const wire::Value& value, BlobView payload) {
  const bool wanted = entry.kind == wire::Value::Kind::remote && !entry.source &&
                      entry.fetched.load(std::memory_order_relaxed) == nullptr;
  if (!wanted || value.kind == wire::Value::Kind::remote) return give_back(value);
  auto fetched = std::make_unique<Fetched>();
  switch (value.kind) {
    case wire::Value::Kind::inline_bytes: fetched->value = stored(value, payload); break;
    case wire::Value::Kind::shared:
      fetched->location = value.location;
      fetched->nested = adopt_refs(value.refs);
      fetched->bundled = value.ref_count > wire::kMaxRefs;
      break;
    case wire::Value::Kind::error:
      fetched.reset();
      entry.fetch_error = value.error;
      break;
    case wire::Value::Kind::pending:
    case wire::Value::Kind::forwarded:
    case wire::Value::Kind::remote:
      give_back(value);
      fetched.reset();
      entry.fetch_error =
          Error(Code::internal, "the bytes of an object came without bytes").shared_info();
      break;
  }
  if (fetched)
    entry.fetched.store(fetched.release(), std::memory_order_release);
  else
    entry.fetching = false;  // the next need() asks again
  wake(entry);
}

/// If the source is remote, the entry is remote, too; the bytes are looked up at the source.
void Values::follow(Entry& entry) {
  Entry& source = entry_of(entry.source);
  if (!source.ready.load(std::memory_order_relaxed)) {
    entry.handles.fetch_add(1, std::memory_order_relaxed);
    source.waiters.edit().push_back({nullptr, &entry});
    need(source, entry.wants_bytes);
    return;
  }
  if (source.kind == wire::Value::Kind::error && source.error->code == Code::object_lost) {
    Error error(*source.error);
    if (!lost_.recover_pending(entry, error)) settle_error(entry, error);
    return;
  }
  entry.kind = source.kind;
  entry.value = source.value;
  entry.location = source.location;
  entry.nested = source.nested;
  entry.bundled = source.bundled;
  entry.adopted = source.adopted;
  entry.error = source.error;
  if (entry.kind == wire::Value::Kind::remote && entry.wants_bytes) need(source, true);
  finish_settling(entry);
}

/// The count that follow() took goes with the waiter.
void Values::unfollow(Entry& entry) {
  Entry& source = entry_of(entry.source);
  if (source.waiters->empty()) return;
  const std::size_t waited = std::erase_if(
      source.waiters.edit(), [&](const Waiter& waiter) { return waiter.who == &entry; });
  for (std::size_t i = 0; i < waited; ++i) detail::ObjectHandle::adopt(&entry);
}

void Values::leave(Entry& source, std::vector<detail::ObjectHandle>& followers) {
  if (source.waiters->empty()) return;
  std::erase_if(source.waiters.edit(), [&](const Waiter& waiter) {
    if (waiter.fire != nullptr) return false;
    followers.push_back(detail::ObjectHandle::adopt(static_cast<Entry*>(waiter.who)));
    return true;
  });
}

void Values::go_on_following(Entry& follower) {
  const auto keep = detail::ObjectHandle::adopt(&follower);  // the count that follow() took
  // It got its value from another source.
  if (follower.ready.load(std::memory_order_relaxed)) return;
  follow(follower);
}

void Values::settle_error(Entry& entry, const Error& error) {
  if (entry.ready.load(std::memory_order_relaxed)) return;
  entry.kind = wire::Value::Kind::error;
  entry.error = error.shared_info();
  finish_settling(entry);
}

void Values::finish_settling(Entry& entry) {
  if (entry.kind == wire::Value::Kind::shared && !entry.source)
    entry.owns_location = !entry.promoted;
  if (entry.fulfil) {
    entry.fulfil = false;
    Blob payload;
    wire::Fulfil message;
    message.object = entry.id;
    message.value = record_of(entry, payload);
    tell(message, payload);
  }
  entry.ready.store(true, std::memory_order_release);
  // A waiter may submit, fail or release other objects, but never waits for this entry again.
  wake(entry);
}

void Values::wake_waiters(Entry& entry) {
  woken_.push_back({ObjectTable::keep(entry), entry.waiters.take()});
  TROUPE_ASSERT(woken_.back().entry, "who waits for an object holds it");
  if (!std::exchange(waking_, true)) fire_woken();
}

void Values::fire_woken() {
  while (!woken_.empty()) {
    const Woken woken = std::move(woken_.front());
    woken_.pop_front();
    for (const Waiter& waiter : woken.waiters) {
      if (waiter.fire != nullptr)
        out_.fire(waiter, entry_of(woken.entry));
      else
        go_on_following(*static_cast<Entry*>(waiter.who));
    }
  }
  waking_ = false;
}

void Values::drop_own(const OutgoingValue& value) {
  if (value.kind == wire::Value::Kind::shared) store_.drop(value.location);
}

void Values::settle_own(Entry& entry, OutgoingValue value) {
  switch (value.kind) {
    case wire::Value::Kind::pending:
    case wire::Value::Kind::remote:
      return settle_error(entry, Error(Code::internal, "a result came without a value"));
    case wire::Value::Kind::inline_bytes: {
      auto stored = std::allocate_shared<Stored>(FreeListAllocator<Stored>());
      stored->bytes = std::move(value.bytes);
      if (!value.refs.empty()) stored->refs = std::move(value.refs);
      entry.kind = value.kind;
      entry.value = std::move(stored);
      break;
    }
    case wire::Value::Kind::shared:
      entry.kind = value.kind;
      entry.location = value.location;
      entry.nested = std::move(value.refs);
      entry.bundled = value.bundled;
      entry.site = value.site;
      if (entry.promoted) {
        tell(wire::Adopt{entry.location, value.site});
        entry.adopted = true;
      } else {
        objects_->add_own(entry);
      }
      break;
    case wire::Value::Kind::error:
      entry.kind = value.kind;
      entry.error = value.error;
      break;
    case wire::Value::Kind::forwarded: return settle_forward(entry, std::move(value.forward));
  }
  finish_settling(entry);
}

// --- references

void Values::need(Entry& entry, bool bytes) {
  Entry* at = &entry;
  at->wants_bytes |= bytes;
  while (Entry* next = next_of(*at)) {
    if (at->rebuilding) return;  // the chain is about to end elsewhere
    at = next;
    at->wants_bytes |= bytes;
  }
  if (at->rebuilding) return;
  if (!at->promoted || at->fulfil || (bytes ? at->fetching : at->awaited)) return;
  if (at->ready.load(std::memory_order_relaxed) && (!bytes || is_here(*at))) return;
  at->awaited = true;
  ++at->awaits;
  at->fetching = at->wants_bytes;
  tell(wire::Await{at->id, at->wants_bytes});
}

/// Returns the value that the agent will keep for a ready object of ours.
wire::Value Values::record_of(Entry& entry, Blob& payload) {
  if (Entry* target = entry.recompute_target.load(std::memory_order_relaxed))
    return outgoing_forward(ObjectTable::keep(*target), for_agent());
  if (entry.kind != wire::Value::Kind::remote &&
      !(entry.source && entry.kind == wire::Value::Kind::shared))
    return outgoing_entry(entry, for_agent(), payload);
  TROUPE_ASSERT(static_cast<bool>(entry.source), "the bytes of our own object are here");
  return outgoing_forward(entry.source, for_agent());
}

/// Returns the i-th object that the record of a ready entry (record_of()) names, or nullptr.
Entry* Values::named_by(const Entry& entry, std::size_t i) {
  if (Entry* target = entry.recompute_target.load(std::memory_order_relaxed))
    return i == 0 ? target : nullptr;
  const bool is_shared = entry.kind == wire::Value::Kind::shared;
  if (entry.kind == wire::Value::Kind::remote || (is_shared && entry.source))
    return i == 0 && entry.source ? &entry_of(entry.source) : nullptr;
  std::span<const detail::ObjectHandle> refs;
  if (is_shared) refs = *entry.nested;
  if (entry.kind == wire::Value::Kind::inline_bytes) refs = entry.value->handles();
  return i < refs.size() ? &entry_of(refs[i]) : nullptr;
}

/// The objects that the record names are promoted before it, however deep they lie. A stack of its
/// own replaces recursion.
void Values::promote(Entry& entry) {
  if (entry.promoted) return;
  struct Step {
    Entry* entry;
    std::size_t named = 0;  ///< how many of the named ones are done
  };
  std::vector<Step> way;
  const auto enter = [&](Entry& at) {
    objects_->mark_promoted(at);
    if (at.ready.load(std::memory_order_relaxed) && named_by(at, 0) != nullptr)
      way.push_back(Step{&at});
    else
      tell_promotion(at);
  };
  for (enter(entry); !way.empty();) {
    Step& step = way.back();
    Entry* inner = named_by(*step.entry, step.named++);
    if (inner == nullptr) {
      Entry& all_known = *step.entry;
      way.pop_back();
      tell_promotion(all_known);
    } else if (!inner->promoted) {
      enter(*inner);
    }
  }
  lost_.tell_calls();
}

void Values::tell_promotion(Entry& entry) {
  wire::Promote message;
  message.object = entry.id;
  Blob payload;
  if (entry.ready.load(std::memory_order_relaxed)) {
    message.value = record_of(entry, payload);
    entry.owns_location = false;
  } else {
    entry.fulfil = true;
  }
  tell(message, payload);
  // The task has ended if the entry is ready, or is pending only for its source. Then its call
  // can be told to the agent.
  if (!entry.fulfil || entry.source) lost_.outlive(entry);
}

/// The agent itself counts the refs that it receives.
void Values::share(const detail::ObjectHandle& handle, const Receiver& to) {
  Entry& entry = entry_of(handle);
  promote(entry);
  if (to.holder != kAgentProcess) tell(wire::Hold{entry.id, to.holder, +1, to.frame, to.waiting});
}

void Values::unshare(ObjectId id, const Receiver& to) {
  if (to.holder != kAgentProcess) tell(wire::Hold{id, to.holder, -1, to.frame, to.waiting});
}

detail::ObjectHandle Values::find_held(ObjectId id) {
  while (Entry* entry = objects_->find(id)) {
    if (detail::ObjectHandle handle = lost_.revive(*entry)) return handle;
    out_.collect_released();  // its last handle is going right now: then it is parked, or gone
  }
  return {};
}

detail::ObjectHandle Values::adopt(ObjectId id, bool& fresh) {
  detail::ObjectHandle handle = find_held(id);
  fresh = !handle;
  return fresh ? objects_->adopt(id) : handle;
}

detail::ObjectHandle Values::adopt_one(ObjectId id) {
  bool fresh = false;
  detail::ObjectHandle handle = adopt(id, fresh);
  if (!fresh) tell(wire::Hold{id, self_, -1});  // the sender counted us once more than we need
  return handle;
}

std::vector<detail::ObjectHandle> Values::adopt_refs(std::span<const ObjectId> ids) {
  std::vector<detail::ObjectHandle> handles;
  handles.reserve(ids.size());
  for (const ObjectId id : ids) handles.push_back(adopt_one(id));
  return handles;
}

void Values::drop_refs(const wire::Call& call) {
  for (const auto& argument : call.arguments) give_back(argument);
}

void Values::give_back(const wire::Value& value) {
  for (const ObjectId id : value.refs) tell(wire::Hold{id, self_, -1});
  if (value.kind == wire::Value::Kind::forwarded) tell(wire::Hold{value.forward, self_, -1});
}

void Values::discard(const wire::Value& value) {
  give_back(value);
  if (value.kind == wire::Value::Kind::shared) tell(wire::Free{value.location});
}

void Values::free(Entry* entry) {
  entry->next_released = nullptr;
  if (entry->lineage_uses != 0 && lost_.park(*entry)) return;
  objects_->erase(*entry);
  if (entry->made_by != nullptr) lost_.hand_over(*entry);
  if (entry->promoted)
    tell(wire::Hold{entry->id, self_, -1});
  else if (entry->owns_location && entry->adopted)
    tell(wire::Free{entry->location});
  else if (entry->owns_location)
    store_.drop(entry->location);
  delete entry;  // handles inside go to released_ and are collected next
}

void Values::tell_fulfilled(Entry& result) {
  Blob record;
  wire::Fulfil message;
  message.object = result.id;
  message.value = result.ready.load(std::memory_order_relaxed)
                      ? record_of(result, record)
                      : outgoing_forward(result.source, for_agent());
  tell(message, record);
}

// --- values on their way out

wire::Value Values::outgoing_entry(Entry& entry, const Receiver& to, Blob& payload) {
  wire::Value value;
  value.kind = entry.kind;
  switch (entry.kind) {
    case wire::Value::Kind::inline_bytes:
      append_inline(value, entry.value->bytes, payload);
      for (const auto& ref : entry.value->handles()) {
        share(ref, to);
        value.refs.push_back(ref.id());
      }
      break;
    case wire::Value::Kind::shared:
      if (!entry.adopted) tell(wire::Adopt{entry.location, static_cast<std::uint32_t>(entry.site)});
      entry.adopted = true;
      value.location = entry.location;
      value.ref_count = entry.bundled ? kBundled : 0;
      for (const auto& ref : *entry.nested) {
        share(ref, to);
        value.refs.push_back(ref.id());
      }
      break;
    case wire::Value::Kind::error: value.error = entry.error; break;
    case wire::Value::Kind::pending:
    case wire::Value::Kind::forwarded:
    case wire::Value::Kind::remote: break;
  }
  return value;
}

/// A reference goes out for an object that is not ready, lies at another node, or lies in memory
/// that the receiver cannot read.
wire::Value Values::outgoing(const detail::ObjectHandle& handle, const Receiver& to,
                             Blob& payload) {
  Entry& entry = entry_of(handle);
  const bool in_memory = entry.kind == wire::Value::Kind::shared;
  const bool moved = entry.recompute_target.load(std::memory_order_relaxed) != nullptr;
  if (!to.only_references && entry.ready.load(std::memory_order_relaxed) &&
      entry.kind != wire::Value::Kind::remote && !moved && !(in_memory && to.by_reference))
    return outgoing_entry(entry, to, payload);
  Entry* at = &entry;
  while (!(to.recovers && at->made_by != nullptr) && next_of(*at) != nullptr) at = next_of(*at);
  return outgoing_forward(ObjectTable::keep(*at), to);
}

wire::Value Values::outgoing_forward(const detail::ObjectHandle& handle, const Receiver& to) {
  share(handle, to);
  wire::Value value;
  value.kind = wire::Value::Kind::forwarded;
  value.forward = handle.id();
  return value;
}

wire::Value Values::outgoing(const OutgoingValue& from, const Receiver& to, Blob& payload) {
  wire::Value value;
  value.kind = from.kind;
  value.error = from.error;
  if (from.kind == wire::Value::Kind::forwarded) return outgoing_forward(from.forward, to);
  if (from.kind == wire::Value::Kind::inline_bytes) append_inline(value, from.bytes, payload);
  if (from.kind == wire::Value::Kind::shared) {
    if (to.by_reference) return outgoing_forward(object_of(from), to);
    tell(wire::Adopt{from.location, from.site, to.holder, to.frame, to.waiting});
    value.location = from.location;
    value.ref_count = from.bundled ? kBundled : 0;
  }
  for (const auto& ref : from.refs) {
    share(ref, to);
    value.refs.push_back(ref.id());
  }
  return value;
}

detail::ObjectHandle Values::object_of(OutgoingValue value) {
  detail::ObjectHandle handle = objects_->create();
  Entry& entry = entry_of(handle);
  entry.kind = value.kind;
  entry.made = Entry::Made::put;
  entry.site = value.site;
  if (value.kind == wire::Value::Kind::shared) {
    entry.location = value.location;
    entry.owns_location = true;
    entry.nested = std::move(value.refs);
    entry.bundled = value.bundled;
    objects_->add_own(entry);
  } else {
    auto stored = std::allocate_shared<Stored>(FreeListAllocator<Stored>());
    stored->bytes = std::move(value.bytes);
    stored->refs = std::move(value.refs);
    entry.value = std::move(stored);
  }
  entry.ready.store(true, std::memory_order_release);
  return handle;
}

}  // namespace troupe::client
