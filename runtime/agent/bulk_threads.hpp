/// The threads of Transfers: BulkIn reads objects of one bulk connection into shared memory,
/// BulkOut writes objects from shared memory to one. Both post their results to the event loop's
/// mailbox.
///
///     Mailbox mailbox;                       // mailbox.fd() is readable when it holds something
///     BulkIn in(1, std::move(key), mailbox);
///     in.expect(object, pull, memory);       // → in_moved(1, pull), …
///     in.start(fd, first_by);
///     BulkOut out(2, offer, std::move(key), mailbox);
///     out.enqueue(serve, object, bytes);     // → out_moved(2, serve), …
///
/// An object may continue after its first bytes (BulkPart), and may be sent on while it still
/// arrives: BulkIn reports each piece (in_grew, after watch()), and allow() lets BulkOut send that
/// much.
///
/// The caller keeps an item's memory alive until the item has moved or was dropped, or the thread
/// has ended. Each thread posts its `ended` event last. Destructors close the connection and join.
#pragma once

#include "troupe/runtime/agent/transfer_ids.hpp"
#include "troupe/runtime/base/signal_masked_thread.hpp"
#include "troupe/runtime/net/bulk.hpp"

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <set>

namespace troupe::agent {

/// The number of an object's first bytes that are here and were checked, and the stamp of the life
/// that they are of.
struct BulkPart {
  std::uint64_t bytes = 0;
  std::uint64_t stamp = 0;
};

struct BulkEvent {
  enum class Kind : std::uint8_t { in_grew, in_moved, in_ended, out_moved, out_dropped, out_ended };
  Kind kind = Kind::in_moved;
  ConnectionId connection = 0;
  std::uint64_t item = 0;      ///< unused in in_ended and out_ended
  std::optional<Error> error;  ///< in_ended, out_ended: the reason
  bool forged = false;         ///< in_ended: a frame was not authentic
  BulkPart part;               ///< in_grew, in_moved: the bytes that are here
};

/// A queue of events to which many threads post and from which one takes.
class Mailbox {
 public:
  Mailbox();
  /// Readable when post() or wake() was called since the last take().
  int fd() const noexcept { return event_.get(); }
  void post(BulkEvent event);
  /// Makes fd() readable.
  void wake();
  std::vector<BulkEvent> take();

 private:
  Fd event_;
  std::mutex mutex_;
  std::vector<BulkEvent> events_;  ///< by mutex_
};

/// Reads one connection. Its functions are called from one thread.
class BulkIn {
 public:
  BulkIn(ConnectionId connection, net::BulkKey key, Mailbox& mailbox);
  ~BulkIn();

  /// Lets the object come: its bytes go into `into`, from those of `part` on. For `watched` see
  /// watch().
  void expect(ObjectId object, std::uint64_t item, std::span<std::byte> into, BulkPart part = {},
              bool watched = false);
  /// Lets in_grew report each piece from now on. Returns the part that is here; nullopt if the
  /// object is not expected.
  std::optional<BulkPart> watch(ObjectId object);
  /// Ends expect(): later pieces of the object are thrown away. Returns the part that is here.
  /// Returns nullopt when the thread is writing a piece of it at this moment: the object then
  /// stays expected, and its memory must live until the thread has ended.
  std::optional<BulkPart> forget(ObjectId object);
  /// The part that is here of an expected object; empty if it is not expected.
  BulkPart part(ObjectId object);
  /// Starts the thread, which reads from the accepted connection until that ends. The first frame
  /// must have authenticated by `first_by`.
  void start(Fd fd, Time first_by);
  bool started() const noexcept { return thread_.joinable(); }
  /// Makes the thread end soon.
  void close() noexcept;
  /// When the last whole frame came. Relaxed: it orders no other memory.
  Time heard() const noexcept { return Time(Duration(heard_.load(std::memory_order_relaxed))); }

 private:
  struct Expected {
    std::uint64_t item = 0;
    std::span<std::byte> into;
    BulkPart part;
    bool coming = false;  ///< a piece is being written
    bool watched = false;
  };
  void run(Time first_by);
  Result<void> receive_piece(net::BulkReceiver& receiver);
  Result<void> throw_away(net::BulkReceiver& receiver, const net::BulkHeader& header);
  Result<std::span<std::byte>> place_for(const net::BulkHeader& header);
  void took(const net::BulkHeader& header);

  const ConnectionId connection_;
  net::BulkKey key_;
  Mailbox& mailbox_;
  Fd fd_;
  std::atomic<Duration::rep> heard_{0};
  std::mutex mutex_;
  std::map<ObjectId, Expected> expected_;  ///< by mutex_
  std::set<ObjectId> forgotten_;           ///< by mutex_: may still come
  std::uint64_t writing_ = 0;              ///< item of the piece that is being written; by mutex_
  Blob thrown_away_;
  SignalMaskedThread thread_;
};

struct BulkOutOptions {
  std::string host;
  std::uint16_t port = 0;
  net::BulkId id;
  Duration connect{std::chrono::seconds(3)};
  Duration silence{std::chrono::seconds(10)};  ///< ends when a send makes no progress for this long
  Duration idle{std::chrono::seconds(60)};     ///< ends when nothing was queued for this long
};

/// Writes one connection. Its functions are called from one thread.
class BulkOut {
 public:
  /// Connects and proves the key on its thread.
  BulkOut(ConnectionId connection, BulkOutOptions options, net::BulkKey key, Mailbox& mailbox);
  ~BulkOut();

  static constexpr std::uint64_t kAll = ~std::uint64_t{0};
  /// Queues the object's bytes from `from` on. Only the bytes before `limit` are sent until
  /// allow(); later objects overtake it meanwhile. Returns false when the connection has ended.
  bool enqueue(std::uint64_t item, ObjectId object, BlobView bytes, std::uint64_t stamp = 0,
               std::uint64_t from = 0, std::uint64_t limit = kAll);
  /// Allows the first `part.bytes` bytes to be sent.
  void allow(std::uint64_t item, BulkPart part);
  /// Drops the rest of an item. Ends in out_dropped, or in out_moved if all was sent meanwhile.
  void abandon(std::uint64_t item);
  void close() noexcept;

 private:
  struct Item {
    std::uint64_t number = 0;
    ObjectId object;
    BlobView bytes;
    std::uint64_t stamp = 0, sent = 0, limit = kAll;
    bool dropped = false;
    std::size_t piece() const noexcept;  ///< size of the next piece, or 0 if none may be sent now
    bool has_work() const noexcept { return dropped || piece() > 0; }
  };
  void run();
  Result<void> serve();
  Result<void> send(net::BulkSender& sender, const Item& item);
  std::optional<Item> next();
  void sent(const Item& item);
  Item* find(std::uint64_t item);
  bool adopt(Fd fd);

  const ConnectionId connection_;
  const BulkOutOptions options_;
  net::BulkKey key_;
  Mailbox& mailbox_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> queue_;  ///< by mutex_, as are the next two
  bool over_ = false;
  Fd fd_;
  SignalMaskedThread thread_;
};

}  // namespace troupe::agent
