/// The threads of bulk connections. bulk_queues.cpp has what they send and expect.
#include "troupe/runtime/agent/bulk_threads.hpp"

#include <sys/socket.h>
#include <algorithm>
#include <utility>

namespace troupe::agent {

// -- BulkIn

BulkIn::BulkIn(ConnectionId connection, net::BulkKey key, Mailbox& mailbox)
    : connection_(connection), key_(std::move(key)), mailbox_(mailbox) {}

BulkIn::~BulkIn() {
  close();
  if (thread_.joinable()) thread_.join();
}

void BulkIn::start(Fd fd, Time first_by) {
  TROUPE_ASSERT(!started(), "a bulk connection came twice");
  fd_ = std::move(fd);
  thread_ = SignalMaskedThread("troupe-bulk-in", [this, first_by] { run(first_by); });
}

void BulkIn::close() noexcept {
  if (fd_) shutdown(fd_.get(), SHUT_RDWR);
}

// Reads without time limits: the event loop looks at heard() and calls close().
void BulkIn::run(Time first_by) {
  net::BulkReceiver receiver(fd_.get(), std::move(key_), first_by);
  Result<void> result = receiver.start(Time::max());
  while (result) result = receive_piece(receiver);
  mailbox_.post({.kind = BulkEvent::Kind::in_ended,
                 .connection = connection_,
                 .item = 0,
                 .error = result.error(),
                 .forged = receiver.forged(),
                 .part = {}});
}

Result<void> BulkIn::receive_piece(net::BulkReceiver& receiver) {
  const Result<net::BulkHeader> header = receiver.next(Time::max());
  if (!header) return header.error();
  const Result<std::span<std::byte>> into = place_for(*header);
  if (!into) return into.error();
  if (into->empty()) return throw_away(receiver, *header);
  if (Result<void> got = receiver.read(*into, Time::max()); !got) return got;
  heard_.store(steady_now().time_since_epoch().count(), std::memory_order_relaxed);
  took(*header);
  return {};
}

Result<void> BulkIn::throw_away(net::BulkReceiver& receiver, const net::BulkHeader& header) {
  if (thrown_away_.size() < header.length) thrown_away_.resize(header.length);
  heard_.store(steady_now().time_since_epoch().count(), std::memory_order_relaxed);
  return receiver.read(std::span(thrown_away_).first(header.length), Time::max());
}

// -- BulkOut

BulkOut::BulkOut(ConnectionId connection, BulkOutOptions options, net::BulkKey key,
                 Mailbox& mailbox)
    : connection_(connection),
      options_(std::move(options)),
      key_(std::move(key)),
      mailbox_(mailbox) {
  thread_ = SignalMaskedThread("troupe-bulk-out", [this] { run(); });
}

BulkOut::~BulkOut() {
  close();
  thread_.join();
}

bool BulkOut::enqueue(std::uint64_t item, ObjectId object, BlobView bytes, std::uint64_t stamp,
                      std::uint64_t from, std::uint64_t limit) {
  const std::lock_guard lock(mutex_);
  if (over_) return false;
  queue_.push_back({item, object, bytes, stamp, from, limit, false});
  changed_.notify_one();
  return true;
}

void BulkOut::allow(std::uint64_t number, BulkPart part) {
  const std::lock_guard lock(mutex_);
  Item* item = find(number);
  if (item == nullptr) return;
  item->limit = part.bytes;
  item->stamp = part.stamp;
  changed_.notify_one();
}

void BulkOut::abandon(std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  Item* item = find(number);
  if (item == nullptr) return;
  item->dropped = true;
  changed_.notify_one();
}

void BulkOut::close() noexcept {
  const std::lock_guard lock(mutex_);
  over_ = true;
  if (fd_) shutdown(fd_.get(), SHUT_RDWR);
  changed_.notify_one();
}

/// Takes the connected socket, so that close() can shut it down. Returns false when close() was
/// called before.
bool BulkOut::adopt(Fd fd) {
  const std::lock_guard lock(mutex_);
  fd_ = std::move(fd);
  return !over_;
}

void BulkOut::run() {
  const Result<void> result = serve();
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  mailbox_.post({.kind = BulkEvent::Kind::out_ended,
                 .connection = connection_,
                 .item = 0,
                 .error = result ? Error(Code::unavailable, "the bulk connection was closed")
                                 : result.error(),
                 .forged = false,
                 .part = {}});
}

Result<void> BulkOut::serve() {
  Result<Fd> connected =
      net::bulk_connect(options_.host, options_.port, options_.id, steady_now() + options_.connect);
  if (!connected) return connected.error();
  const int fd = connected->get();
  if (!adopt(*std::move(connected))) return {};
  net::BulkSender sender(fd, std::move(key_));
  Result<void> result = sender.start(steady_now() + options_.silence);
  while (result) {
    const std::optional<Item> item = next();
    if (!item) return {};
    result = send(sender, *item);
  }
  return result;
}

/// Waits for and returns the first item that has work; nullopt when the connection is closed or
/// was idle for too long.
std::optional<BulkOut::Item> BulkOut::next() {
  std::unique_lock lock(mutex_);
  const auto ready = [this] {
    return std::find_if(queue_.begin(), queue_.end(),
                        [](const Item& item) { return item.has_work(); });
  };
  while (!over_ && ready() == queue_.end()) {
    const bool idle = queue_.empty();
    const auto waited = changed_.wait_for(lock, options_.idle);
    if (waited == std::cv_status::timeout && idle && queue_.empty()) over_ = true;
  }
  if (over_) return std::nullopt;
  return *ready();
}

/// Sends one piece of the item, without the lock: `item` is a copy.
Result<void> BulkOut::send(net::BulkSender& sender, const Item& item) {
  const std::size_t size = item.dropped ? 0 : item.piece();
  if (size > 0) {
    const bool last = item.sent + size == item.bytes.size();
    const net::BulkHeader header{item.object, item.sent, 0, last, item.stamp};
    if (auto done = sender.send(header, item.bytes.subspan(item.sent, size),
                                steady_now() + options_.silence);
        !done)
      return done;
  }
  sent(item);
  return {};
}

}  // namespace troupe::agent
