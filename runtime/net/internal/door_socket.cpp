#include "troupe/runtime/net/internal/door_socket.hpp"

#include "troupe/runtime/net/internal/gatekeeper.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace troupe::net::internal {
namespace {

Blob body_of(const std::string& text) {
  const auto* at = reinterpret_cast<const std::byte*>(text.data());
  return Blob(at, at + std::min(text.size(), kMaxDoorBody));
}

}  // namespace

Result<void> DoorSocket::open(const std::string& listen) {
  channel_ = sockets_.serve(ZMQ_ROUTER, kDoorDomain, kMaxDoorMessage, Watched::door, {});
  if (!channel_) return Error(Code::unavailable, Sockets::kNoneLeft);
  if (!channel_.socket.bind(listen))
    return Error(Code::unavailable, "cannot listen on " + listen + ": " + Socket::error() +
                                        "; choose another address or end its user");
  address_ = channel_.socket.endpoint();
  return {};
}

void DoorSocket::close() {
  if (channel_) sockets_.close(channel_);
}

std::optional<DoorSocket::Caller> DoorSocket::receive() {
  std::vector<Part> parts = channel_.socket.receive_all();
  if (parts.size() != 2) return std::nullopt;
  const BlobView id = parts[0].bytes();
  Result<PublicKey> key = PublicKey::parse(parts[1].property("User-Id"));
  Result<DoorMessage> message = decode_door(parts[1].bytes());
  if (!key || !message) return std::nullopt;
  return Caller{Blob(id.begin(), id.end()), *key, std::move(*message)};
}

void DoorSocket::answer(const Blob& routing_id, DoorKind kind, Blob body) {
  const Blob bytes = encode(message_of(kind, std::move(body)));
  channel_.socket.send(routing_id.data(), routing_id.size(), true);
  channel_.socket.send(bytes.data(), bytes.size());
}

void DoorSocket::refuse(const Blob& routing_id, const std::string& why) {
  answer(routing_id, DoorKind::refuse, body_of(why));
}

std::string DoorSocket::objection_to(const DoorMessage& message) const {
  if (message.protocol == protocol_) return {};
  return "this node speaks protocol " + std::to_string(protocol_) + " (build " + build_ +
         ") and the caller protocol " + std::to_string(message.protocol) + " (build " +
         message.build + "): run the same release of troupe on both";
}

}  // namespace troupe::net::internal
