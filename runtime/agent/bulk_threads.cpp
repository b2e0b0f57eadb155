#include "troupe/runtime/agent/bulk_threads.hpp"

#include "troupe/runtime/agent/internal/quiet_thread.hpp"

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

std::vector<BulkEvent> Mailbox::take() {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t n = read(event_.get(), &count, sizeof count);
  const std::lock_guard lock(mutex_);
  return std::exchange(events_, {});
}

// -- BulkIn

BulkIn::BulkIn(std::uint64_t connection, net::BulkKey key, Mailbox& mailbox)
    : connection_(connection), key_(std::move(key)), mailbox_(mailbox) {}

BulkIn::~BulkIn() {
  close();
  if (thread_.joinable()) thread_.join();
}

void BulkIn::expect(ObjectId object, std::uint64_t item, std::span<std::byte> into) {
  const std::lock_guard lock(mutex_);
  expected_[object] = {item, into, false};
}

bool BulkIn::forget(ObjectId object) {
  const std::lock_guard lock(mutex_);
  const auto found = expected_.find(object);
  if (found == expected_.end()) return true;
  if (found->second.coming) return false;
  expected_.erase(found);
  return true;
}

void BulkIn::start(Fd fd, Time first_by) {
  TROUPE_ASSERT(!started(), "a bulk connection came twice");
  fd_ = std::move(fd);
  thread_ = quiet_thread("troupe-bulk-in", [this, first_by] { run(first_by); });
}

void BulkIn::close() noexcept {
  if (fd_) shutdown(fd_.get(), SHUT_RDWR);
}

// Limits of time are the event loop's, which looks at heard() and closes.
void BulkIn::run(Time first_by) {
  net::BulkReceiver receiver(fd_.get(), std::move(key_), first_by);
  Result<void> result = receiver.start(Time::max());
  while (result) result = receive_one(receiver);
  mailbox_.post({.kind = BulkEvent::Kind::in_ended,
                 .connection = connection_,
                 .item = 0,
                 .error = result.error(),
                 .forged = receiver.forged()});
}

Result<void> BulkIn::receive_one(net::BulkReceiver& receiver) {
  Result<net::BulkHeader> header = receiver.next(Time::max());
  if (!header) return header.error();
  const ObjectId object = header->object;
  Expected expected;
  {
    const std::lock_guard lock(mutex_);
    const auto found = expected_.find(object);
    if (found == expected_.end()) return protocol("an object that nobody asked for");
    found->second.coming = true;
    expected = found->second;
  }
  const std::size_t size = expected.into.size();
  for (std::size_t offset = 0;;) {
    const bool fits = header->object == object && header->offset == offset &&
                      header->length <= size - offset && header->length > 0 &&
                      header->last == (offset + header->length == size);
    if (!fits) return protocol("another piece of the object than the next one");
    if (auto got = receiver.read(expected.into.subspan(offset, header->length), Time::max()); !got)
      return got;
    heard_.store(steady_now().time_since_epoch().count(), std::memory_order_relaxed);
    if (header->last) break;
    offset += header->length;
    header = receiver.next(Time::max());
    if (!header) return header.error();
  }
  {
    const std::lock_guard lock(mutex_);
    expected_.erase(object);
  }
  mailbox_.post({.kind = BulkEvent::Kind::in_moved,
                 .connection = connection_,
                 .item = expected.item,
                 .error = {},
                 .forged = false});
  return {};
}

// -- BulkOut

BulkOut::BulkOut(std::uint64_t connection, BulkOutOptions options, net::BulkKey key,
                 Mailbox& mailbox)
    : connection_(connection),
      options_(std::move(options)),
      key_(std::move(key)),
      mailbox_(mailbox) {
  thread_ = quiet_thread("troupe-bulk-out", [this] { run(); });
}

BulkOut::~BulkOut() {
  close();
  thread_.join();
}

bool BulkOut::enqueue(std::uint64_t item, ObjectId object, BlobView bytes) {
  const std::lock_guard lock(mutex_);
  if (over_) return false;
  queue_.push_back({item, object, bytes});
  changed_.notify_one();
  return true;
}

void BulkOut::close() noexcept {
  const std::lock_guard lock(mutex_);
  over_ = true;
  if (fd_) shutdown(fd_.get(), SHUT_RDWR);
  changed_.notify_one();
}

/// False when it was closed meanwhile.
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
                 .forged = false});
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

/// The next object to send; none when it is closed or was idle for too long.
std::optional<BulkOut::Item> BulkOut::next() {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, options_.idle, [this] { return over_ || !queue_.empty(); });
  if (over_ || queue_.empty()) {
    over_ = true;
    return std::nullopt;
  }
  const Item item = queue_.front();
  queue_.pop_front();
  return item;
}

Result<void> BulkOut::send(net::BulkSender& sender, const Item& item) {
  for (std::size_t offset = 0; offset < item.bytes.size();) {
    const std::size_t size = std::min(net::bulk_chunk, item.bytes.size() - offset);
    const net::BulkHeader header{item.object, offset, 0, offset + size == item.bytes.size()};
    if (auto sent =
            sender.send(header, item.bytes.subspan(offset, size), steady_now() + options_.silence);
        !sent)
      return sent;
    offset += size;
  }
  mailbox_.post({.kind = BulkEvent::Kind::out_moved,
                 .connection = connection_,
                 .item = item.number,
                 .error = {},
                 .forged = false});
  return {};
}

}  // namespace troupe::agent
