/// The engine's use of shared memory: room for large values, views of others' values, and the
/// descriptors that the agent must hand over first.
#include "troupe/runtime/base/deadline.hpp"
#include "troupe/runtime/client/engine.hpp"
#include "troupe/runtime/wire/peer.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace troupe::client {
namespace {

using namespace std::chrono_literals;
/// Added to the caller's timeout, after which the agent answers in any case.
constexpr Duration kReplicaAnswers = 10s;
/// A worker that waits for copies gives its CPU back after this.
constexpr Duration kReplicaGrace = 1ms;

/// Keeps a view alive with what it needs: the store must outlive its views.
struct Opened {
  std::shared_ptr<objectstore::Client> store;
  objectstore::Pinned pinned;
  std::vector<detail::ObjectHandle> refs;
};

class StoreBuilding final : public detail::Building {
 public:
  StoreBuilding(ClientEngine& engine, std::shared_ptr<objectstore::Client> store, std::size_t size,
                detail::CallSite at)
      : engine_(engine), store_(std::move(store)), room_(engine.make_room(size, at)) {}
  std::span<std::byte> bytes() override { return room_.bytes(); }
  detail::ObjectHandle seal(std::span<const detail::ObjectHandle> refs,
                            const detail::Replication& how) override {
    return engine_.seal_room(std::move(room_), refs, how);
  }

 private:
  ClientEngine& engine_;
  const std::shared_ptr<objectstore::Client> store_;  ///< a Builder may outlive the session
  ValueRoom room_;
};

}  // namespace

/// The next packet waits for a descriptor. Once that has lasted, all that waits for such a packet
/// ends in an error. The packet itself is taken when the program has closed files.
void ClientEngine::lacks_descriptors(BlobView packet, Time now) {
  if (agent_.socket().is_hung_up()) {
    agent_.lack().over();
    return agent_gone("the node's agent has died");
  }
  agent_.lack().met(now);
  if (!agent_.lack().is_lasting(now)) return;
  const Error error = DescriptorLack::error();
  calls_.refuse_unreachable(error);
  questions_.refuse_extents(error);
  io_loop_->notify();
  // A caller of this process cannot reach it. A worker that runs may close files; an idle one
  // hardly will.
  if (self_.kind != wire::ProcessKind::worker || callers_.work().is_serving() ||
      peers_.has_unanswered())
    return;
  if (!agent_.lack().may_end_process(now)) return;
  const auto decoded = wire::decode_node(packet);
  const auto* channel = decoded ? std::get_if<wire::Channel>(&decoded->message) : nullptr;
  if (channel != nullptr && channel->side == 1) tell(wire::Shutdown{error.message()});
}

ValueRoom ClientEngine::make_room(std::size_t size, detail::CallSite at) {
  ValueRoom room;
  room.size = size;
  if (size <= wire::kInlineValue) {
    room.inline_bytes.resize(size);
    return room;
  }
  room.site = number_of(at);
  room.allocation = std::move(store_.allocate(size)).value();
  return room;
}

/// Returns the agent's number for a call site, which the agent is told once.
std::uint32_t ClientEngine::number_of(detail::CallSite at) {
  if (const auto number = sites_.lately(at)) return *number;
  Guard lock = gate_.guard();
  const CallSites::Found found = sites_.find(at);
  if (found.fresh) tell(*found.fresh);
  gate_.unlock_and_collect(lock);
  return found.number;
}

OutgoingValue ClientEngine::finish_room(ValueRoom room,
                                        std::span<const detail::ObjectHandle> refs) {
  gate_.mark().expect_own();
  for (const auto& ref : refs) values_.expect_ours(ref);
  if (refs.size() > wire::kMaxRefs) return bundled(std::move(room), refs);
  OutgoingValue value;
  value.site = room.site;
  value.refs.assign(refs.begin(), refs.end());
  if (room.allocation) {
    value.kind = wire::Value::Kind::shared;
    value.location = store_.seal(std::move(room.allocation), room.size);
  } else {
    value.kind = wire::Value::Kind::inline_bytes;
    value.bytes = std::move(room.inline_bytes);
  }
  return value;
}

/// Seals a value with more refs than one value carries. It becomes a shared value whose refs are
/// objects, the bundles, of up to wire::kMaxRefs refs each.
OutgoingValue ClientEngine::bundled(ValueRoom room, std::span<const detail::ObjectHandle> refs) {
  constexpr std::size_t kMost = wire::kMaxRefs * wire::kMaxRefs;
  if (refs.size() > kMost)
    throw InvalidArgument(Code::invalid_argument, "a value holds " + std::to_string(refs.size()) +
                                                      " refs; at most " + std::to_string(kMost) +
                                                      " travel in one: nest them");
  if (!room.allocation) {
    room.allocation = std::move(store_.allocate(room.size)).value();
    std::memcpy(room.allocation.bytes().data(), room.inline_bytes.data(), room.size);
    room.inline_bytes.clear();
  }
  OutgoingValue value;
  value.kind = wire::Value::Kind::shared;
  value.location = store_.seal(std::move(room.allocation), room.size);
  value.bundled = true;
  value.site = room.site;
  Guard lock = gate_.guard();
  while (!refs.empty()) {
    OutgoingValue bundle;
    bundle.kind = wire::Value::Kind::inline_bytes;
    const auto some = refs.first(std::min(refs.size(), wire::kMaxRefs));
    bundle.refs.assign(some.begin(), some.end());
    refs = refs.subspan(some.size());
    value.refs.push_back(values_.object_of(std::move(bundle)));
  }
  gate_.unlock_and_collect(lock);
  return value;
}

/// Returns the refs inside bundles, in order. Blocks until all bundles are here.
Result<std::vector<detail::ObjectHandle>> ClientEngine::unbundled(
    std::span<const detail::ObjectHandle> bundles, Duration timeout) {
  // Bundles do not nest. A message that claims otherwise is refused, so that bundles cannot form
  // a circle.
  static thread_local bool inside = false;
  if (inside) return Error(Code::internal, "the refs of a value came in bundles of bundles");
  inside = true;
  struct Leave {
    ~Leave() { inside = false; }
  } const leave;
  if (std::any_of(bundles.begin(), bundles.end(),
                  [](const auto& bundle) { return !is_here(entry_of(bundle)); })) {
    Guard lock = gate_.guard();  // ask for all of them at once
    for (const auto& bundle : bundles) values_.need(entry_of(bundle), true);
    gate_.unlock_and_collect(lock);
  }
  const Time deadline = deadline_after(steady_now(), timeout);
  std::vector<detail::ObjectHandle> refs;
  for (const auto& bundle : bundles) {
    const auto part = try_get(bundle, time_left(deadline, steady_now()));
    if (!part) return part.error();
    refs.insert(refs.end(), part->refs.begin(), part->refs.end());
  }
  return refs;
}

detail::ObjectHandle ClientEngine::seal_room(ValueRoom room,
                                             std::span<const detail::ObjectHandle> refs,
                                             const detail::Replication& how) {
  if (how.replicas > 1 && refs.size() > wire::kMaxRefs)
    throw InvalidArgument(Code::invalid_argument,
                          "a value with replicas holds " + std::to_string(refs.size()) +
                              " refs; at most " + std::to_string(wire::kMaxRefs) +
                              " travel with a copy: nest them");
  OutgoingValue value = finish_room(std::move(room), refs);
  Guard lock = gate_.guard();
  detail::ObjectHandle handle = values_.object_of(std::move(value));
  if (how.replicas > 1) replicate(lock, entry_of(handle), how);
  gate_.unlock_and_collect(lock);
  return handle;
}

/// Makes the agent the owner of an object that no other process knows yet, and has other nodes
/// copy it. Blocks until they have.
void ClientEngine::replicate(Guard& lock, Entry& entry, const detail::Replication& how) {
  entry.id.low |= wire::kHasCopies;
  values_.promote(entry);
  const std::uint64_t request = questions_.ask<wire::Replicated>();
  tell(wire::Replicate{request, entry.id, static_cast<std::uint32_t>(how.replicas),
                       static_cast<std::uint64_t>(how.timeout.count())});
  const Time now = steady_now();
  const Time until = deadline_after(now, how.timeout);
  waits_.idle_until(
      lock, [&] { return questions_.is_answered(request) || agent_.is_lost(); },
      deadline_after(until, kReplicaAnswers), kReplicaGrace, now);
  const auto answered = questions_.take<wire::Replicated>(request);
  std::optional<Error> error;
  if (!answered)
    error = waits_.no_answer(
        "the node's agent did not say in time whether "
        "an object has its replicas");
  else if (answered->error)
    error = Error(*answered->error);
  if (!error) return;
  gate_.unlock_and_collect(lock);
  raise(*error);
}

detail::ObjectHandle ClientEngine::put(BlobView bytes, std::span<const detail::ObjectHandle> refs) {
  return put(bytes, refs, {"an argument"});
}

detail::ObjectHandle ClientEngine::put(BlobView bytes, std::span<const detail::ObjectHandle> refs,
                                       detail::CallSite at) {
  if (bytes.size() <= wire::kInlineValue && refs.empty()) {
    auto stored = std::allocate_shared<Stored>(FreeListAllocator<Stored>());
    stored->bytes = bytes;
    Guard lock = gate_.guard();
    detail::ObjectHandle handle = values_.objects().create();
    gate_.unlock_and_collect(lock);
    Entry& entry = entry_of(handle);
    entry.kind = wire::Value::Kind::inline_bytes;
    entry.made = Entry::Made::put;
    entry.value = std::move(stored);
    entry.ready.store(true, std::memory_order_release);
    return handle;
  }
  ValueRoom room = make_room(bytes.size(), at);
  if (!bytes.empty()) std::memcpy(room.bytes().data(), bytes.data(), bytes.size());
  return seal_room(std::move(room), refs);
}

std::unique_ptr<detail::Building> ClientEngine::create(std::size_t size, detail::CallSite at) {
  return std::make_unique<StoreBuilding>(*this, store_.client(), size, at);
}

/// Opens a value in shared memory. Blocks for refs in bundles, at most `timeout`.
Result<detail::Value> ClientEngine::open_shared(const wire::Location& at,
                                                const std::vector<detail::ObjectHandle>& nested,
                                                bool is_bundled, Duration timeout) {
  auto pinned = store_.open(at);
  if (!pinned) return pinned.error();
  auto keep = std::make_shared<Opened>();
  keep->store = store_.client();
  keep->pinned = std::move(*pinned);
  if (is_bundled) {
    auto refs = unbundled(nested, timeout);
    if (!refs) return refs.error();
    keep->refs = std::move(*refs);
  } else {
    keep->refs = nested;
  }
  return detail::Value{keep->pinned.bytes(), keep->refs, keep};
}

/// Returns a view of the object's value. Precondition: is_here. Error object_lost: another thread
/// has just found it lost.
Result<detail::Value> ClientEngine::materialise(const detail::ObjectHandle& handle,
                                                Duration timeout) {
  const Entry& entry = origin_of(entry_of(handle));
  // Another thread has just found it lost.
  const auto moved = [] { return Error(Code::object_lost, "the object is computed again"); };
  if (!entry.ready.load(std::memory_order_acquire)) return moved();
  switch (entry.kind) {
    case wire::Value::Kind::inline_bytes:
      return detail::Value{entry.value->bytes, entry.value->handles(), entry.value};
    case wire::Value::Kind::shared:
      return open_shared(entry.location, entry.nested, entry.bundled, timeout);
    case wire::Value::Kind::error: return Error(*entry.error);
    case wire::Value::Kind::remote: {
      const Fetched* fetched = entry.fetched.load(std::memory_order_acquire);
      if (fetched == nullptr) return moved();
      if (!fetched->value)
        return open_shared(fetched->location, fetched->nested, fetched->bundled, timeout);
      return detail::Value{fetched->value->bytes, fetched->value->handles(), fetched->value};
    }
    case wire::Value::Kind::pending:
    case wire::Value::Kind::forwarded: break;
  }
  return Error(Code::internal, "a ready object has no value");
}

/// Returns handles of the objects that the sender has counted for this process, by argument: the
/// refs inside it, or the object of a forwarded argument, whose bytes are asked for. Empty when
/// there are none.
std::vector<std::vector<detail::ObjectHandle>> ClientEngine::adopt_arguments(
    const wire::Call& call) {
  std::vector<std::vector<detail::ObjectHandle>> held;
  const auto is_forwarded = [](const wire::Value& argument) {
    return argument.kind == wire::Value::Kind::forwarded;
  };
  if (std::none_of(call.arguments.begin(), call.arguments.end(), [&](const wire::Value& argument) {
        return is_forwarded(argument) || !argument.refs.empty();
      }))
    return held;
  held.reserve(call.arguments.size());
  Guard lock = gate_.guard();
  for (const auto& argument : call.arguments) {
    if (!is_forwarded(argument)) {
      held.push_back(values_.adopt_refs(argument.refs));
      continue;
    }
    held.emplace_back().push_back(values_.adopt_one(argument.forward));
    values_.need(entry_of(held.back().front()), true);
  }
  gate_.unlock_and_collect(lock);
  return held;
}

std::vector<detail::Value> ClientEngine::open_arguments(const wire::Call& call, BlobView payload,
                                                        LostArgument& lost) {
  // The caller of an actor cannot send the call again: it would come after later ones.
  const bool is_task = call.actor_low == 0;
  const auto opened = [&](std::size_t i, Result<detail::Value> value) {
    if (!value && is_task && value.error().code() == Code::object_lost)
      lost = {static_cast<std::uint16_t>(i + 1), call.arguments[i].forward};
    return std::move(value).value();
  };
  std::vector<detail::Value> values;
  values.reserve(call.arguments.size());
  auto held = adopt_arguments(call);
  for (std::size_t i = 0; i < call.arguments.size(); ++i) {
    const wire::Value& argument = call.arguments[i];
    std::vector<detail::ObjectHandle> refs;
    if (!held.empty()) refs = std::move(held[i]);
    switch (argument.kind) {
      case wire::Value::Kind::inline_bytes: {
        const BlobView bytes = payload.subspan(argument.payload_offset, argument.payload_size);
        auto one = std::make_shared<Stored>();
        one->bytes = bytes;
        one->refs = std::move(refs);
        values.push_back({one->bytes, *one->refs, one});
        break;
      }
      case wire::Value::Kind::shared:
        values.push_back(
            opened(i, open_shared(argument.location, refs, argument.ref_count > wire::kMaxRefs,
                                  detail::kNoTimeout)));
        break;
      case wire::Value::Kind::forwarded:
        values.push_back(is_task
                             ? opened(i, open_once(refs.front(), Time::max(), detail::kNoTimeout))
                             : get(refs.front(), detail::kNoTimeout));
        break;
      case wire::Value::Kind::error: raise(Error(*argument.error));
      case wire::Value::Kind::pending:
      case wire::Value::Kind::remote:
        throw InvalidArgument(Code::invalid_argument, "an argument arrived without a value");
    }
  }
  return values;
}

}  // namespace troupe::client
