/// Moves the bytes of objects between agents, both ways: fetches objects of other nodes into the
/// agent's own extents, and serves this node's objects to others.
///
///     auto transfers = Transfers::open(host, out, {.host = "127.0.0.1"}).value();
///     transfers->pull(owner, object, bytes, now);            // ends in out.done or out.failed
///     transfers->on_message(from, message, payload, now);    // Pull*, BulkOffer
///     // in the loop: wait for fd() until next_deadline(), then
///     transfers->poll(now);                                  // calls out.done and out.failed
///
/// Use it from one thread, that of the Host; no call blocks. Objects up to kSmallObject travel in
/// a message. Larger ones travel over a bulk connection, one per direction and node, which is made
/// when it is needed and ends when idle. Each connection has a thread that reads into, or writes
/// from, shared memory. TransferPlan decides what is fetched when. A served object is pinned until
/// its last byte is sent. When more than two nodes want an object of kShareFrom bytes or more, the
/// later ones are referred to the earlier ones (Broadcast), which pass on each piece as soon as it
/// has been checked.
///
/// out.done and out.failed are called within poll() only. They and out.send may call pull(),
/// cancel(), node_died() and on_message(). After poll(), send what Host::take_notices() gives,
/// since views of freed objects may have ended. Errors of a pull: ObjectLost (the owner no longer
/// has the object, or its node died), OutOfMemory (no memory came free for `plan.patience`),
/// OutOfDisk (no memory could be freed since the disk is full), Unavailable (the node sent nothing
/// for `plan.silence`, or its connection broke `plan.attempts` times).
#pragma once

#include "troupe/objectstore/host.hpp"
#include "troupe/runtime/agent/transfer_plan.hpp"
#include "troupe/runtime/wire/peer.hpp"

#include <memory>
#include <optional>
#include <string>

namespace troupe::agent {

inline constexpr std::uint64_t kShareFrom = 1 << 20;  ///< the owner itself serves smaller objects

struct TransfersOptions {
  std::string host = "127.0.0.1";  ///< an IPv4 address of this node that others reach
  std::uint16_t port = 0;          ///< of the bulk door; 0 takes a free one
  PlanOptions plan;
  /// Empty extents of the agent's own beyond this size are returned every `plan.idle`.
  Bytes keep{64u << 20};
  Duration serve_idle{std::chrono::seconds(60)};  ///< a connection that serves nothing ends then
};

struct TransferStats {
  std::uint64_t pulled_objects = 0, pulled_bytes = 0;
  std::uint64_t served_objects = 0, served_bytes = 0;
  std::uint64_t connections = 0;     ///< offered so far
  std::uint64_t lost = 0;            ///< connections that broke while objects were on their way
  std::uint64_t forged = 0;          ///< connections that ended since a frame was not authentic
  std::uint64_t resumed_bytes = 0;   ///< bytes that were here when an object was asked for again
  std::uint64_t sent_elsewhere = 0;  ///< requests that were answered with another node's name
  std::uint64_t threads = 0;         ///< now
};

class Transfers {
 public:
  /// An object that is on this node.
  struct Held {
    wire::Location at;    ///< where its bytes are
    wire::Location name;  ///< where they were when it was sealed; it identifies the life
    bool own = true;      ///< this node owns the object; it is not a copy
  };

  class Out {
   public:
    virtual ~Out() = default;
    /// Sends a message to a node's agent. Copies the payload before it returns.
    virtual void send(NodeId to, const wire::PeerMessage& message, BlobView payload) = 0;
    /// Finds an object to serve: one of this node, or a copy that done() has reported.
    virtual std::optional<Held> find(ObjectId object) = 0;
    /// Ends a pull: the object is here, adopted by the agent itself (free it with Host::free).
    virtual void done(ObjectId object, NodeId from, const wire::Location& location) = 0;
    virtual void failed(ObjectId object, NodeId from, const Error& error) = 0;
    /// A pull has no memory; an extent of so many bytes for the agent's own client would suffice.
    /// Called repeatedly until the pull has memory. memory_came() or memory_refused() may answer,
    /// but not within this call.
    virtual void short_of_memory(std::uint64_t /*bytes*/) {}
  };

  /// Errors: Unavailable or InvalidArgument naming the address that cannot be listened on.
  static Result<std::unique_ptr<Transfers>> open(objectstore::Host& host, Out& out,
                                                 TransfersOptions options = {});
  /// Closes all connections and waits for their threads. That takes milliseconds; up to three
  /// seconds while one is connecting; or until memory that is being prepared is touched.
  ~Transfers();
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  /// Fetches an object of `bytes` bytes from its owner's node. A second call for the same object
  /// shares the first one's fetch.
  void pull(NodeId from, ObjectId object, std::uint64_t bytes, Time now,
            Priority priority = Priority::get);
  /// Ends a pull without a report; bytes that still come are dropped.
  void cancel(ObjectId object, Time now);
  /// Handles PullRequest, PullData, PullOnBulk, PullRefused, PullElsewhere and BulkOffer; ignores
  /// other messages.
  void on_message(NodeId from, const wire::PeerMessage& message, BlobView payload, Time now);
  /// Reports that the agent's own client may have room now.
  void memory_came(Time now);
  /// Reports that it will have none: the next pull without memory ends in this error. OutOfMemory
  /// only lets pulls try again, since memory may still come free.
  void memory_refused(const Error& error, Time now);
  /// Ends all pulls from a node in ObjectLost: its process is gone, or messages to it may be lost.
  /// With `for_ever`, later pulls from it end so as well.
  void node_died(NodeId node, bool for_ever, Time now);

  /// Readable when poll() has work.
  int fd() const noexcept;
  void poll(Time now);
  /// When poll() must be called at the latest; in the past when results wait.
  Time next_deadline() const;

  std::uint16_t port() const noexcept;
  TransferStats stats() const;

 private:
  struct Impl;
  explicit Transfers(std::unique_ptr<Impl> impl) noexcept;
  std::unique_ptr<Impl> impl_;
};

}  // namespace troupe::agent
