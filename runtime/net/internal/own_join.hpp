/// This node's own join: one request at the door of a join token, under the token's one-time key,
/// and the answer. A transport owns one at a time.
///
///     OwnJoin join(sockets, token.door, deadline);
///     if (auto end = join.start(token, request, address)) report(*end);  // it cannot begin
///     on Watched::join:         if (auto end = join.on_answer()) report(*end);
///     on Watched::join_monitor: if (auto end = join.on_monitor()) report(*end);
///     if (now >= join.deadline()) report(join.failed("no answer in time"));
///
/// Each join has one end: the first value that a function returns. No call blocks.
#pragma once

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/result.hpp"
#include "troupe/runtime/net/internal/door.hpp"
#include "troupe/runtime/net/internal/sockets.hpp"

#include <optional>
#include <string>

namespace troupe::net::internal {

class OwnJoin {
 public:
  using End = std::optional<Result<Blob>>;

  /// `sockets` outlives the join. `door`: for the text of an error.
  OwnJoin(Sockets& sockets, std::string door, Time deadline)
      : sockets_(sockets), door_(std::move(door)), deadline_(deadline) {}
  /// Closes the socket.
  ~OwnJoin() { sockets_.close(channel_); }
  OwnJoin(const OwnJoin&) = delete;
  OwnJoin& operator=(const OwnJoin&) = delete;

  /// Sends the request. `address`: the token's door as it is dialled.
  End start(const JoinToken& token, const DoorMessage& request, const std::string& address);
  End on_answer();
  /// Takes the news of the connection.
  End on_monitor();
  Result<Blob> failed(const std::string& why) const;
  Time deadline() const noexcept { return deadline_; }

 private:
  Sockets& sockets_;
  Channel channel_;
  std::string door_, trouble_;  ///< trouble_: why there is no connection, as far as is known
  Time deadline_;
};

}  // namespace troupe::net::internal
