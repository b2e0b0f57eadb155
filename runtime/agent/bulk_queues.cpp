/// What bulk connections expect and send: the records behind their threads (bulk_threads.cpp).
#include "troupe/runtime/agent/bulk_threads.hpp"

#include <sys/eventfd.h>
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
