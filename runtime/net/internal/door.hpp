/// Messages at a node's door: who knocks, where its own socket is, or why not. Their layout never
/// changes, so that any two versions can refuse each other in words.
#pragma once

#include "troupe/runtime/base/result.hpp"
#include "troupe/runtime/base/units.hpp"

#include <cstdint>
#include <string>

namespace troupe::net::internal {

enum class DoorKind : std::uint8_t {
  knock = 1,    ///< an admitted peer asks for a socket of its own
  welcome = 2,  ///< body: its port, two bytes, low first
  refuse = 3,   ///< body: the reason, for people
  join = 4,     ///< from a one-time key; body: for control
  joined = 5,   ///< body: control's answer
  later = 6,    ///< to a knock: I am knocking at your door right now
};

struct DoorMessage {
  DoorKind kind = DoorKind::knock;
  std::uint32_t protocol = 0;
  std::string build;
  Blob body;
};

/// Largest message at the door; before admission nobody may send more.
inline constexpr std::size_t max_door_message = 64 << 10;
inline constexpr std::size_t max_door_body = max_door_message - 128;

Blob encode(const DoorMessage& message);
Result<DoorMessage> decode_door(BlobView bytes);

}  // namespace troupe::net::internal
