/// The messages at a node's door: a knock, and its answer with a port or a reason; a join, and its
/// answer. Their layout never changes, so that any two versions can tell each other why they
/// refuse. Transport sends and reads them.
#pragma once

#include "troupe/runtime/base/result.hpp"
#include "troupe/runtime/base/units.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace troupe::net::internal {

enum class DoorKind : std::uint8_t {
  knock = 1,    ///< an admitted peer asks for a socket of its own
  welcome = 2,  ///< body: its port, two bytes, low first
  refuse = 3,   ///< body: the reason, for people
  join = 4,     ///< from a one-time key; body: the request for control
  joined = 5,   ///< body: control's answer
  later = 6,    ///< answers a knock: the sender is knocking at the receiver's door itself
};

struct DoorMessage {
  DoorKind kind = DoorKind::knock;
  std::uint32_t protocol = 0;
  std::string build;
  Blob body;
};

/// Largest message at the door, which is all that a process may send before it is admitted.
inline constexpr std::size_t kMaxDoorMessage = 64 << 10;
inline constexpr std::size_t kMaxDoorBody = kMaxDoorMessage - 128;

Blob encode(const DoorMessage& message);
Result<DoorMessage> decode_door(BlobView bytes);
/// Returns the body of a welcome: the port of an address like tcp://host:6500.
Blob body_of_port(const std::string& address);
/// Returns the port of a welcome; nullopt for any other message.
std::optional<std::uint16_t> port_of(const DoorMessage& message);
/// Returns a reason that came in a body as text for people, of 1 KiB at most.
std::string printable(const Blob& body);

}  // namespace troupe::net::internal
