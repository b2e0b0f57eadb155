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

class StoreBuilding final : public detail::Building {
 public:
  StoreBuilding(ClientEngine& engine, std::shared_ptr<objectstore::Client> store, std::size_t size,
                detail::CallSite at)
      : engine_(engine),
        store_(std::move(store)),
        room_(engine.value_bytes().make_room(size, at)) {}
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

detail::ObjectHandle ClientEngine::seal_room(ValueRoom room,
                                             std::span<const detail::ObjectHandle> refs,
                                             const detail::Replication& how) {
  if (how.replicas > 1 && refs.size() > wire::kMaxRefs)
    throw InvalidArgument(Code::invalid_argument,
                          "a value with replicas holds " + std::to_string(refs.size()) +
                              " refs; at most " + std::to_string(wire::kMaxRefs) +
                              " travel with a copy: nest them");
  OutgoingValue value = value_bytes_.finish_room(std::move(room), refs);
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
  ValueRoom room = value_bytes_.make_room(bytes.size(), at);
  if (!bytes.empty()) std::memcpy(room.bytes().data(), bytes.data(), bytes.size());
  return seal_room(std::move(room), refs);
}

std::unique_ptr<detail::Building> ClientEngine::create(std::size_t size, detail::CallSite at) {
  return std::make_unique<StoreBuilding>(*this, store_.client(), size, at);
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
  auto held = value_bytes_.adopt_arguments(call);
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
        values.push_back(opened(
            i, value_bytes_.open_shared(argument.location, refs,
                                        argument.ref_count > wire::kMaxRefs, detail::kNoTimeout)));
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
