/// The two threads of transfers: one reads objects of one bulk connection into shared memory, one
/// writes objects from there to another. What they did they post to the event loop's mailbox.
///
///     Mailbox mailbox;                                    // mailbox.fd() is readable when it
///     holds BulkIn in(1, std::move(key), mailbox); in.expect(object, pull, memory);  in.start(fd,
///     first_by);    // → in_moved(1, pull), … BulkOut out(2, offer, std::move(key), limits,
///     mailbox); out.enqueue(serve, object, bytes);                            // → out_moved(2,
///     serve), …
///
/// Whoever makes them keeps the memory alive until the item has moved or the thread has ended; each
/// thread posts its `ended` last. Destructors close the connection and join.
#pragma once

#include "troupe/runtime/net/bulk.hpp"

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>

namespace troupe::agent {

struct BulkEvent {
  enum class Kind : std::uint8_t { in_moved, in_ended, out_moved, out_ended };
  Kind kind = Kind::in_moved;
  std::uint64_t connection = 0;
  std::uint64_t item = 0;      ///< moved: which
  std::optional<Error> error;  ///< ended: why
  bool forged = false;         ///< in_ended: a frame was not authentic
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

  /// The object may come from now on; its bytes go there.
  void expect(ObjectId object, std::uint64_t item, std::span<std::byte> into);
  /// It is not expected any more. False when it is being written just now: then it stays so until
  /// the end of the thread.
  bool forget(ObjectId object);
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
    bool coming = false;
  };
  void run(Time first_by);
  Result<void> receive_one(net::BulkReceiver& receiver);

  const std::uint64_t connection_;
  net::BulkKey key_;
  Mailbox& mailbox_;
  Fd fd_;
  std::atomic<Duration::rep> heard_{0};
  std::mutex mutex_;
  std::map<ObjectId, Expected> expected_;  ///< by mutex_
  std::thread thread_;
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

  /// Sends the object after those before it. False when it has ended.
  bool enqueue(std::uint64_t item, ObjectId object, BlobView bytes);
  void close() noexcept;

 private:
  struct Item {
    std::uint64_t number = 0;
    ObjectId object;
    BlobView bytes;
  };
  void run();
  Result<void> serve();
  Result<void> send(net::BulkSender& sender, const Item& item);
  std::optional<Item> next();
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
  std::thread thread_;
};

}  // namespace troupe::agent
