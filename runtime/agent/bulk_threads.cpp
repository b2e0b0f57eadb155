#include "troupe/runtime/agent/bulk_threads.hpp"

#include <sys/eventfd.h>
#include <sys/socket.h>
#include <algorithm>
#include <utility>

namespace troupe::agent {
namespace {

Error protocol(const std::string& what) {
  return Error(Code::unavailable, "the bulk connection broke the protocol: " + what,
               Outcome::unknown);
}

}  // namespace

// -- Mailbox

Mailbox::Mailbox() : event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  TROUPE_ASSERT(event_, "no descriptor left for the transfers' mailbox");
}

void Mailbox::post(BulkEvent event) {
  {
    const std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
  }
  wake();
}

void Mailbox::wake() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(event_.get(), &one, sizeof one);
}

/// Empties the eventfd first: a post() between the two steps makes it readable again.
std::vector<BulkEvent> Mailbox::take() {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t n = read(event_.get(), &count, sizeof count);
  const std::lock_guard lock(mutex_);
  return std::exchange(events_, {});
}

// -- BulkIn

BulkIn::BulkIn(ConnectionId connection, net::BulkKey key, Mailbox& mailbox)
    : connection_(connection), key_(std::move(key)), mailbox_(mailbox) {}

BulkIn::~BulkIn() {
  close();
  if (thread_.joinable()) thread_.join();
}

void BulkIn::expect(ObjectId object, std::uint64_t item, std::span<std::byte> into, BulkPart part,
                    bool watched) {
  const std::lock_guard lock(mutex_);
  expected_[object] = {item, into, part, false, watched};
  forgotten_.erase(object);
}

std::optional<BulkPart> BulkIn::watch(ObjectId object) {
  const std::lock_guard lock(mutex_);
  const auto found = expected_.find(object);
  if (found == expected_.end()) return std::nullopt;
  found->second.watched = true;
  return found->second.part;
}

std::optional<BulkPart> BulkIn::forget(ObjectId object) {
  const std::lock_guard lock(mutex_);
  const auto found = expected_.find(object);
  if (found == expected_.end()) return BulkPart{};
  if (found->second.coming) return std::nullopt;
  const BulkPart part = found->second.part;
  expected_.erase(found);
  forgotten_.insert(object);
  return part;
}

BulkPart BulkIn::part(ObjectId object) {
  const std::lock_guard lock(mutex_);
  const auto found = expected_.find(object);
  return found == expected_.end() ? BulkPart{} : found->second.part;
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

/// The place of a piece, which is marked as being written. Empty if the piece is to be thrown
/// away: its object is forgotten, or its bytes are here already.
Result<std::span<std::byte>> BulkIn::place_for(const net::BulkHeader& header) {
  const std::lock_guard lock(mutex_);
  const auto found = expected_.find(header.object);
  if (found == expected_.end()) {
    if (forgotten_.count(header.object) != 0) return std::span<std::byte>{};
    return protocol("an object that nobody asked for");
  }
  Expected& expected = found->second;
  BulkPart& part = expected.part;
  const std::uint64_t size = expected.into.size(), end = header.offset + header.length;
  const bool fits = header.length > 0 && header.offset <= size &&
                    header.length <= size - header.offset && header.last == (end == size);
  const bool same = part.bytes == 0 || part.stamp == header.stamp;
  if (fits && same && end <= part.bytes) return std::span<std::byte>{};  // here already
  if (!fits || !same || header.offset != part.bytes)
    return protocol("another piece of the object than the next one");
  expected.coming = true;
  writing_ = expected.item;
  return expected.into.subspan(header.offset, header.length);
}

Result<void> BulkIn::throw_away(net::BulkReceiver& receiver, const net::BulkHeader& header) {
  if (thrown_away_.size() < header.length) thrown_away_.resize(header.length);
  heard_.store(steady_now().time_since_epoch().count(), std::memory_order_relaxed);
  return receiver.read(std::span(thrown_away_).first(header.length), Time::max());
}

void BulkIn::took(const net::BulkHeader& header) {
  BulkEvent event{.kind = BulkEvent::Kind::in_grew,
                  .connection = connection_,
                  .item = 0,
                  .error = {},
                  .forged = false,
                  .part = {header.offset + header.length, header.stamp}};
  {
    const std::lock_guard lock(mutex_);
    const auto found = expected_.find(header.object);
    // Another item means that expect() was called anew, for other memory, during the read.
    if (found == expected_.end() || found->second.item != writing_) return;
    found->second.coming = false;
    found->second.part = event.part;
    event.item = found->second.item;
    if (!header.last && !found->second.watched) return;
    if (header.last) expected_.erase(found);
  }
  if (header.last) event.kind = BulkEvent::Kind::in_moved;
  mailbox_.post(std::move(event));
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

std::size_t BulkOut::Item::piece() const noexcept {
  const std::uint64_t end = std::min<std::uint64_t>(limit, bytes.size());
  if (end <= sent) return 0;
  const std::uint64_t size = std::min<std::uint64_t>(net::kBulkChunk, end - sent);
  // Whole pieces only, except for the last, so that an object is cut alike however often it is
  // passed on.
  return size == net::kBulkChunk || end == bytes.size() ? size : 0;
}

BulkOut::Item* BulkOut::find(std::uint64_t number) {
  const auto at = std::find_if(queue_.begin(), queue_.end(),
                               [number](const Item& item) { return item.number == number; });
  return at == queue_.end() ? nullptr : &*at;
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

/// Records that the next piece of `item` was sent, as the item was when it was copied.
void BulkOut::sent(const Item& item) {
  BulkEvent event{.kind = BulkEvent::Kind::out_moved,
                  .connection = connection_,
                  .item = item.number,
                  .error = {},
                  .forged = false,
                  .part = {}};
  {
    const std::lock_guard lock(mutex_);
    Item* its = find(item.number);
    if (!item.dropped) its->sent += item.piece();
    const bool whole = its->sent == its->bytes.size();
    if (!whole && !its->dropped) return;
    if (!whole) event.kind = BulkEvent::Kind::out_dropped;
    std::erase_if(queue_, [&](const Item& each) { return each.number == item.number; });
  }
  mailbox_.post(std::move(event));
}

}  // namespace troupe::agent
