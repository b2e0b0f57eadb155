/// The engine's values and references: settling, promoting, counting holders, encoding. All under
/// the lock, except where a comment says otherwise.
#include "troupe/runtime/base/wait.hpp"
#include "troupe/runtime/client/engine.hpp"

#include <algorithm>
#include <utility>

namespace troupe::client {
namespace {

/// The number of frames that may wait for the agent before this process waits, too. Far below the
/// number at which a channel refuses frames.
constexpr std::size_t kMostWaiting = 1 << 16;
static_assert(kMostWaiting < ring::kMaxOverflow);

}  // namespace

// --- settling

std::shared_ptr<const Stored> ClientEngine::stored(const wire::Value& value, BlobView payload) {
  auto stored = std::allocate_shared<Stored>(FreeListAllocator<Stored>());
  stored->bytes = payload.subspan(value.payload_offset, value.payload_size);
  if (!value.refs.empty()) stored->refs = adopt_refs(value.refs);
  return stored;
}

/// Gives the entry a value that arrived. `holder`: the node with the bytes of a remote value.
/// Precondition: the entry is not ready.
void ClientEngine::settle(Entry& entry, const wire::Value& value, BlobView payload, NodeId holder) {
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
    case wire::Value::Kind::forwarded:
      return settle_forward(entry, std::move(adopt_refs({&value.forward, 1}).front()));
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
void ClientEngine::settle_forward(Entry& entry, detail::ObjectHandle source) {
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
    tell_agent(wire::Fulfil{entry.id, outgoing_forward(entry.source, for_agent())});
  }
  follow(entry);
}

/// Handles Ready for an entry that is ready: the bytes of a remote value. Anything else is given
/// back.
void ClientEngine::arrive(Entry& entry, const wire::Value& value, BlobView payload) {
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

/// Copies the value of the entry's source, now or when that is ready. If the source is remote,
/// the entry is remote, too; the bytes are looked up at the source.
void ClientEngine::follow(Entry& entry) {
  Entry& source = entry_of(entry.source);
  if (!source.ready.load(std::memory_order_relaxed)) {
    entry.handles.fetch_add(1, std::memory_order_relaxed);
    source.waiters.edit().push_back({&go_on_following, &entry});
    need(source, entry.wants_bytes);
    return;
  }
  if (source.kind == wire::Value::Kind::error && source.error->code == Code::object_lost) {
    Error error(*source.error);
    if (!recover_pending(entry, error)) settle_error(entry, error);
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

void ClientEngine::go_on_following(ClientEngine& engine, void* who, Entry&) {
  auto* follower = static_cast<Entry*>(who);
  const auto keep = detail::ObjectHandle::adopt(follower);  // the count that follow() took
  // It got its value from another source.
  if (follower->ready.load(std::memory_order_relaxed)) return;
  engine.follow(*follower);
}

/// Drops the counts that follow() took, when nothing will be answered any more. Otherwise a
/// follower and its source would keep each other for ever.
void ClientEngine::end_following() {
  std::vector<detail::ObjectHandle> followers;
  const auto leave = [&followers](Entry& source) {
    if (source.waiters->empty()) return;
    std::erase_if(source.waiters.edit(), [&](const Waiter& waiter) {
      if (waiter.fire != &go_on_following) return false;
      followers.push_back(detail::ObjectHandle::adopt(static_cast<Entry*>(waiter.who)));
      return true;
    });
  };
  objects_->each_promoted(leave);
  tasks_.each([&leave](const Task& task) {  // a recompute target need not be promoted
    for (const auto& result : task.results) leave(entry_of(result));
  });
}

void ClientEngine::settle_error(Entry& entry, const Error& error) {
  if (entry.ready.load(std::memory_order_relaxed)) return;
  entry.kind = wire::Value::Kind::error;
  entry.error = error.shared_info();
  finish_settling(entry);
}

void ClientEngine::finish_settling(Entry& entry) {
  if (entry.kind == wire::Value::Kind::shared && !entry.source)
    entry.owns_location = !entry.promoted;
  if (entry.fulfil) {
    entry.fulfil = false;
    Blob payload;
    wire::Fulfil message;
    message.object = entry.id;
    message.value = record_of(entry, payload);
    tell_agent(message, payload);
  }
  entry.ready.store(true, std::memory_order_release);
  // A waiter may submit, fail or release other objects, but never waits for this entry again.
  wake(entry);
}

/// Fires the entry's waiters: now, or after the waiters that are being fired.
void ClientEngine::wake(Entry& entry) {
  if (entry.waiters.written() && !entry.waiters->empty()) {
    woken_.push_back({ObjectTable::keep(entry), entry.waiters.take()});
    TROUPE_ASSERT(woken_.back().entry, "who waits for an object holds it");
    if (!std::exchange(waking_, true)) fire_woken();
  }
  if (io_loop_) io_loop_->notify();
}

void ClientEngine::fire_woken() {
  while (!woken_.empty()) {
    const Woken woken = std::move(woken_.front());
    woken_.pop_front();
    for (const Waiter& waiter : woken.waiters)
      waiter.fire(*this, waiter.who, entry_of(woken.entry));
  }
  waking_ = false;
}

// --- references

/// Sends Await for an object that others compute: the agent answers with Ready when the object is
/// ready and, if `bytes`, when its bytes are here. For a forwarded object the source is asked. An
/// object that has no source yet remembers the wish.
void ClientEngine::need(Entry& entry, bool bytes) {
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
  tell_agent(wire::Await{at->id, at->wants_bytes});
}

/// Returns the value that the agent will keep for a ready object of ours.
wire::Value ClientEngine::record_of(Entry& entry, Blob& payload) {
  if (Entry* target = entry.recompute_target.load(std::memory_order_relaxed))
    return outgoing_forward(ObjectTable::keep(*target), for_agent());
  if (entry.kind != wire::Value::Kind::remote &&
      !(entry.source && entry.kind == wire::Value::Kind::shared))
    return outgoing_entry(entry, for_agent(), payload);
  TROUPE_ASSERT(static_cast<bool>(entry.source), "the bytes of our own object are here");
  return outgoing_forward(entry.source, for_agent());
}

/// Returns the i-th object that the record of a ready entry (record_of()) names, or nullptr.
Entry* ClientEngine::named_by(const Entry& entry, std::size_t i) {
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

/// Hands the entry's record to the agent; this process keeps one count. The objects that the
/// record names are promoted before it, however deep they lie. A stack of its own replaces
/// recursion.
void ClientEngine::promote(Entry& entry) {
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
  tell_calls();
}

void ClientEngine::tell_promotion(Entry& entry) {
  wire::Promote message;
  message.object = entry.id;
  Blob payload;
  if (entry.ready.load(std::memory_order_relaxed)) {
    message.value = record_of(entry, payload);
    entry.owns_location = false;
  } else {
    entry.fulfil = true;
  }
  tell_agent(message, payload);
  // The task has ended if the entry is ready, or is pending only for its source. Then its call
  // can be told to the agent.
  if (!entry.fulfil || entry.source) outlive(entry);
}

/// Counts the receiver as a holder of an object that a frame will name. This must precede the
/// frame (RUN-4). The agent itself counts the refs that it receives.
void ClientEngine::share(const detail::ObjectHandle& handle, const Receiver& to) {
  Entry& entry = entry_of(handle);
  promote(entry);
  if (to.holder != kAgentProcess)
    tell_agent(wire::Hold{entry.id, to.holder, +1, to.frame, to.waiting});
}

/// Returns a handle of the entry with this id, parked or not; an empty one when there is none.
detail::ObjectHandle ClientEngine::find_held(ObjectId id) {
  while (Entry* entry = objects_->find(id)) {
    if (detail::ObjectHandle handle = lineage_.revive(*entry)) return handle;
    collect_released();  // its last handle is going right now: then it is parked, or gone
  }
  return {};
}

/// Returns a handle for an id that arrived in a message. `fresh`: the entry is new and takes over
/// the count that the sender has taken. Otherwise the caller returns that count.
detail::ObjectHandle ClientEngine::adopt(ObjectId id, bool& fresh) {
  detail::ObjectHandle handle = find_held(id);
  fresh = !handle;
  return fresh ? objects_->adopt(id) : handle;
}

std::vector<detail::ObjectHandle> ClientEngine::adopt_refs(std::span<const ObjectId> ids) {
  std::vector<detail::ObjectHandle> handles;
  handles.reserve(ids.size());
  for (const ObjectId id : ids) {
    bool fresh = false;
    handles.push_back(adopt(id, fresh));
    if (!fresh)
      tell_agent(wire::Hold{id, process_, -1});  // the sender counted us once more than we need
  }
  return handles;
}

void ClientEngine::drop_refs(const wire::Call& call) {
  for (const auto& argument : call.arguments) give_back(argument);
}

/// Returns the counts of the refs in a value that is not wanted.
void ClientEngine::give_back(const wire::Value& value) {
  for (const ObjectId id : value.refs) tell_agent(wire::Hold{id, process_, -1});
  if (value.kind == wire::Value::Kind::forwarded)
    tell_agent(wire::Hold{value.forward, process_, -1});
}

/// As give_back(), and frees the value's place in shared memory, which the sender gave away with
/// it.
void ClientEngine::discard(const wire::Value& value) {
  give_back(value);
  if (value.kind == wire::Value::Kind::shared) tell_agent(wire::Free{value.location});
}

void ClientEngine::collect_released() {
  report_unpins();
  if (released_.load(std::memory_order_acquire) == nullptr) return;  // mostly; costs no write
  Entry* entry = released_.exchange(nullptr, std::memory_order_seq_cst);
  while (entry != nullptr) {
    Entry* next = entry->next_released;
    free_entry(entry);
    entry = next;
    if (entry == nullptr) entry = released_.exchange(nullptr, std::memory_order_seq_cst);
  }
}

void ClientEngine::free_entry(Entry* entry) {
  entry->next_released = nullptr;
  if (entry->lineage_uses != 0 && lineage_.park(*entry)) return;
  objects_->erase(*entry);
  if (entry->made_by != nullptr) hand_over_lineage(*entry);
  if (entry->promoted)
    tell_agent(wire::Hold{entry->id, process_, -1});
  else if (entry->owns_location && entry->adopted)
    tell_agent(wire::Free{entry->location});
  else if (entry->owns_location)
    store_.drop(entry->location);
  delete entry;  // handles inside go to released_ and are collected next
}

// --- values on their way out

wire::Value ClientEngine::outgoing_entry(Entry& entry, const Receiver& to, Blob& payload) {
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
      if (!entry.adopted)
        tell_agent(wire::Adopt{entry.location, static_cast<std::uint32_t>(entry.site)});
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

/// Encodes the value of an object as the receiver can use it. A reference goes out for an object
/// that is not ready, lies at another node, or lies in memory that the receiver cannot read.
wire::Value ClientEngine::outgoing(const detail::ObjectHandle& handle, const Receiver& to,
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

wire::Value ClientEngine::outgoing_forward(const detail::ObjectHandle& handle, const Receiver& to) {
  share(handle, to);
  wire::Value value;
  value.kind = wire::Value::Kind::forwarded;
  value.forward = handle.id();
  return value;
}

wire::Value ClientEngine::outgoing(const OutgoingValue& from, const Receiver& to, Blob& payload) {
  wire::Value value;
  value.kind = from.kind;
  value.error = from.error;
  if (from.kind == wire::Value::Kind::forwarded) return outgoing_forward(from.forward, to);
  if (from.kind == wire::Value::Kind::inline_bytes) append_inline(value, from.bytes, payload);
  if (from.kind == wire::Value::Kind::shared) {
    if (to.by_reference) return outgoing_forward(object_of(from), to);
    tell_agent(wire::Adopt{from.location, from.site, to.holder, to.frame, to.waiting});
    value.location = from.location;
    value.ref_count = from.bundled ? kBundled : 0;
  }
  for (const auto& ref : from.refs) {
    share(ref, to);
    value.refs.push_back(ref.id());
  }
  return value;
}

/// Makes an object of this process from a sealed value.
detail::ObjectHandle ClientEngine::object_of(OutgoingValue value) {
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

// --- the agent

void ClientEngine::tell_agent(const wire::NodeMessage& message, BlobView payload) {
  if (agent_lost_) return;
  if (!agent_.send(writer_.encode(message), payload))
    return agent_gone("the queue to the node's agent is full");
  if (agent_.waiting() >= kMostWaiting) settle_agent_queue();
}

/// Waits until the agent's ring has taken all messages that are queued for it. Counts for
/// receivers must be in the agent's ring before the message that carries the refs is in the
/// receiver's ring (RUN-4): the agent frees only what no published message can still name. The
/// agent never blocks, so this is short.
void ClientEngine::settle_agent_queue() {
  if (agent_.waiting() == 0) return;
  constexpr Duration kReads = std::chrono::seconds(5);
  std::size_t waiting = agent_.waiting();
  Time deadline = steady_now() + kReads;
  while (!agent_.flush()) {
    const Time now = steady_now();
    if (agent_.waiting() < waiting) {
      waiting = agent_.waiting();
      deadline = now + kReads;
    }
    if (now >= deadline) {
      agent_gone("the node's agent did not read its ring for 5 s");
      return;
    }
    agent_.peer_doorbell().nudge();
    yield();
  }
}

}  // namespace troupe::client
