/// Bulk: objects between nodes over plain TCP, each frame sealed with AES-256-GCM (NIST SP
/// 800-38D). Agents use it for large objects; id and key of a connection are agreed over a Link.
///
///     auto door = net::BulkDoor::open("127.0.0.1", 0);  // the receiver's node, in its event loop
///     door->expect(id, expires);
///
///     net::BulkSender out(fd, std::move(key));
///     out.start(by);  out.send_object(object, bytes, by);
///
///     net::BulkReceiver in(fd, std::move(key), first_by);
///     in.start(by);  in.receive_object(object, extent, by);
///
/// A connection begins with the 16 bytes of its id in clear. The door accepts an expected id once.
/// Then come frames: 40 bytes of header, the sealed bytes, a 16-byte tag. The header is the
/// associated data (object, offset, length, last, stamp). The nonce is 4 zero bytes and a 64-bit
/// count of frames. The count does not travel, so that a frame which is repeated, left out or moved
/// does not authenticate. A key serves one direction of one connection and is wiped with its owner.
/// The first frame is empty and must authenticate within 5 s, so that a stranger never gets a byte
/// into the receiver's memory.
///
/// Sender and receiver block, with a deadline, and belong on a transfer thread. The door does not
/// block.
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

inline constexpr std::size_t kBulkChunk = std::size_t{256} << 10;   ///< chunks of send_object()
inline constexpr std::size_t kMaxBulkChunk = std::size_t{1} << 20;  ///< larger ones are refused
inline constexpr Duration kBulkFirstFrame{std::chrono::seconds(5)};
/// How long the door accepts nothing after it found no descriptor left.
inline constexpr Duration kBulkDoorRest{std::chrono::milliseconds(100)};

/// Makes a fresh key from getrandom(2). Errors: Unavailable.
Result<BulkKey> fresh_bulk_key();

/// The header of a frame. It is authentic only after read() of that frame has succeeded.
struct BulkHeader {
  ObjectId object;
  std::uint64_t offset = 0;
  std::uint32_t length = 0;
  bool last = false;
  std::uint64_t stamp = 0;  ///< the sender's name for one version of the object's bytes
};

/// Opens a connection and sends its id. Blocks until `by` at most.
/// Errors: Unavailable (refused, unreachable), TimedOut, InvalidArgument (not an IPv4 address).
Result<Fd> bulk_connect(const std::string& host, std::uint16_t port, BulkId id, Time by);

/// The sending end of a connection. Not thread-safe. After any error the connection is unusable.
/// Errors of all calls: TimedOut, Unavailable (the peer closed).
class BulkSender {
 public:
  /// The descriptor stays the caller's.
  BulkSender(int fd, BulkKey key);
  ~BulkSender();
  BulkSender(BulkSender&&) noexcept;

  /// Sends the first frame, which proves the key. It must be the first call.
  Result<void> start(Time by);
  /// Sends one chunk of at most kMaxBulkChunk bytes. The cipher makes the only copy.
  Result<void> send(const BulkHeader& header, BlobView chunk, Time by);
  /// Sends a whole object in chunks, the last one marked.
  Result<void> send_object(ObjectId object, BlobView bytes, Time by);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The receiving end of a connection. Not thread-safe. After any error the connection is unusable,
/// and the caller must not read the bytes written into its memory since the last good frame. Errors
/// of all calls: TimedOut; Unavailable (the peer closed, or a frame does not authenticate because
/// it was tampered with, repeated, or sealed with another key; see forged()).
class BulkReceiver {
 public:
  /// `first_by`: the time by which the first frame must have authenticated: the time of accept +
  /// kBulkFirstFrame.
  BulkReceiver(int fd, BulkKey key, Time first_by);
  ~BulkReceiver();
  BulkReceiver(BulkReceiver&&) noexcept;

  /// Waits for the first frame, which proves the key. It must be the first call.
  Result<void> start(Time by);
  /// Receives the header of the next frame. Its length is checked against kMaxBulkChunk; the
  /// header is not authenticated yet.
  Result<BulkHeader> next(Time by);
  /// Receives the bytes of that frame, decrypts them straight into `into`, and authenticates the
  /// frame. `into` must have exactly header.length bytes.
  Result<void> read(std::span<std::byte> into, Time by);
  /// Receives a whole object of exactly into.size() bytes, in order. On success every tag was
  /// right. InvalidArgument when the peer sends another object or another size.
  Result<void> receive_object(ObjectId object, std::span<std::byte> into, Time by);

  /// Whether the connection ended because a frame was not authentic; for the audit log.
  bool forged() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Accepts bulk connections in an event loop: reads the id of each and returns the expected ones.
/// It closes other connections at once, and silent ones after kBulkFirstFrame. At most 128
/// connections wait for their id.
class BulkDoor {
 public:
  struct Arrived {
    BulkId id;
    Fd fd;
    Time first_by;  ///< for BulkReceiver
  };
  /// Opens the door. Port 0 takes a free port. Errors: Unavailable, which names address and port;
  /// InvalidArgument.
  static Result<std::unique_ptr<BulkDoor>> open(const std::string& host, std::uint16_t port);
  ~BulkDoor();
  BulkDoor(const BulkDoor&) = delete;
  BulkDoor& operator=(const BulkDoor&) = delete;

  std::uint16_t port() const noexcept { return port_; }
  /// Accepts this id once, until `expires`.
  void expect(BulkId id, Time expires) { expected_[id] = expires; }
  void forget(BulkId id) { expected_.erase(id); }

  /// Readable when poll() has work.
  int fd() const noexcept { return epoll_.get(); }
  /// Accepts connections and returns those whose id has arrived. Does not block.
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
  Time deaf_until_ = Time::max();  ///< accepts nothing until then: no descriptor is left; else max
  std::uint64_t refused_ = 0;
};

}  // namespace troupe::net
