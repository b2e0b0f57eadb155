/// Bulk: objects between nodes over plain TCP, each frame sealed with AES-256-GCM (NIST SP
/// 800-38D).
///
///     auto door = net::BulkDoor::open("127.0.0.1", 0);         // receiver's node, in its event
///     loop door->expect(id, expires);                                // id and keys are agreed
///     over a Link net::BulkSender out(fd, std::move(key));    out.start(by);
///     out.send_object(object, bytes, by); net::BulkReceiver in(fd, std::move(key), first_by);
///     in.start(by);  in.receive_object(object, extent, by);
///
/// A connection begins with the 16 bytes of its id in clear, which the door knows and forgets at
/// once; then come frames: 40 bytes of header, the sealed bytes, a 16-byte tag. The header is the
/// associated data (object, offset, length, last, stamp); the nonce is 4 zero bytes and a 64-bit
/// count of frames, which does not travel: a frame that is repeated, left out or moved does not
/// authenticate. A key serves one direction of one connection and is wiped with its owner. The
/// first frame is empty and must authenticate within 5 s, so that a stranger never gets a byte into
/// the receiver's memory.
///
/// Sender and receiver block, with a deadline, and belong on a transfer thread; the door does not.
#pragma once

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/fd.hpp"
#include "troupe/runtime/base/ids.hpp"
#include "troupe/runtime/net/keys.hpp"

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace troupe::net {

using BulkKey = Secret<32>;
using BulkId = Id<struct BulkTag>;  ///< names a connection; random, not secret, used once

inline constexpr std::size_t bulk_chunk = std::size_t{256} << 10;  ///< what send_object() cuts into
inline constexpr std::size_t max_bulk_chunk = std::size_t{1} << 20;  ///< more is refused
inline constexpr Duration bulk_first_frame{std::chrono::seconds(5)};
/// How long the door is not looked at when no descriptor is left.
inline constexpr Duration bulk_door_rest{std::chrono::milliseconds(100)};

/// A fresh key from getrandom(2). Errors: Unavailable.
Result<BulkKey> fresh_bulk_key();

/// What a frame says of itself; to be believed only after read() has returned well.
struct BulkHeader {
  ObjectId object;
  std::uint64_t offset = 0;
  std::uint32_t length = 0;
  bool last = false;
  std::uint64_t stamp = 0;  ///< the sender's name for one life of the object's bytes
};

/// Opens a connection and names it. Blocks until `by` at most.
/// Errors: Unavailable (refused, unreachable), TimedOut, InvalidArgument (not an IPv4 address).
Result<Fd> bulk_connect(const std::string& host, std::uint16_t port, BulkId id, Time by);

/// One direction, outgoing. Not thread-safe. After any error the connection is of no more use.
/// Errors of all calls: TimedOut, Unavailable (the peer closed).
class BulkSender {
 public:
  /// The descriptor stays the caller's.
  BulkSender(int fd, BulkKey key);
  ~BulkSender();
  BulkSender(BulkSender&&) noexcept;

  /// Proves the key; the first call.
  Result<void> start(Time by);
  /// Sends one chunk of at most max_bulk_chunk bytes. One copy, by the cipher.
  Result<void> send(const BulkHeader& header, BlobView chunk, Time by);
  /// Sends a whole object in chunks, the last one marked.
  Result<void> send_object(ObjectId object, BlobView bytes, Time by);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// One direction, incoming. Not thread-safe. After any error the connection is of no more use, and
/// what was written into the caller's memory since the last good frame must not be read. Errors of
/// all calls: TimedOut, Unavailable (the peer closed; or a frame that does not authenticate:
/// tampered with, repeated, or under another key, see forged()).
class BulkReceiver {
 public:
  /// `first_by`: when the first frame must have authenticated; accept time + bulk_first_frame.
  BulkReceiver(int fd, BulkKey key, Time first_by);
  ~BulkReceiver();
  BulkReceiver(BulkReceiver&&) noexcept;

  /// Awaits the proof of the key; the first call.
  Result<void> start(Time by);
  /// The header of the next frame, its length checked against max_bulk_chunk but not yet proven.
  Result<BulkHeader> next(Time by);
  /// Its bytes, decrypted straight into `into`, which must have exactly header.length bytes.
  Result<void> read(std::span<std::byte> into, Time by);
  /// A whole object of exactly into.size() bytes, in order. Good means that every tag was right.
  /// InvalidArgument when the peer sends another object or another size.
  Result<void> receive_object(ObjectId object, std::span<std::byte> into, Time by);

  /// Whether it ended because a frame was not authentic; for the audit log.
  bool forged() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Accepts bulk connections in an event loop: reads each one's id and hands over those expected.
/// Others are closed: at once, or after bulk_first_frame when they say nothing. At most 128 wait.
class BulkDoor {
 public:
  struct Arrived {
    BulkId id;
    Fd fd;
    Time first_by;  ///< for BulkReceiver
  };
  /// Port 0 takes a free one. Errors: Unavailable naming address and port; InvalidArgument.
  static Result<std::unique_ptr<BulkDoor>> open(const std::string& host, std::uint16_t port);
  ~BulkDoor();
  BulkDoor(const BulkDoor&) = delete;
  BulkDoor& operator=(const BulkDoor&) = delete;

  std::uint16_t port() const noexcept { return port_; }
  /// This id will be taken once until then.
  void expect(BulkId id, Time expires) { expected_[id] = expires; }
  void forget(BulkId id) { expected_.erase(id); }

  /// Readable when poll() has work.
  int fd() const noexcept { return epoll_.get(); }
  /// Does not block.
  std::vector<Arrived> poll(Time now);
  Time next_deadline() const noexcept;
  std::uint64_t refused() const noexcept { return refused_; }

 private:
  struct Waiting {
    Fd fd;
    Time by;
    std::size_t have = 0;
    std::byte id[16];
  };
  BulkDoor(Fd listener, Fd epoll, std::uint16_t port);
  void accept_new(Time now);
  bool read_id(Waiting& waiting, Time now, std::vector<Arrived>& arrived);

  Fd listener_, epoll_;
  std::uint16_t port_;
  std::map<int, Waiting> waiting_;
  std::map<BulkId, Time> expected_;
  Time deaf_until_ = Time::max();  ///< with no descriptor left for who knocks; else max
  std::uint64_t refused_ = 0;
};

}  // namespace troupe::net
