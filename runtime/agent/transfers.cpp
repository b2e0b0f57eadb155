#include "troupe/runtime/agent/transfers.hpp"

#include "troupe/runtime/agent/internal/transfers_impl.hpp"

#include <sys/epoll.h>
#include <algorithm>
#include <cstring>

namespace troupe::agent {
namespace {

using objectstore::Allocation;
using wire::store_location;
using wire::wire_location;

constexpr std::uint64_t kMadeAtOnce = 1 << 20;  // larger objects get their memory on a thread

}  // namespace

Transfers::Impl::~Impl() {
  for (auto& [number, each] : inbound) each.in->close();
  for (auto& [number, each] : outbound) each.out->close();
  inbound.clear();
  outbound.clear();
}

Transfers::Transfers(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
Transfers::~Transfers() = default;

Result<std::unique_ptr<Transfers>> Transfers::open(objectstore::Host& host, Out& out,
                                                   TransfersOptions options) {
  auto door = net::BulkDoor::open(options.host, options.port);
  if (!door) return door.error();
  auto impl = std::make_unique<Impl>(host, out, std::move(options));
  impl->door = *std::move(door);
  impl->epoll = Fd(epoll_create1(EPOLL_CLOEXEC));
  for (const int fd : {impl->door->fd(), impl->mailbox.fd()}) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd;
    if (epoll_ctl(impl->epoll.get(), EPOLL_CTL_ADD, fd, &event) != 0)
      return Error(Code::unavailable, "no descriptor left for transfers");
  }
  return std::unique_ptr<Transfers>(new Transfers(std::move(impl)));
}

// -- from above

void Transfers::pull(NodeId from, ObjectId object, std::uint64_t bytes, Time now,
                     Priority priority) {
  if (impl_->endings.count(object) != 0) return;  // the next poll() reports its end
  impl_->plan.pull(from, object, bytes, priority, now);
  impl_->run(now);
}

void Transfers::cancel(ObjectId object, Time now) {
  if (const auto ended = impl_->endings.find(object); ended != impl_->endings.end()) {
    if (!ended->second.error) [[maybe_unused]]
      const auto freed = impl_->host.free(store_location(ended->second.location));
    impl_->endings.erase(ended);
  }
  impl_->plan.cancel(object, now);
  impl_->run(now);
}

void Transfers::memory_came(Time now) {
  impl_->plan.memory_came(now);
  impl_->run(now);
}

void Transfers::memory_refused(const Error& error, Time now) {
  if (error.code() != Code::out_of_memory) impl_->refusal = error;  // else memory may still come
  memory_came(now);
}

void Transfers::node_died(NodeId node, bool for_ever, Time now) {
  impl_->stop_serving(node);
  impl_->tree.node_died(node);
  std::erase_if(impl_->deferred, [&](const auto& r) { return r.from == node; });
  impl_->plan.node_died(node, for_ever, now);
  impl_->run(now);
}

void Transfers::on_message(NodeId from, const wire::PeerMessage& message, BlobView payload,
                           Time now) {
  Impl& impl = *impl_;
  if (const auto* request = std::get_if<wire::PullRequest>(&message))
    impl.on(from, *request, now);
  else if (const auto* data = std::get_if<wire::PullData>(&message))
    impl.on(from, *data, payload, now);
  else if (const auto* bulk = std::get_if<wire::PullOnBulk>(&message))
    impl.plan.on_bulk(from, TransferId::of(bulk->transfer), bulk->bytes, now);
  else if (const auto* refused = std::get_if<wire::PullRefused>(&message))
    impl.on(from, *refused, now);
  else if (const auto* other = std::get_if<wire::PullElsewhere>(&message))
    impl.plan.elsewhere(from, TransferId::of(other->transfer), other->node, now,
                        impl.still_written(from, TransferId::of(other->transfer)));
  else if (const auto* offer = std::get_if<wire::BulkOffer>(&message))
    impl.on(from, *offer);
  impl.run(now);
}

// -- the loop

int Transfers::fd() const noexcept {
  return impl_->epoll.get();
}
std::uint16_t Transfers::port() const noexcept {
  return impl_->door->port();
}

TransferStats Transfers::stats() const {
  TransferStats stats = impl_->stats;
  stats.threads = impl_->outbound.size();
  for (const auto& [number, each] : impl_->inbound) stats.threads += each.in->started() ? 1u : 0u;
  return stats;
}

Time Transfers::next_deadline() const {
  const Impl& impl = *impl_;
  if (!impl.endings.empty()) return Time{};
  return std::min(
      {impl.plan.next_deadline(), impl.door->next_deadline(), impl.retry_deferred, impl.trim_at});
}

void Transfers::poll(Time now) {
  Impl& impl = *impl_;
  impl.take_events(now);
  impl.take_arrivals(now);
  impl.take_memory(now);
  impl.trim(now);
  impl.serve_deferred(now);
  if (impl.plan.next_deadline() <= now) {
    for (const auto& [number, each] : impl.inbound)
      impl.plan.heard(each.node, number, each.in->heard());
    impl.plan.on_tick(now);
  }
  impl.run(now);
  impl.deliver();
}

void Transfers::Impl::deliver() {
  for (const auto& [object, ending] : std::exchange(endings, {})) {
    if (ending.error) {
      out.failed(object, ending.from, *ending.error);
    } else {
      out.done(object, ending.from, ending.location);
    }
  }
}

void Transfers::Impl::take_events(Time now) {
  for (BulkEvent& event : mailbox.take()) {
    switch (event.kind) {
      case BulkEvent::Kind::in_grew: in_grew(event); break;
      case BulkEvent::Kind::in_moved:
        in_grew(event);
        if (const auto at = inbound.find(event.connection); at != inbound.end())
          plan.received(at->second.node, event.connection, PullId::of(event.item), now);
        break;
      case BulkEvent::Kind::in_ended: in_ended(event, now); break;
      case BulkEvent::Kind::out_moved:
      case BulkEvent::Kind::out_dropped: out_moved(event); break;
      case BulkEvent::Kind::out_ended: out_ended(event); break;
    }
    run(now);
  }
}

void Transfers::Impl::take_arrivals(Time now) {
  for (net::BulkDoor::Arrived& arrived : door->poll(now)) {
    const auto known = offered.find(arrived.id);
    if (known == offered.end()) continue;
    inbound.at(known->second).in->start(std::move(arrived.fd), arrived.first_by);
    offered.erase(known);
  }
}

/// Carries out actions until none is left. A call from within, through out.send, returns at once:
/// the outer call carries out its actions.
void Transfers::Impl::run(Time now) {
  if (running) return;
  running = true;
  for (auto actions = plan.take_actions(); !actions.empty(); actions = plan.take_actions())
    for (const TransferPlan::Action& action : actions)
      std::visit([&](const auto& each) { act(each, now); }, action);
  running = false;
}

// -- pulling

void Transfers::Impl::act(const TransferPlan::Reserve& action, Time now) {
  trim_at = std::min(trim_at, now + options.plan.idle);
  if (action.bytes > kMadeAtOnce) return buffers.ask(action.pull, action.bytes);
  Result<Allocation> made = host.create_local(action.bytes);
  if (!made) return no_memory(action.pull, made.error(), action.bytes, now);
  memory[action.pull].allocation = *std::move(made);
  plan.reserved(action.pull, now);
}

void Transfers::Impl::take_memory(Time now) {
  for (ReceiveBuffers::Answer& answer : buffers.take()) {
    if (!answer.created) {
      no_memory(answer.pull, answer.created.error(), answer.bytes, now);
    } else if (auto* made = std::get_if<Allocation>(&*answer.created)) {
      trim_at = std::min(trim_at, now + options.plan.idle);
      memory[answer.pull].allocation = std::move(*made);
      plan.reserved(answer.pull, now);
    } else {
      const auto& request = std::get<objectstore::ExtentRequest>(*answer.created);
      const Result<void> granted = grant(request.bytes);
      if (granted) buffers.ask(answer.pull, answer.bytes);
      if (!granted) no_memory(answer.pull, granted.error(), request.bytes, now);
    }
  }
}

void Transfers::Impl::no_memory(PullId pull, const Error& error, std::uint64_t bytes, Time now) {
  const std::optional<Error> why = std::exchange(refusal, std::nullopt);
  plan.no_memory(pull, why ? *why : error, now);
  if (!why && error.code() == Code::out_of_memory) out.short_of_memory(bytes);
}

/// Grants one more extent to the agent's own client.
Result<void> Transfers::Impl::grant(std::uint64_t bytes) {
  Result<objectstore::ExtentGrant> extent = host.grant(0, bytes);
  if (!extent) return extent.error();
  const objectstore::ExtentId id = extent->id;
  Result<void> added = host.local().add_extent(*std::move(extent));
  if (added) return host.confirm_extent(0, id);
  [[maybe_unused]] const auto released = host.release_extent(0, id);
  return added;
}

void Transfers::Impl::trim(Time now) {
  if (now < trim_at) return;
  for (const objectstore::ExtentId extent : host.local().trim(options.keep)) [[maybe_unused]]
    const auto released = host.release_extent(0, extent);
  trim_at =
      host.local().stats().capacity > options.keep.count ? now + options.plan.idle : Time::max();
}

void Transfers::Impl::act(const TransferPlan::Offer& action, Time now) {
  Result<net::BulkKey> key = net::fresh_bulk_key();
  if (!key) return plan.connection_ended(action.node, action.connection, key.error(), now);
  const net::BulkId id = net::BulkId::random();
  wire::BulkOffer offer{id.high, id.low, options.host, door->port(),
                        std::string(reinterpret_cast<const char*>(key->data()), key->size())};
  Inbound& made = inbound[action.connection];
  made.node = action.node;
  made.id = id;
  made.in = std::make_unique<BulkIn>(action.connection, *std::move(key), mailbox);
  offered[id] = action.connection;
  door->expect(id, now + options.plan.silence);
  ++stats.connections;
  out.send(action.node, offer, {});
  net::wipe(offer.key.data(), offer.key.size());
}

void Transfers::Impl::act(const TransferPlan::Ask& action, Time) {
  if (action.connection != 0) {
    const auto at = inbound.find(action.connection);
    const auto into = memory.find(action.pull);
    if (at == inbound.end() || into == memory.end()) return;  // ended: the plan asks again
    Memory& its = into->second;
    its.object = action.object;
    its.connection = action.connection;
    at->second.in->expect(action.object, action.pull.value, its.allocation.bytes(), its.part,
                          !its.children.empty());
    stats.resumed_bytes += action.have;
  }
  out.send(action.node,
           wire::PullRequest{action.transfer.value, action.object, action.have, action.stamp,
                             action.without, action.direct},
           {});
}

void Transfers::Impl::act(const TransferPlan::Close& action, Time now) {
  const auto at = inbound.find(action.connection);
  if (at == inbound.end()) return;
  if (at->second.in->started()) return at->second.in->close();
  door->forget(at->second.id);
  offered.erase(at->second.id);
  inbound.erase(at);
  plan.connection_ended(action.node, action.connection, Error(Code::unavailable, action.why), now);
}

void Transfers::Impl::act(const TransferPlan::Complete& action, Time) {
  const auto found = memory.find(action.pull);
  Memory from = std::move(found->second);
  memory.erase(found);
  const std::uint64_t size = from.allocation.bytes().size();
  const objectstore::Location at = host.local().seal(std::move(from.allocation));
  if (!action.wanted && from.children.empty()) {
    [[maybe_unused]] const auto dropped = host.local().drop(at);
    return;
  }
  const Result<void> adopted = host.adopt(0, at);
  if (adopted)
    pin_for_children(from, at);
  else
    abandon_children(from, nullptr);
  if (!action.wanted) {
    [[maybe_unused]] const auto freed = host.free(at);
    return;
  }
  Ending& ending = endings[action.object];
  ending.from = action.node;
  ending.location = wire_location(at);
  if (!adopted) ending.error = adopted.error();
  if (from.part.stamp != 0) remember_copy(action.object, {ending.location, from.part.stamp});
  ++stats.pulled_objects;
  stats.pulled_bytes += size;
}

void Transfers::Impl::act(const TransferPlan::Discard& action, Time) {
  const auto at = memory.find(action.pull);
  if (at == memory.end()) return;
  Memory from = std::move(at->second);
  memory.erase(at);
  const auto keep = std::make_shared<Allocation>(std::move(from.allocation));
  const auto writer = inbound.find(from.connection);
  if (writer != inbound.end() && !writer->second.in->forget(from.object))
    writer->second.kept.push_back(keep);
  abandon_children(from, keep);
}

void Transfers::Impl::act(const TransferPlan::Failed& action, Time) {
  Ending& ending = endings[action.object];
  ending.from = action.node;
  ending.error = action.error;
}

void Transfers::Impl::on(NodeId from, const wire::PullData& message, BlobView payload, Time now) {
  const TransferId transfer = TransferId::of(message.transfer);
  const PullId pull = plan.expects(from, transfer, message.bytes);
  const auto into = memory.find(pull);
  const bool fits = into != memory.end() && message.offset == 0 &&
                    payload.size() == message.bytes &&
                    payload.size() == into->second.allocation.bytes().size();
  if (fits && !payload.empty())
    std::memcpy(into->second.allocation.bytes().data(), payload.data(), payload.size());
  plan.arrived(from, transfer, fits, now);
}

void Transfers::Impl::on(NodeId from, const wire::PullRefused& message, Time now) {
  const TransferId transfer = TransferId::of(message.transfer);
  const Error why =
      message.error ? Error(*message.error) : Error(Code::internal, "refused without a reason");
  const bool busy = plan.takes_off(from, transfer, why) && still_written(from, transfer);
  plan.refused(from, transfer, why, now, busy);
}

/// Takes a large pull off its connection. Returns true if a thread writes into its memory at this
/// moment, or if all of its bytes have come.
bool Transfers::Impl::still_written(NodeId from, TransferId transfer) {
  const PullId pull = plan.large(from, transfer);
  const auto into = memory.find(pull);
  if (pull == 0 || into == memory.end()) return false;
  const auto way = inbound.find(into->second.connection);
  if (way == inbound.end()) return false;
  const std::optional<BulkPart> part = way->second.in->forget(into->second.object);
  if (!part) return true;
  // The thread knows fewer bytes than this record: the object came whole and the thread expects it
  // no more. Its in_moved is in the mailbox.
  if (part->bytes < into->second.part.bytes) return true;
  into->second.connection = 0;
  note_part(pull, into->second, *part);
  return false;
}

void Transfers::Impl::note_part(PullId pull, Memory& its, BulkPart part) {
  its.part = part;
  plan.kept(pull, part.bytes, part.stamp);
}

/// Handles a piece that has come: lets the children's connections send it.
void Transfers::Impl::in_grew(const BulkEvent& event) {
  const auto into = memory.find(PullId::of(event.item));
  if (into == memory.end() || into->second.connection != event.connection) return;
  Memory& its = into->second;
  its.part = event.part;
  for (const Child& child : std::vector<Child>(its.children)) {
    Outbound& to = outbound.at(child.connection);
    Served& served = to.served.at(child.item);
    if (served.after.bytes == 0 || served.after.stamp == its.part.stamp) {
      to.out->allow(child.item, its.part);
    } else {  // the child has bytes of another life, and was sent none of this one
      to.out->abandon(child.item);
      refuse({to.node, served.transfer, {}, {}, {}, {}, false},
             Error(Code::object_lost, "the object was computed again meanwhile"));
      no_child_any_more(child.connection, child.item, served);
    }
  }
}

void Transfers::Impl::in_ended(BulkEvent& event, Time now) {
  const auto at = inbound.find(event.connection);
  const NodeId node = at->second.node;
  bool used = false;
  for (auto& [pull, its] : memory) {
    if (its.connection != event.connection) continue;
    used = true;
    its.connection = 0;
    const BulkPart part = at->second.in->part(its.object);
    if (part.bytes >= its.part.bytes) note_part(pull, its, part);
  }
  stats.forged += event.forged ? 1u : 0u;
  stats.lost += used ? 1u : 0u;
  inbound.erase(at);  // joins the thread, whose last action was this event
  plan.connection_ended(node, event.connection, *event.error, now);
}

}  // namespace troupe::agent
