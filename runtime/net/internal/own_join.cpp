#include "troupe/runtime/net/internal/own_join.hpp"

namespace troupe::net::internal {

OwnJoin::End OwnJoin::start(const JoinToken& token, const DoorMessage& request,
                            const std::string& address) {
  Result<CurveKeys> keys = CurveKeys::from_secret(token.one_time.copy());
  if (!keys) return Result<Blob>(keys.error());
  if (request.body.size() > kMaxDoorBody)
    return Result<Blob>(Error(Code::invalid_argument, "a join request of more than 64 KiB"));
  channel_ = sockets_.dial(token.head, *keys, kMaxDoorMessage, Watched::join, {}, true);
  if (!channel_) return failed(Sockets::kNoneLeft);
  if (!channel_.socket.connect(address)) return failed("its address cannot be used");
  const Blob bytes = encode(request);
  channel_.socket.send(bytes.data(), bytes.size());
  return std::nullopt;
}

OwnJoin::End OwnJoin::on_answer() {
  Part part;
  if (!channel_.socket.readable() || !channel_.socket.receive(part)) return std::nullopt;
  Result<DoorMessage> answer = decode_door(part.bytes());
  if (!answer) return failed("it answers nonsense");
  if (answer->kind != DoorKind::joined) return failed(printable(answer->body));
  return Result<Blob>(std::move(answer->body));
}

OwnJoin::End OwnJoin::on_monitor() {
  for (const ConnectionNews& item : Sockets::news(channel_.monitor)) {
    if (item.kind == ConnectionNews::refused_by_peer)
      return failed("the token is spent, expired or for another cluster");
    if (item.kind == ConnectionNews::failed)
      trouble_ = "nobody there completes a handshake under the token's key";
  }
  return std::nullopt;
}

Result<Blob> OwnJoin::failed(const std::string& why) const {
  std::string text = "cannot join at " + door_ + ": " + why;
  if (!trouble_.empty()) text += " (" + trouble_ + ")";
  return Error(Code::unavailable, std::move(text));
}

}  // namespace troupe::net::internal
