/// The serving side of Transfers: this node's objects, copies, and what is still on its way here.
#include "troupe/runtime/agent/internal/transfers_impl.hpp"
#include "troupe/runtime/base/random.hpp"

#include <algorithm>
#include <cstring>

namespace troupe::agent {
namespace {

using objectstore::Pinned;
using wire::store_location;

constexpr std::size_t kMostServed = 4096;    // objects that wait for one connection
constexpr std::size_t kMostOutbound = 4;     // connections to one node, with those that are ending
constexpr std::size_t kMostDeferred = 4096;  // requests for objects that are not confirmed yet
constexpr std::size_t kMostCopies = 1024;    // copies of which the life is remembered
constexpr Duration kDeferredPause{std::chrono::milliseconds(1)};
constexpr Duration kDeferredAtMost{std::chrono::seconds(1)};

/// A number that identifies one life of an object's bytes at its owner; never 0.
std::uint64_t stamp_of(const wire::Location& name) {
  // Two rounds of mixing: segment, slot and generation are small numbers, so that one round over
  // their combined bits would give different lives the same stamp.
  std::uint64_t place = std::uint64_t{name.segment} << 32 | name.slot;
  std::uint64_t life = splitmix64(place) ^ name.generation;
  return splitmix64(life) | 1;
}

}  // namespace

// -- serving

void Transfers::Impl::on(NodeId from, const wire::PullRequest& message, Time now) {
  const Request request{from,
                        TransferId::of(message.transfer),
                        message.object,
                        now + kDeferredAtMost,
                        {message.offset, message.stamp},
                        message.without,
                        message.direct};
  if (serve(request, deferred.size() >= kMostDeferred)) return;
  deferred.push_back(request);
  retry_deferred = now + kDeferredPause;
}

/// Finds an object to serve, including one that has arrived and that done() has not reported yet.
std::optional<Transfers::Held> Transfers::Impl::held(ObjectId object) {
  if (const auto ended = endings.find(object); ended != endings.end() && !ended->second.error)
    return Held{ended->second.location, ended->second.location, false};
  return out.find(object);
}

/// The stamp of the life that the bytes are of; 0 if it is unknown.
std::uint64_t Transfers::Impl::stamp_of_held(ObjectId object, const Held& held) const {
  if (held.own) return stamp_of(held.name);
  const auto copy = copies.find(object);
  return copy != copies.end() && copy->second.name == held.name ? copy->second.stamp : 0;
}

/// Answers a request. Returns false when the object's writer has not confirmed all of its memory
/// yet; the caller then tries again soon.
bool Transfers::Impl::serve(const Request& request, bool last_try) {
  const std::optional<Held> here = held(request.object);
  if (!here) {
    for (auto& [pull, its] : memory)
      if (its.object == request.object && its.allocation.bytes().size() > kSmallObject) {
        pass_on(request, pull, its);
        return true;
      }
    refuse(request, Error(Code::object_lost,
                          "object " + request.object.str() + " is not on this node any more"));
    return true;
  }
  const std::uint64_t stamp = stamp_of_held(request.object, *here);
  const bool large = here->at.length > kSmallObject;
  if (large && (stamp == 0 || (request.have.bytes != 0 && request.have.stamp != stamp))) {
    refuse(request, Error(Code::object_lost, "object " + request.object.str() +
                                                 " was computed again: its bytes are others"));
    return true;
  }
  if (large && sends_elsewhere(request, *here, stamp)) return true;
  Result<Pinned> pinned = host.open_local(store_location(here->at));
  if (!pinned && pinned.error().code() == Code::unavailable) {
    if (!last_try) return false;
    pinned = Error(Code::internal, "the memory of an object was not confirmed by its writer");
  }
  if (!pinned) {
    refuse(request, pinned.error());
  } else if (pinned->bytes().size() <= kSmallObject) {
    serve_small(request, *pinned);
  } else {
    serve_large(request, *std::move(pinned), stamp);
  }
  return true;
}

bool Transfers::Impl::sends_elsewhere(const Request& request, const Held& held,
                                      std::uint64_t stamp) {
  if (!held.own || held.at.length < kShareFrom) return false;
  // An asker that has a part of the object may have more of it than the node it would be referred
  // to.
  const auto other = tree.place(request.object, stamp, request.from, request.without,
                                request.direct || request.have.bytes != 0);
  if (!other) return false;
  ++stats.sent_elsewhere;
  out.send(request.from, wire::PullElsewhere{request.transfer.value, *other}, {});
  return true;
}

void Transfers::Impl::serve_deferred(Time now) {
  for (const Request& request : std::exchange(deferred, {}))
    if (!serve(request, now >= request.until)) deferred.push_back(request);
  retry_deferred = deferred.empty() ? Time::max() : now + kDeferredPause;
}

void Transfers::Impl::serve_small(const Request& request, const Pinned& pinned) {
  const std::uint64_t size = pinned.bytes().size();
  out.send(request.from, wire::PullData{request.transfer.value, 0, size}, pinned.bytes());
  ++stats.served_objects;
  stats.served_bytes += size;
}

void Transfers::Impl::serve_large(const Request& request, Pinned pinned, std::uint64_t stamp) {
  Outbound* to = way_to(request);
  if (to == nullptr) return;
  const BlobView bytes = pinned.bytes();
  Served served;
  served.pinned = std::move(pinned);
  start_serving(request, *to, std::move(served), bytes, {bytes.size(), stamp});
}

/// Serves an object that is on its way here: the bytes that have come, and the rest as it comes.
void Transfers::Impl::pass_on(const Request& request, PullId pull, Memory& from) {
  Outbound* to = way_to(request);
  if (to == nullptr) return;
  const auto way = inbound.find(from.connection);
  const auto part = way == inbound.end() ? std::nullopt : way->second.in->watch(from.object);
  if (part && part->bytes > from.part.bytes) from.part = *part;
  if (request.have.bytes != 0 && from.part.bytes != 0 && request.have.stamp != from.part.stamp)
    return refuse(request, Error(Code::object_lost, "the object was computed again meanwhile"));
  Served served;
  served.pull = pull;
  served.after = request.have;
  from.children.push_back({serving.at(request.from), next_served});
  start_serving(request, *to, std::move(served), from.allocation.bytes(), from.part);
}

/// The connection over which the request is served. Null if there is none: the request is refused.
auto Transfers::Impl::way_to(const Request& request) -> Outbound* {
  const auto current = serving.find(request.from);
  if (current == serving.end()) {
    refuse(request, Error(Code::unavailable, "there is no bulk connection to this node"));
    return nullptr;
  }
  Outbound& to = outbound.at(current->second);
  if (to.served.size() < kMostServed) return &to;
  refuse(request, Error(Code::overloaded, "too many objects wait to be sent there"));
  return nullptr;
}

void Transfers::Impl::start_serving(const Request& request, Outbound& to, Served served,
                                    BlobView bytes, BulkPart part) {
  const std::uint64_t number = next_served++;
  if (request.have.bytes >= bytes.size()) {
    no_child_any_more(serving.at(request.from), number, served);
    return refuse(request, Error(Code::internal, "it asks for bytes behind the end"));
  }
  served.transfer = request.transfer;
  served.bytes = bytes.size() - request.have.bytes;
  Served& kept = to.served[number] = std::move(served);
  if (!to.out->enqueue(number, request.object, bytes, part.stamp, request.have.bytes, part.bytes)) {
    no_child_any_more(serving.at(request.from), number, kept);
    to.served.erase(number);
    return refuse(request, Error(Code::unavailable, "the bulk connection to this node has ended"));
  }
  out.send(request.from, wire::PullOnBulk{request.transfer.value, bytes.size()}, {});
}

/// Pins a pull's object that is complete for each child, until the child has been sent all of it.
void Transfers::Impl::pin_for_children(const Memory& from, const objectstore::Location& at) {
  for (const Child& child : from.children) {
    Outbound& to = outbound.at(child.connection);
    Served& served = to.served.at(child.item);
    served.pull = 0;
    Result<Pinned> pinned = host.open_local(at);
    TROUPE_ASSERT(pinned, "an object of the agent's own cannot be opened");
    served.pinned = *std::move(pinned);
    to.out->allow(child.item, {BulkOut::kAll, from.part.stamp});
  }
}

/// Ends the children of a pull that failed. Their threads may still read the bytes that came, so
/// each child keeps the memory until its thread has dropped the item.
void Transfers::Impl::abandon_children(const Memory& from,
                                       const std::shared_ptr<Allocation>& keep) {
  for (const Child& child : from.children) {
    Outbound& to = outbound.at(child.connection);
    Served& served = to.served.at(child.item);
    served.pull = 0;
    served.keep = keep;
    to.out->abandon(child.item);
    refuse({to.node, served.transfer, {}, {}, {}, {}, false},
           Error(Code::object_lost, "the object did not come here either", Outcome::unknown));
  }
}

void Transfers::Impl::no_child_any_more(ConnectionId connection, std::uint64_t item,
                                        const Served& served) {
  const auto from = memory.find(served.pull);
  if (served.pull == 0 || from == memory.end()) return;
  std::erase_if(from->second.children, [&](const Child& child) {
    return child.connection == connection && child.item == item;
  });
}

void Transfers::Impl::remember_copy(ObjectId object, Copy copy) {
  if (copies.insert_or_assign(object, copy).second) copies_by_age.push_back(object);
  if (copies.size() <= kMostCopies) return;
  copies.erase(copies_by_age.front());
  copies_by_age.pop_front();
}

void Transfers::Impl::out_moved(const BulkEvent& event) {
  Outbound& from = outbound.at(event.connection);
  const auto item = from.served.find(event.item);
  no_child_any_more(event.connection, event.item, item->second);
  if (event.kind == BulkEvent::Kind::out_moved) {
    ++stats.served_objects;
    stats.served_bytes += item->second.bytes;
  }
  from.served.erase(item);
}

void Transfers::Impl::refuse(const Request& request, const Error& error) {
  out.send(request.from, wire::PullRefused{request.transfer.value, error.shared_info()}, {});
}

/// A new offer replaces the earlier connection; the peer no longer waits for the objects on it.
void Transfers::Impl::on(NodeId from, const wire::BulkOffer& message) {
  stop_serving(from);
  const auto ending = std::count_if(outbound.begin(), outbound.end(),
                                    [&](const auto& each) { return each.second.node == from; });
  if (message.key.size() != net::BulkKey::size() ||
      static_cast<std::size_t>(ending) >= kMostOutbound)
    return;
  net::BulkKey key;
  std::memcpy(key.data(), message.key.data(), key.size());
  const ConnectionId number = next_outbound++;
  BulkOutOptions how{message.host, message.port, {}};
  how.id = {message.connection_high, message.connection_low};
  how.silence = options.plan.silence;
  how.idle = options.serve_idle;
  Outbound& to = outbound[number];
  to.node = from;
  to.out = std::make_unique<BulkOut>(number, std::move(how), std::move(key), mailbox);
  serving[from] = number;
}

void Transfers::Impl::stop_serving(NodeId node) {
  const auto current = serving.find(node);
  if (current == serving.end()) return;
  outbound.at(current->second).out->close();
  serving.erase(current);
}

void Transfers::Impl::out_ended(const BulkEvent& event) {
  const auto at = outbound.find(event.connection);
  const Outbound ended = std::move(at->second);
  outbound.erase(at);
  for (const auto& [number, served] : ended.served)
    no_child_any_more(event.connection, number, served);
  const auto current = serving.find(ended.node);
  const bool was_current = current != serving.end() && current->second == event.connection;
  if (!was_current) return;  // replaced, or its node is dead: no request waits for an answer
  serving.erase(current);
  for (const auto& [number, served] : ended.served)
    refuse({ended.node, served.transfer, {}, {}, {}, {}, false}, *event.error);
}

}  // namespace troupe::agent
