/// The two threads of transfers: one reads objects of one bulk connection into shared memory, one
/// writes objects from there to another. What they did they post to the event loop's mailbox.
///
///     Mailbox mailbox;                       // mailbox.fd() is readable when it holds something
///     BulkIn in(1, std::move(key), mailbox);
///     in.expect(object, pull, memory);       // → in_moved(1, pull), …
///     in.start(fd, first_by);
///     BulkOut out(2, offer, std::move(key), mailbox);
///     out.enqueue(serve, object, bytes);     // → out_moved(2, serve), …
///
/// An object may go on from a byte on (BulkPart), and may leave while it still arrives: BulkIn says
/// what has come (in_grew, once watch() was called), allow() lets BulkOut send so much of it.
///
/// Whoever makes them keeps the memory alive until the item has moved or was dropped or the thread
/// has ended; each thread posts its `ended` last. Destructors close the connection and join.
#pragma once

#include "troupe/runtime/base/signal_masked_thread.hpp"
#include "troupe/runtime/net/bulk.hpp"

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <set>

namespace troupe::agent {

/// The first bytes of an object, checked, and of which life of it they are.
struct BulkPart {
  std::uint64_t bytes = 0;
  std::uint64_t stamp = 0;
};

struct BulkEvent {
  enum class Kind : std::uint8_t { in_grew, in_moved, in_ended, out_moved, out_dropped, out_ended };
  Kind kind = Kind::in_moved;
  std::uint64_t connection = 0;
  std::uint64_t item = 0;      ///< not of an end: which
  std::optional<Error> error;  ///< ended: why
  bool forged = false;         ///< in_ended: a frame was not authentic
  BulkPart part;               ///< in_grew, in_moved: what there is
};

/// Many threads post, one takes.
class Mailbox {
 public:
  Mailbox();
  /// Readable when something was posted since the last take().
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

/// All calls but those of its own thread come from one thread.
class BulkIn {
 public:
  BulkIn(std::uint64_t connection, net::BulkKey key, Mailbox& mailbox);
  ~BulkIn();

  /// The object may come from now on; its bytes go there. It goes on from `part`. Watched: see
  /// watch().
  void expect(ObjectId object, std::uint64_t item, std::span<std::byte> into, BulkPart part = {},
              bool watched = false);
  /// From now on in_grew tells of each piece. What there is now; none: it is not expected.
  std::optional<BulkPart> watch(ObjectId object);
  /// It is not expected any more: what still comes of it is thrown away. None when it is being
  /// written just now: then it stays so until the end of the thread. Else what there is of it.
  std::optional<BulkPart> forget(ObjectId object);
  /// What there is of an object that is expected.
  BulkPart part(ObjectId object);
  /// The connection has come: reads until it ends.
  void start(Fd fd, Time first_by);
  bool started() const noexcept { return thread_.joinable(); }
  /// Makes the thread end soon.
  void close() noexcept;
  /// When the last whole frame came.
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

  const std::uint64_t connection_;
  net::BulkKey key_;
  Mailbox& mailbox_;
  Fd fd_;
  std::atomic<Duration::rep> heard_{0};
  std::mutex mutex_;
  std::map<ObjectId, Expected> expected_;  ///< by mutex_
  std::set<ObjectId> forgotten_;           ///< by mutex_: may still come
  std::uint64_t writing_ = 0;              ///< whose piece is being written; by mutex_
  Blob thrown_away_;
  SignalMaskedThread thread_;
};

struct BulkOutOptions {
  std::string host;
  std::uint16_t port = 0;
  net::BulkId id;
  Duration connect{std::chrono::seconds(3)};
  Duration silence{std::chrono::seconds(10)};  ///< no byte went for so long: it is over
  Duration idle{std::chrono::seconds(60)};     ///< nothing to send for so long: it ends
};

/// All calls but those of its own thread come from one thread.
class BulkOut {
 public:
  /// Connects and proves the key on its thread.
  BulkOut(std::uint64_t connection, BulkOutOptions options, net::BulkKey key, Mailbox& mailbox);
  ~BulkOut();

  static constexpr std::uint64_t kAll = ~std::uint64_t{0};
  /// Sends the object after those before it, without the bytes before `from`; so far only the
  /// first `limit`, while it lets others pass. False when it has ended.
  bool enqueue(std::uint64_t item, ObjectId object, BlobView bytes, std::uint64_t stamp = 0,
               std::uint64_t from = 0, std::uint64_t limit = kAll);
  /// The first `part.bytes` may be sent.
  void allow(std::uint64_t item, BulkPart part);
  /// The rest is not sent. Ends in out_dropped or, if it was sent meanwhile, in out_moved.
  void abandon(std::uint64_t item);
  void close() noexcept;

 private:
  struct Item {
    std::uint64_t number = 0;
    ObjectId object;
    BlobView bytes;
    std::uint64_t stamp = 0, sent = 0, limit = kAll;
    bool dropped = false;
    std::size_t piece() const noexcept;  ///< that may go now
    bool has_work() const noexcept { return dropped || piece() > 0; }
  };
  void run();
  Result<void> serve();
  Result<void> send(net::BulkSender& sender, const Item& item);
  std::optional<Item> next();
  void sent(const Item& item);
  Item* find(std::uint64_t item);
  bool adopt(Fd fd);

  const std::uint64_t connection_;
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
