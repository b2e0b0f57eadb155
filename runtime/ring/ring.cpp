#include "troupe/runtime/ring/ring.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <algorithm>
#include <cerrno>
#include <cstring>

namespace troupe::ring {
namespace {

constexpr std::uint64_t kHeader = 8;  // frame size, then padding to 8

constexpr std::uint64_t padded(std::uint64_t n) noexcept {
  return (n + 7) & ~std::uint64_t{7};
}

// Frames are read and written as machine words that two processes share.
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
// With half of the ring free any frame fits: see take_starved().
static_assert(kHeader + padded(kMaxFrame) <= kRingBytes / 2);

}  // namespace

bool Producer::room_for(std::uint64_t bytes) noexcept {
  if (kRingBytes - (tail_ - head_seen_) >= bytes) return true;
  const std::uint64_t head = page_->head.load(std::memory_order_seq_cst);
  if (head < head_seen_ || head > tail_) {
    corrupt_ = true;
    return false;
  }
  head_seen_ = head;
  return kRingBytes - (tail_ - head_seen_) >= bytes;
}

void Producer::copy_in(std::uint64_t at, BlobView bytes) noexcept {
  if (bytes.empty()) return;
  const std::size_t offset = at % kRingBytes;
  const std::size_t first = std::min(bytes.size(), kRingBytes - offset);
  std::memcpy(page_->data + offset, bytes.data(), first);
  if (first < bytes.size()) std::memcpy(page_->data, bytes.data() + first, bytes.size() - first);
}

bool Producer::push(BlobView head, BlobView body) noexcept {
  const std::uint64_t size = head.size() + body.size();
  TROUPE_ASSERT(size <= kMaxFrame, "a frame is at most kMaxFrame; larger things travel as objects");
  const std::uint64_t need = kHeader + padded(size);
  if (corrupt_) return false;
  if (!room_for(need)) {
    if (corrupt_) return false;
    // Ask to be woken, then look again: the consumer may have made room between the two.
    page_->starved.exchange(1, std::memory_order_seq_cst);
    if (!room_for(need)) return false;
    page_->starved.exchange(0, std::memory_order_seq_cst);
  }
  copy_in(tail_, BlobView(reinterpret_cast<const std::byte*>(&size), kHeader));
  copy_in(tail_ + kHeader, head);
  copy_in(tail_ + kHeader + head.size(), body);
  tail_ += need;
  page_->tail.exchange(tail_, std::memory_order_seq_cst);
  return true;
}

Progress Producer::progress() const noexcept {
  return {page_->started.load(std::memory_order_acquire),
          page_->completed.load(std::memory_order_acquire)};
}

bool Consumer::empty() const noexcept {
  return page_->tail.load(std::memory_order_seq_cst) == head_;
}

Pop Consumer::pop(std::byte* buffer, std::size_t& size) noexcept {
  if (corrupt_) return Pop::corrupt;
  if (tail_seen_ == head_) {
    const std::uint64_t tail = page_->tail.load(std::memory_order_seq_cst);
    if (tail == head_) return Pop::empty;
    if (tail < head_ || tail - head_ > kRingBytes) {
      corrupt_ = true;
      return Pop::corrupt;
    }
    tail_seen_ = tail;
  }
  const std::uint64_t available = tail_seen_ - head_;
  std::uint64_t length = 0;
  // Never wraps: all is 8-aligned. An atomic load, so that what was checked is what is used.
  if (available >= kHeader)
    length = __atomic_load_n(
        reinterpret_cast<const std::uint64_t*>(page_->data + head_ % kRingBytes), __ATOMIC_RELAXED);
  if (available < kHeader || length > kMaxFrame || kHeader + padded(length) > available) {
    corrupt_ = true;
    return Pop::corrupt;
  }
  const std::size_t offset = (head_ + kHeader) % kRingBytes;
  const std::size_t first = std::min<std::size_t>(length, kRingBytes - offset);
  std::memcpy(buffer, page_->data + offset, first);
  if (first < length) std::memcpy(buffer + first, page_->data, length - first);
  size = length;
  head_ += kHeader + padded(length);
  page_->head.store(head_, std::memory_order_seq_cst);
  return Pop::frame;
}

bool Consumer::take_starved() noexcept {
  if (page_->starved.load(std::memory_order_seq_cst) == 0) return false;
  // Not before half of the ring is free: then any frame fits, and a producer that fills the ring is
  // woken once per half of it, not once per frame. The last frame of the ring gets here in any
  // case.
  if (page_->tail.load(std::memory_order_seq_cst) - head_ > kRingBytes / 2) return false;
  return page_->starved.exchange(0, std::memory_order_seq_cst) != 0;
}

void Consumer::count_started(std::uint64_t total) noexcept {
  page_->started.store(total, std::memory_order_release);
}
void Consumer::count_completed(std::uint64_t total) noexcept {
  page_->completed.store(total, std::memory_order_release);
}

Result<ChannelMemory> ChannelMemory::create() {
  Fd memory(memfd_create("troupe-channel", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory || ftruncate(memory.get(), 2 * sizeof(RingPage)) != 0)
    return Error(
        Code::out_of_memory,
        std::string("cannot create a channel between two processes: ") + std::strerror(errno));
  fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  return attach(std::move(memory));
}

Result<ChannelMemory> ChannelMemory::attach(Fd memory) {
  struct stat info{};
  if (fstat(memory.get(), &info) != 0 || info.st_size != static_cast<off_t>(2 * sizeof(RingPage)))
    return Error(Code::invalid_argument, "a channel from a peer has the wrong size");
  // A peer must not be able to shrink it under us: SIGBUS. What cannot be sealed answers -1.
  const int seals = fcntl(memory.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0)
    return Error(Code::invalid_argument, "a channel from a peer is not sealed against shrinking");
  void* at =
      mmap(nullptr, 2 * sizeof(RingPage), PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
  if (at == MAP_FAILED)
    return Error(Code::out_of_memory, std::string("cannot map a channel: ") + std::strerror(errno));
  madvise(at, 2 * sizeof(RingPage), MADV_DONTFORK);
  ChannelMemory channel;
  channel.memory_ = std::move(memory);
  channel.pages_ = static_cast<RingPage*>(at);
  return channel;
}

ChannelMemory::ChannelMemory(ChannelMemory&& other) noexcept
    : memory_(std::move(other.memory_)), pages_(std::exchange(other.pages_, nullptr)) {}
ChannelMemory& ChannelMemory::operator=(ChannelMemory&& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(pages_, other.pages_);
  return *this;
}
ChannelMemory::~ChannelMemory() {
  if (pages_ != nullptr) munmap(pages_, 2 * sizeof(RingPage));
}

}  // namespace troupe::ring
