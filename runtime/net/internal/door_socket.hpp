/// The door of a transport: the ROUTER socket at its listening address. It reads what callers say
/// and answers them; the transport decides what.
///
///     DoorSocket door(sockets, protocol, build);     // the ZAP handler is bound before
///     if (auto opened = door.open("tcp://127.0.0.1:*"); !opened) return opened;
///     while (door.readable())
///       if (auto caller = door.receive()) door.refuse(caller->routing_id, "not today");
///
/// A caller has proven its key before its message arrives here. A message that is not whole, small
/// and printable is dropped. The socket ends with this object.
#pragma once

#include "troupe/runtime/base/result.hpp"
#include "troupe/runtime/net/internal/door.hpp"
#include "troupe/runtime/net/internal/sockets.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace troupe::net::internal {

class DoorSocket {
 public:
  struct Caller {
    Blob routing_id;
    PublicKey key;
    DoorMessage message;
  };

  /// `sockets` outlives the door. Protocol and build stand in every message from here.
  DoorSocket(Sockets& sockets, std::uint32_t protocol, std::string build)
      : sockets_(sockets), protocol_(protocol), build_(std::move(build)) {}
  ~DoorSocket() { close(); }
  DoorSocket(const DoorSocket&) = delete;
  DoorSocket& operator=(const DoorSocket&) = delete;

  /// Errors: unavailable, with the address in the text when it is busy or cannot be bound.
  Result<void> open(const std::string& listen);
  void close();
  /// Returns the address with the port that was bound.
  const std::string& address() const noexcept { return address_; }
  std::uint64_t watch() const noexcept { return channel_.watch; }

  bool readable() { return channel_.socket.readable(); }
  /// Returns the next message; nullopt when it is bad. Precondition: readable().
  std::optional<Caller> receive();
  void answer(const Blob& routing_id, DoorKind kind, Blob body);
  /// `why`: a sentence for people.
  void refuse(const Blob& routing_id, const std::string& why);
  /// Returns why the caller's protocol does not do; empty when it does.
  std::string objection_to(const DoorMessage& message) const;
  /// Returns a message of this transport for another one's door.
  DoorMessage message_of(DoorKind kind, Blob body) const {
    return {kind, protocol_, build_, std::move(body)};
  }

 private:
  Sockets& sockets_;
  std::uint32_t protocol_;
  std::string build_;
  Channel channel_;
  std::string address_;
};

}  // namespace troupe::net::internal
