#include "troupe/runtime/net/internal/door.hpp"

#include "troupe/runtime/base/assert.hpp"

#include <algorithm>

namespace troupe::net::internal {
namespace {

constexpr std::byte kMagic[2] = {std::byte{'t'}, std::byte{'D'}};
constexpr std::size_t kFixedSize = 2 + 1 + 4 + 1;
constexpr std::size_t kMaxBuild = 64;

}  // namespace

Blob encode(const DoorMessage& message) {
  TROUPE_ASSERT(message.body.size() <= kMaxDoorBody, "a door message of more than 64 KiB");
  const std::size_t build = std::min(message.build.size(), kMaxBuild);
  Blob bytes(kMagic, kMagic + 2);
  bytes.push_back(static_cast<std::byte>(message.kind));
  for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<std::byte>(message.protocol >> (8 * i)));
  bytes.push_back(static_cast<std::byte>(build));
  for (std::size_t i = 0; i < build; ++i) bytes.push_back(static_cast<std::byte>(message.build[i]));
  bytes.insert(bytes.end(), message.body.begin(), message.body.end());
  return bytes;
}

Result<DoorMessage> decode_door(BlobView bytes) {
  const Error bad(Code::invalid_argument, "not a door message");
  if (bytes.size() < kFixedSize || bytes.size() > kMaxDoorMessage) return bad;
  if (bytes[0] != kMagic[0] || bytes[1] != kMagic[1]) return bad;
  DoorMessage message;
  const auto kind = static_cast<unsigned>(bytes[2]);
  if (kind < 1 || kind > 6) return bad;
  message.kind = static_cast<DoorKind>(kind);
  for (std::size_t i = 0; i < 4; ++i)
    message.protocol |= static_cast<std::uint32_t>(bytes[3 + i]) << (8 * i);
  const auto build = static_cast<std::size_t>(bytes[7]);
  if (build > kMaxBuild || bytes.size() < kFixedSize + build) return bad;
  for (std::size_t i = 0; i < build; ++i) {
    const char c = static_cast<char>(bytes[kFixedSize + i]);
    message.build += c >= ' ' && c <= '~' ? c : '?';
  }
  const BlobView body = bytes.subspan(kFixedSize + build);
  message.body.assign(body.begin(), body.end());
  return message;
}

Blob body_of_port(const std::string& address) {
  const auto port = static_cast<unsigned>(std::stoul(address.substr(address.rfind(':') + 1)));
  return {static_cast<std::byte>(port), static_cast<std::byte>(port >> 8)};
}

std::optional<std::uint16_t> port_of(const DoorMessage& message) {
  if (message.kind != DoorKind::welcome || message.body.size() != 2) return std::nullopt;
  return static_cast<std::uint16_t>(static_cast<unsigned>(message.body[0]) |
                                    static_cast<unsigned>(message.body[1]) << 8);
}

std::string printable(const Blob& body) {
  std::string text;
  for (std::byte b : body) {
    const char c = static_cast<char>(b);
    text += c >= ' ' && c <= '~' ? c : '?';
    if (text.size() == 1024) break;
  }
  return text;
}

}  // namespace troupe::net::internal
