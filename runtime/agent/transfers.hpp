/// Bytes of large objects between agents, both ways: fetches objects of other nodes into the
/// agent's own extents and serves its node's objects to others.
///
///     auto transfers = Transfers::open(host, out, {.host = "127.0.0.1"}).value();
///     transfers->pull(owner, object, bytes, now);            // ends in out.done or out.failed
///     transfers->on_message(from, message, payload, now);    // Pull*, BulkOffer
///     // in the loop: wait for fd() until next_deadline(), then
///     transfers->poll(now);                                  // calls out.done and out.failed
///
/// One thread uses it, the one of the Host, and no call blocks. Objects up to kSmallObject travel
/// in a message, larger ones over one bulk connection per direction and node, which is made when it
/// is needed and ends when idle: a thread of its own reads into, or writes from, shared memory.
/// What is fetched when says TransferPlan; a served object is pinned until its last byte is sent.
/// When more nodes than two want an object of over kShareFrom bytes, the later ones are sent to the
/// earlier ones (Broadcast), which pass on each piece as soon as it has been checked.
///
/// out.done and out.failed are called within poll() only; poll() may call back into pull(),
/// cancel(), node_died() and on_message(), as may out.send. After poll() send what
/// Host::take_notices() gives: views of freed objects may have ended. Errors of a pull: ObjectLost
/// (the owner has it no more, or its node died), OutOfMemory (none came free for `plan.patience`),
/// OutOfDisk (it could not be made free, since the disk is full), Unavailable (the node was silent
/// for ten seconds, or its connection broke twice).
#pragma once

#include "troupe/objectstore/host.hpp"
#include "troupe/runtime/agent/transfer_plan.hpp"
#include "troupe/runtime/wire/peer.hpp"

#include <memory>
#include <optional>
#include <string>

namespace troupe::agent {

inline constexpr std::uint64_t kShareFrom = 1 << 20;  ///< smaller objects are served by their owner

struct TransfersOptions {
  std::string host = "127.0.0.1";  ///< an IPv4 address of this node that others reach
  std::uint16_t port = 0;          ///< of the bulk door; 0 takes a free one
  PlanOptions plan;
  /// Extents of the agent's own that hold nothing are given back every `plan.idle`, beyond this.
  Bytes keep{64u << 20};
  Duration serve_idle{std::chrono::seconds(60)};  ///< a connection that serves nothing ends
};

struct TransferStats {
  std::uint64_t pulled_objects = 0, pulled_bytes = 0;
  std::uint64_t served_objects = 0, served_bytes = 0;
  std::uint64_t connections = 0;     ///< offered so far
  std::uint64_t lost = 0;            ///< connections that broke while objects were on their way
  std::uint64_t forged = 0;          ///< of those, because a frame was not authentic
  std::uint64_t resumed_bytes = 0;   ///< that were there when an object was asked for again
  std::uint64_t sent_elsewhere = 0;  ///< requests that were answered with another node's name
  std::uint64_t threads = 0;         ///< now
};

class Transfers {
 public:
  /// An object that is on this node.
  struct Held {
    wire::Location at;    ///< where its bytes are
    wire::Location name;  ///< where they were when it was sealed; another one is another life
    bool own = true;      ///< of this node, not a copy
  };

  class Out {
   public:
    virtual ~Out() = default;
    /// A message to the agent of a node. The payload is copied before it returns.
    virtual void send(NodeId to, const wire::PeerMessage& message, BlobView payload) = 0;
    /// An object that is here, this node's or a copy that done() told of; for serving it.
    virtual std::optional<Held> find(ObjectId object) = 0;
    /// It is here now, as an adopted object of the agent's own (free it with Host::free).
    virtual void done(ObjectId object, NodeId from, const wire::Location& location) = 0;
    virtual void failed(ObjectId object, NodeId from, const Error& error) = 0;
    /// A pull has no memory: an extent of so many bytes for the agent's own client would do. Said
    /// again until it has some; memory_came() or memory_refused() may answer, but not within.
    virtual void short_of_memory(std::uint64_t /*bytes*/) {}
  };

  /// Errors: Unavailable or InvalidArgument naming the address that cannot be listened on.
  static Result<std::unique_ptr<Transfers>> open(objectstore::Host& host, Out& out,
                                                 TransfersOptions options = {});
  /// Ends its connections and waits for their threads: milliseconds, or up to three seconds while
  /// one is connecting, or 0.7 ms per MiB of memory that is being made.
  ~Transfers();
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  /// Fetches an object of `bytes` bytes from its owner's node; asked for twice, it is fetched once.
  void pull(NodeId from, ObjectId object, std::uint64_t bytes, Time now,
            Priority priority = Priority::get);
  /// It is wanted no more: no report follows, bytes that still come are dropped.
  void cancel(ObjectId object, Time now);
  /// PullRequest, PullData, PullOnBulk, PullRefused, PullElsewhere and BulkOffer; others are
  /// ignored.
  void on_message(NodeId from, const wire::PeerMessage& message, BlobView payload, Time now);
  /// The agent's own client may have room now.
  void memory_came(Time now);
  /// It will not: the next pull without memory ends in this.
  void memory_refused(const Error& error, Time now);
  /// The process behind this id is gone, or what was said to it may be lost: what waits for it ends
  /// in ObjectLost; with `for_ever` what is asked of it later too.
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
