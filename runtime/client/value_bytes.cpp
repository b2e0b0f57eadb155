#include "troupe/runtime/client/value_bytes.hpp"

#include "troupe/runtime/base/deadline.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

namespace troupe::client {
namespace {

/// Keeps a view alive with what it needs: the store must outlive its views.
struct Opened {
  std::shared_ptr<objectstore::Client> store;
  objectstore::Pinned pinned;
  std::vector<detail::ObjectHandle> refs;
};

}  // namespace

ValueRoom ValueBytes::make_room(std::size_t size, detail::CallSite at) {
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
std::uint32_t ValueBytes::number_of(detail::CallSite at) {
  if (const auto number = sites_.lately(at)) return *number;
  Guard lock = gate_.guard();
  const CallSites::Found found = sites_.find(at);
  if (found.fresh) agent_.tell(*found.fresh, {});
  gate_.unlock_and_collect(lock);
  return found.number;
}

OutgoingValue ValueBytes::finish_room(ValueRoom room, std::span<const detail::ObjectHandle> refs) {
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
OutgoingValue ValueBytes::bundled(ValueRoom room, std::span<const detail::ObjectHandle> refs) {
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
Result<std::vector<detail::ObjectHandle>> ValueBytes::unbundled(
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
    const auto part = out_.try_get(bundle, time_left(deadline, steady_now()));
    if (!part) return part.error();
    refs.insert(refs.end(), part->refs.begin(), part->refs.end());
  }
  return refs;
}

Result<detail::Value> ValueBytes::open_shared(const wire::Location& at,
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

Result<detail::Value> ValueBytes::open(const detail::ObjectHandle& handle, Duration timeout) {
  const Entry& entry = origin_of(entry_of(handle));
  if (entry.ready.load(std::memory_order_acquire) && entry.kind == wire::Value::Kind::inline_bytes)
      [[likely]]
    return detail::Value{entry.value->bytes, entry.value->handles(), entry.value};
  return open_other(entry, timeout);
}

/// As open(), for any value but an inline one. noinline keeps it out of open(), which small values
/// take.
[[gnu::noinline]] Result<detail::Value> ValueBytes::open_other(const Entry& entry,
                                                               Duration timeout) {
  // Another thread has just found it lost.
  const auto moved = [] { return Error(Code::object_lost, "the object is computed again"); };
  if (!entry.ready.load(std::memory_order_acquire)) return moved();
  switch (entry.kind) {
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
    case wire::Value::Kind::inline_bytes:  // computed again meanwhile
      return detail::Value{entry.value->bytes, entry.value->handles(), entry.value};
    case wire::Value::Kind::pending:
    case wire::Value::Kind::forwarded: break;
  }
  return Error(Code::internal, "a ready object has no value");
}

std::vector<std::vector<detail::ObjectHandle>> ValueBytes::adopt_arguments(const wire::Call& call) {
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

}  // namespace troupe::client
