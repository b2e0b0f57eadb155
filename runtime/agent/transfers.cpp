#include "troupe/runtime/agent/transfers.hpp"

#include "troupe/runtime/agent/bulk_threads.hpp"
#include "troupe/runtime/agent/reserver.hpp"
#include "troupe/runtime/client/values.hpp"

#include <sys/epoll.h>
#include <algorithm>
#include <cstring>

namespace troupe::agent {
namespace {

using client::store_location;
using client::wire_location;
using objectstore::Allocation;
using objectstore::Pinned;

constexpr std::size_t kMostServed = 4096;    // objects that wait for one connection
constexpr std::size_t kMostOutbound = 4;     // connections to one node that still end, and the next
constexpr std::size_t kMostDeferred = 4096;  // requests for objects that are not quite there
constexpr std::uint64_t kMadeAtOnce = 1 << 20;  // larger objects get their memory on a thread
constexpr Duration kDeferredPause{std::chrono::milliseconds(1)};
constexpr Duration kDeferredAtMost{std::chrono::seconds(1)};

/// Memory of one pull. A thread may write into it while `connection` expects it.
struct Memory {
  Allocation allocation;
  ObjectId object;
  std::uint64_t connection = 0;
};

struct Inbound {
  NodeId node;
  net::BulkId id;
  std::unique_ptr<BulkIn> in;
  std::vector<Allocation> kept;  ///< given up while it was being written
};

struct Served {
  std::uint64_t transfer = 0;
  Pinned pinned;
};

struct Outbound {
  NodeId node;
  std::map<std::uint64_t, Served> served;
  std::unique_ptr<BulkOut> out;  // ends before the views go
};

struct Request {
  NodeId from;
  std::uint64_t transfer = 0;
  ObjectId object;
  Time until{};
};

/// What out.done or out.failed will say.
struct Ending {
  NodeId from;
  wire::Location location;
  std::optional<Error> error;
};

}  // namespace

struct Transfers::Impl {
  objectstore::Host& host;
  Out& out;
  TransfersOptions options;
  TransferPlan plan;
  std::unique_ptr<net::BulkDoor> door;
  Fd epoll;
  Mailbox mailbox;
  std::map<std::uint64_t, Memory> memory;  ///< by pull
  std::map<std::uint64_t, Inbound> inbound;
  std::map<net::BulkId, std::uint64_t> offered;
  std::map<std::uint64_t, Outbound> outbound;
  std::map<NodeId, std::uint64_t> serving;  ///< the current one of `outbound`
  std::vector<Request> deferred;
  Time retry_deferred = Time::max();
  std::map<ObjectId, Ending> endings;
  std::uint64_t next_outbound = 1, next_served = 1;
  Time trim_at = Time::max();
  std::optional<Error> refusal;  ///< why there will be no memory for the next that has none
  bool running = false;
  TransferStats stats;
  Reserver reserver;

  Impl(objectstore::Host& h, Out& o, TransfersOptions given)
      : host(h),
        out(o),
        options(std::move(given)),
        plan(options.plan),
        reserver(host.local(), [this] { mailbox.wake(); }) {}
  ~Impl();

  void run(Time now);
  void act(const TransferPlan::Reserve& action, Time now);
  void act(const TransferPlan::Offer& action, Time now);
  void act(const TransferPlan::Ask& action, Time now);
  void act(const TransferPlan::Close& action, Time now);
  void act(const TransferPlan::Complete& action, Time now);
  void act(const TransferPlan::Discard& action, Time now);
  void act(const TransferPlan::Failed& action, Time now);

  void on(NodeId from, const wire::PullRequest& message, Time now);
  void on(NodeId from, const wire::PullData& message, BlobView payload, Time now);
  void on(NodeId from, const wire::BulkOffer& message);

  void take_events(Time now);
  void take_arrivals(Time now);
  void take_memory(Time now);
  Result<void> grant(std::uint64_t bytes);
  void no_memory(std::uint64_t pull, const Error& error, std::uint64_t bytes, Time now);
  void trim(Time now);
  void in_ended(BulkEvent& event, Time now);
  void out_ended(const BulkEvent& event);
  void deliver();

  bool serve(const Request& request, bool last_try);
  void serve_small(const Request& request, const Pinned& pinned);
  void serve_large(const Request& request, Pinned pinned);
  void serve_deferred(Time now);
  void refuse(const Request& request, const Error& error);
  void stop_serving(NodeId node);
};

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
  if (impl_->endings.count(object) != 0) return;  // will be told by the next poll()
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
  if (error.code() != Code::out_of_memory) impl_->refusal = error;  // that one may still come
  memory_came(now);
}

void Transfers::node_died(NodeId node, bool for_ever, Time now) {
  impl_->stop_serving(node);
  std::erase_if(impl_->deferred, [&](const Request& r) { return r.from == node; });
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
    impl.plan.on_bulk(from, bulk->transfer, bulk->bytes, now);
  else if (const auto* refused = std::get_if<wire::PullRefused>(&message))
    impl.plan.refused(
        from, refused->transfer,
        refused->error ? Error(*refused->error) : Error(Code::internal, "refused without a reason"),
        now);
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
      case BulkEvent::Kind::in_moved:
        if (const auto at = inbound.find(event.connection); at != inbound.end())
          plan.received(at->second.node, event.connection, event.item, now);
        break;
      case BulkEvent::Kind::in_ended: in_ended(event, now); break;
      case BulkEvent::Kind::out_moved: {
        const auto at = outbound.find(event.connection);
        const auto item = at->second.served.find(event.item);
        ++stats.served_objects;
        stats.served_bytes += item->second.pinned.bytes().size();
        at->second.served.erase(item);
        break;
      }
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

/// Until nothing follows any more. What out.send brings about meanwhile is carried out here too.
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
  if (action.bytes > kMadeAtOnce) return reserver.ask(action.pull, action.bytes);
  Result<Allocation> made = host.create_local(action.bytes);
  if (!made) return no_memory(action.pull, made.error(), action.bytes, now);
  memory[action.pull].allocation = *std::move(made);
  plan.reserved(action.pull, now);
}

void Transfers::Impl::take_memory(Time now) {
  for (Reserver::Answer& answer : reserver.take()) {
    if (!answer.created) {
      no_memory(answer.pull, answer.created.error(), answer.bytes, now);
    } else if (auto* made = std::get_if<Allocation>(&*answer.created)) {
      trim_at = std::min(trim_at, now + options.plan.idle);
      memory[answer.pull].allocation = std::move(*made);
      plan.reserved(answer.pull, now);
    } else {
      const auto& wish = std::get<objectstore::ExtentRequest>(*answer.created);
      const Result<void> granted = grant(wish.bytes);
      if (granted) reserver.ask(answer.pull, answer.bytes);
      if (!granted) no_memory(answer.pull, granted.error(), wish.bytes, now);
    }
  }
}

void Transfers::Impl::no_memory(std::uint64_t pull, const Error& error, std::uint64_t bytes,
                                Time now) {
  const std::optional<Error> why = std::exchange(refusal, std::nullopt);
  plan.no_memory(pull, why ? *why : error, now);
  if (!why && error.code() == Code::out_of_memory) out.short_of_memory(bytes);
}

/// One more extent of the agent's own.
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
    if (at == inbound.end() || into == memory.end()) return;  // it ended; asked again elsewhere
    into->second.object = action.object;
    into->second.connection = action.connection;
    at->second.in->expect(action.object, action.pull, into->second.allocation.bytes());
  }
  out.send(action.node, wire::PullRequest{action.transfer, action.object}, {});
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
  const auto from = memory.find(action.pull);
  const std::uint64_t size = from->second.allocation.bytes().size();
  const objectstore::Location at = host.local().seal(std::move(from->second.allocation));
  memory.erase(from);
  if (!action.wanted) {
    [[maybe_unused]] const auto dropped = host.local().drop(at);
    return;
  }
  Ending& ending = endings[action.object];
  ending.from = action.node;
  ending.location = wire_location(at);
  if (const Result<void> adopted = host.adopt(0, at); !adopted) ending.error = adopted.error();
  ++stats.pulled_objects;
  stats.pulled_bytes += size;
}

void Transfers::Impl::act(const TransferPlan::Discard& action, Time) {
  const auto at = memory.find(action.pull);
  if (at == memory.end()) return;
  const auto writer = inbound.find(at->second.connection);
  if (writer != inbound.end() && !writer->second.in->forget(at->second.object))
    writer->second.kept.push_back(std::move(at->second.allocation));
  memory.erase(at);
}

void Transfers::Impl::act(const TransferPlan::Failed& action, Time) {
  Ending& ending = endings[action.object];
  ending.from = action.node;
  ending.error = action.error;
}

void Transfers::Impl::on(NodeId from, const wire::PullData& message, BlobView payload, Time now) {
  const std::uint64_t pull = plan.expects(from, message.transfer, message.bytes);
  const auto into = memory.find(pull);
  const bool fits = into != memory.end() && message.offset == 0 &&
                    payload.size() == message.bytes &&
                    payload.size() == into->second.allocation.bytes().size();
  if (fits && !payload.empty())
    std::memcpy(into->second.allocation.bytes().data(), payload.data(), payload.size());
  plan.arrived(from, message.transfer, fits, now);
}

void Transfers::Impl::in_ended(BulkEvent& event, Time now) {
  const auto at = inbound.find(event.connection);
  const NodeId node = at->second.node;
  const bool used = std::any_of(memory.begin(), memory.end(), [&](const auto& each) {
    return each.second.connection == event.connection;
  });
  stats.forged += event.forged ? 1u : 0u;
  stats.lost += used ? 1u : 0u;
  inbound.erase(at);  // joins: the post was the thread's last deed
  plan.connection_ended(node, event.connection, *event.error, now);
}

// -- serving

void Transfers::Impl::on(NodeId from, const wire::PullRequest& message, Time now) {
  const Request request{from, message.transfer, message.object, now + kDeferredAtMost};
  if (serve(request, deferred.size() >= kMostDeferred)) return;
  deferred.push_back(request);
  retry_deferred = now + kDeferredPause;
}

/// False when the object's writer has not confirmed all of its memory yet: again soon.
bool Transfers::Impl::serve(const Request& request, bool last_try) {
  const std::optional<wire::Location> at = out.find(request.object);
  if (!at) {
    refuse(request, Error(Code::object_lost, "object " + request.object.str() +
                                                 " is not on the node that owns it any more"));
    return true;
  }
  Result<Pinned> pinned = host.open_local(store_location(*at));
  if (!pinned && pinned.error().code() == Code::unavailable) {
    if (!last_try) return false;
    pinned = Error(Code::internal, "the memory of an object was not confirmed by its writer");
  }
  if (!pinned) {
    refuse(request, pinned.error());
  } else if (pinned->bytes().size() <= kSmallObject) {
    serve_small(request, *pinned);
  } else {
    serve_large(request, *std::move(pinned));
  }
  return true;
}

void Transfers::Impl::serve_deferred(Time now) {
  for (const Request& request : std::exchange(deferred, {}))
    if (!serve(request, now >= request.until)) deferred.push_back(request);
  retry_deferred = deferred.empty() ? Time::max() : now + kDeferredPause;
}

void Transfers::Impl::serve_small(const Request& request, const Pinned& pinned) {
  const std::uint64_t size = pinned.bytes().size();
  out.send(request.from, wire::PullData{request.transfer, 0, size}, pinned.bytes());
  ++stats.served_objects;
  stats.served_bytes += size;
}

void Transfers::Impl::serve_large(const Request& request, Pinned pinned) {
  const auto current = serving.find(request.from);
  if (current == serving.end())
    return refuse(request, Error(Code::unavailable, "there is no bulk connection to this node"));
  Outbound& to = outbound.at(current->second);
  if (to.served.size() >= kMostServed)
    return refuse(request, Error(Code::overloaded, "too many objects wait to be sent there"));
  const std::uint64_t number = next_served++;
  const BlobView bytes = pinned.bytes();
  to.served[number] = {request.transfer, std::move(pinned)};
  if (!to.out->enqueue(number, request.object, bytes)) {
    to.served.erase(number);
    return refuse(request, Error(Code::unavailable, "the bulk connection to this node has ended"));
  }
  out.send(request.from, wire::PullOnBulk{request.transfer, bytes.size()}, {});
}

void Transfers::Impl::refuse(const Request& request, const Error& error) {
  out.send(request.from, wire::PullRefused{request.transfer, error.shared_info()}, {});
}

/// A new offer replaces the connection before, of which the peer has given up what was on it.
void Transfers::Impl::on(NodeId from, const wire::BulkOffer& message) {
  stop_serving(from);
  const auto ending = std::count_if(outbound.begin(), outbound.end(),
                                    [&](const auto& each) { return each.second.node == from; });
  if (message.key.size() != net::BulkKey::size() ||
      static_cast<std::size_t>(ending) >= kMostOutbound)
    return;
  net::BulkKey key;
  std::memcpy(key.data(), message.key.data(), key.size());
  const std::uint64_t number = next_outbound++;
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
  const auto current = serving.find(ended.node);
  const bool was_current = current != serving.end() && current->second == event.connection;
  if (!was_current) return;  // replaced, or its node is dead: nobody waits
  serving.erase(current);
  for (const auto& [number, served] : ended.served)
    refuse({ended.node, served.transfer, {}, {}}, *event.error);
}

}  // namespace troupe::agent
