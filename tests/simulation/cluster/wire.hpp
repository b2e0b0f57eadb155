/// The layer below a simulated net::Transport: packets between processes, and the process that
/// opens a Transport. transport.cpp implements net::Transport over it. Network and the loop of
/// control therefore run unchanged, with real Links and without sockets.
///
///     WireScope scope(wire);                                  // Transport::open() finds it
///     auto network = agent::Network::open(options, handler, now);
///     wire.port->on_packet(packet, now);                      // then network->poll(now)
#pragma once

#include "tests/simulation/kernel/trace.hpp"
#include "troupe/runtime/agent/transfer_ids.hpp"
#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/ids.hpp"
#include "troupe/runtime/net/keys.hpp"

#include <cstdint>
#include <memory>

namespace troupe::sim::cluster {

/// One datagram between two processes. The doors exchange knocks before there is a connection.
struct Packet {
  enum class Kind : std::uint8_t {
    none,
    knock,
    welcome,
    refuse,
    frame,    ///< a frame of a Link
    join,     ///< a NodeDescription that asks for admission (bytes: its public key)
    joined,   ///< permission to register
    bulk,     ///< one large object over a bulk connection
    bulk_end  ///< the other side closed the bulk connection
  };
  Kind kind = Kind::none;
  NodeId from, to;
  std::shared_ptr<const Blob> bytes;
  agent::ConnectionId connection;  ///< only for bulk, as are the next two
  agent::TransferId transfer;
  std::uint64_t content = 0;
};

inline void trace_into(Trace& trace, const Packet& packet) {
  trace.mix(static_cast<std::uint64_t>(packet.kind)).mix(packet.from.high).mix(packet.to.low);
  if (packet.bytes) trace.mix(BlobView(*packet.bytes));
  trace.mix(packet.content);
}

/// Receives packets and closed connections.
class Port {
 public:
  virtual ~Port() = default;
  virtual void on_packet(const Packet& packet, Time now) = 0;
  /// All connections to that machine have closed.
  virtual void on_closed(std::uint64_t machine, Time now) = 0;
};

class Wire {
 public:
  virtual ~Wire() = default;
  virtual void transmit(Packet packet) = 0;
  /// Readable when arrive() has work; -1: packets come to the port by themselves.
  virtual int fd() const noexcept { return -1; }
  /// Hands the port what has arrived.
  virtual void arrive(Time /*now*/) {}
  NodeId self;
  Port* port = nullptr;  ///< of the Transport that is open on this wire
};

/// Transport::open() uses this wire during the lifetime of this object.
class WireScope {
 public:
  explicit WireScope(Wire& wire) noexcept { current_ = &wire; }
  ~WireScope() { current_ = nullptr; }
  WireScope(const WireScope&) = delete;
  WireScope& operator=(const WireScope&) = delete;
  static Wire* current() noexcept { return current_; }

 private:
  inline static Wire* current_ = nullptr;
};

/// Returns the key of a node. Each life of a machine has a key of its own.
inline net::PublicKey key_of(NodeId node) {
  net::PublicKey key;
  for (int i = 0; i < 8; ++i) {
    key.bytes[static_cast<std::size_t>(i)] = static_cast<std::byte>(node.high >> (8 * i));
    key.bytes[8 + static_cast<std::size_t>(i)] = static_cast<std::byte>(node.low >> (8 * i));
  }
  key.bytes[16] = std::byte{1};
  return key;
}

/// Makes getrandom() of this process draw its bytes from the seed until free_random_ids().
void seed_random_ids(std::uint64_t seed);
void free_random_ids();

}  // namespace troupe::sim::cluster
