/// The private parts of Transfers, shared by transfers.cpp (pulling, the loop) and
/// transfers_serve.cpp (serving).
#pragma once

#include "troupe/runtime/agent/broadcast.hpp"
#include "troupe/runtime/agent/bulk_threads.hpp"
#include "troupe/runtime/agent/receive_buffers.hpp"
#include "troupe/runtime/agent/transfer_ids.hpp"
#include "troupe/runtime/agent/transfers.hpp"
#include "troupe/runtime/wire/values.hpp"

#include <deque>
#include <map>
#include <vector>

namespace troupe::agent {
namespace transfers {

using objectstore::Allocation;
using objectstore::Pinned;
using wire::store_location;
using wire::wire_location;

/// A node to which a pull's bytes are passed on as they come: an item of an outbound connection.
struct Child {
  ConnectionId connection = 0;
  std::uint64_t item = 0;
};

/// Memory of one pull. The thread of `connection` may write behind the bytes of `part`. Threads of
/// children may read the bytes of `part` at the same time.
struct Memory {
  Allocation allocation;
  ObjectId object;
  ConnectionId connection = 0;
  BulkPart part;
  std::vector<Child> children;
};

/// A copy of another node's object, and the life that it is of.
struct Copy {
  wire::Location name;
  std::uint64_t stamp = 0;
};

struct Inbound {
  NodeId node;
  net::BulkId id;
  std::unique_ptr<BulkIn> in;
  std::vector<std::shared_ptr<Allocation>> kept;  ///< discarded while the thread wrote into them
};

struct Served {
  TransferId transfer = 0;
  std::uint64_t bytes = 0;  ///< to be sent
  Pinned pinned;
  PullId pull = 0;                   ///< the running pull whose memory it reads; 0 if none
  BulkPart after;                    ///< the part that the receiver has already
  std::shared_ptr<Allocation> keep;  ///< memory of the pull, if that failed
};

struct Outbound {
  NodeId node;
  std::map<std::uint64_t, Served> served;
  std::unique_ptr<BulkOut> out;  // last: its thread ends before the views that it reads
};

struct Request {
  NodeId from;
  TransferId transfer = 0;
  ObjectId object;
  Time until{};
  BulkPart have;
  NodeId without{};
  bool direct = false;
};

/// An end of a pull that the next poll() reports by out.done or out.failed.
struct Ending {
  NodeId from;
  wire::Location location;
  std::optional<Error> error;
};

}  // namespace transfers

struct Transfers::Impl {
  using Child = transfers::Child;
  using Memory = transfers::Memory;
  using Copy = transfers::Copy;
  using Inbound = transfers::Inbound;
  using Served = transfers::Served;
  using Outbound = transfers::Outbound;
  using Request = transfers::Request;
  using Ending = transfers::Ending;
  using Allocation = objectstore::Allocation;
  using Pinned = objectstore::Pinned;

  objectstore::Host& host;
  Out& out;
  TransfersOptions options;
  TransferPlan plan;
  std::unique_ptr<net::BulkDoor> door;
  Fd epoll;
  Mailbox mailbox;
  std::map<PullId, Memory> memory;  ///< by pull
  std::map<ConnectionId, Inbound> inbound;
  std::map<net::BulkId, ConnectionId> offered;
  std::map<ConnectionId, Outbound> outbound;
  std::map<NodeId, ConnectionId> serving;  ///< the current one of `outbound`
  std::vector<Request> deferred;
  Time retry_deferred = Time::max();
  std::map<ObjectId, Ending> endings;
  Broadcast tree;
  std::map<ObjectId, Copy> copies;
  std::deque<ObjectId> copies_by_age;
  ConnectionId next_outbound = 1;
  std::uint64_t next_served = 1;
  Time trim_at = Time::max();
  std::optional<Error> refusal;  ///< the error for the next pull without memory
  bool running = false;
  TransferStats stats;
  ReceiveBuffers buffers;

  Impl(objectstore::Host& h, Out& o, TransfersOptions given)
      : host(h),
        out(o),
        options(std::move(given)),
        plan(options.plan),
        buffers(host.local(), [this] { mailbox.wake(); }) {}
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
  void on(NodeId from, const wire::PullRefused& message, Time now);
  bool still_written(NodeId from, TransferId transfer);
  void note_part(PullId pull, Memory& its, BulkPart part);

  void take_events(Time now);
  void take_arrivals(Time now);
  void take_memory(Time now);
  Result<void> grant(std::uint64_t bytes);
  void no_memory(PullId pull, const Error& error, std::uint64_t bytes, Time now);
  void trim(Time now);
  void in_ended(BulkEvent& event, Time now);
  void in_grew(const BulkEvent& event);
  void out_moved(const BulkEvent& event);
  void out_ended(const BulkEvent& event);
  void deliver();

  bool serve(const Request& request, bool last_try);
  void serve_small(const Request& request, const Pinned& pinned);
  void serve_large(const Request& request, Pinned pinned, std::uint64_t stamp);
  bool sends_elsewhere(const Request& request, const Held& held, std::uint64_t stamp);
  std::optional<Held> held(ObjectId object);
  std::uint64_t stamp_of_held(ObjectId object, const Held& held) const;
  void pass_on(const Request& request, PullId pull, Memory& from);
  Outbound* way_to(const Request& request);
  void start_serving(const Request& request, Outbound& to, Served served, BlobView bytes,
                     BulkPart part);
  void pin_for_children(const Memory& from, const objectstore::Location& at);
  void abandon_children(const Memory& from, const std::shared_ptr<Allocation>& keep);
  void no_child_any_more(ConnectionId connection, std::uint64_t item, const Served& served);
  void remember_copy(ObjectId object, Copy copy);
  void serve_deferred(Time now);
  void refuse(const Request& request, const Error& error);
  void stop_serving(NodeId node);
};

}  // namespace troupe::agent
