#include "troupe/runtime/ring/ring.hpp"

#include "troupe/runtime/base/memory_file.hpp"
#include "troupe/runtime/base/standard_descriptors.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace troupe::ring {
namespace {

constexpr std::uint64_t kHeader = 8;  // the length word: lap in the high half, frame size + 1 low

constexpr std::size_t kLine = 64;                 // of the cache; every frame begins with one
constexpr std::size_t kBeside = kLine - kHeader;  // bytes of a frame beside its length

/// The consumer stores its head when it is this far ahead of the last stored one, or when the
/// producer waits for room.
constexpr std::uint64_t kTellBytes = kRingBytes / 8;

/// Returns the bytes of the ring that a frame takes. They are whole cache lines, so that the line
/// which the consumer polls for the next frame has no bytes of another frame.
constexpr std::uint64_t room_of(std::uint64_t size) noexcept {
  return (kHeader + size + kLine - 1) & ~std::uint64_t{kLine - 1};
}

Error channel_error(const char* what) {
  const int why = errno;
  return Error(Code::out_of_memory,
               std::string(what) + std::strerror(why) + "; " + memory_remedy(why));
}

/// Returns the number of the lap around the ring, from 1. Memory that was never written has lap 0
/// and so belongs to no lap.
constexpr std::uint32_t lap_of(std::uint64_t at) noexcept {
  return static_cast<std::uint32_t>(at / kRingBytes + 1);
}
constexpr std::uint64_t length_word(std::uint64_t at, std::uint64_t size) noexcept {
  return std::uint64_t{lap_of(at)} << 32 | (size + 1);
}
/// Returns whether `word`, read at this place, is the length word of a frame of the place's lap.
constexpr bool is_length(std::uint64_t word, std::uint64_t at) noexcept {
  return word >> 32 == lap_of(at) && static_cast<std::uint32_t>(word) != 0;
}

/// Copies the first and the last n bytes, which may overlap. Both are loaded before either is
/// stored. Precondition: at least n, at most 2 n bytes.
template <std::size_t n>
void copy_ends(std::byte* to, BlobView bytes) noexcept {
  std::array<std::byte, n> first, last;
  std::memcpy(first.data(), bytes.data(), n);
  std::memcpy(last.data(), bytes.data() + bytes.size() - n, n);
  std::memcpy(to, first.data(), n);
  std::memcpy(to + bytes.size() - n, last.data(), n);
}
/// Copies bytes. Up to 64 bytes, the usual case, take a few moves without a call of memcpy; only
/// fewer than 4 take a loop.
void copy(std::byte* to, BlobView bytes) noexcept {
  if (bytes.size() > 64)
    std::memcpy(to, bytes.data(), bytes.size());
  else if (bytes.size() >= 32)
    copy_ends<32>(to, bytes);
  else if (bytes.size() >= 16)
    copy_ends<16>(to, bytes);
  else if (bytes.size() >= 8)
    copy_ends<8>(to, bytes);
  else if (bytes.size() >= 4)
    copy_ends<4>(to, bytes);
  else
    for (std::size_t i = 0; i < bytes.size(); ++i) to[i] = bytes[i];
}

/// Returns the word at this position, where a frame begins or will begin. Frames begin on cache
/// lines, so the word is aligned and never wraps around the ring's end.
std::uint64_t* word_at(RingPage* page, std::uint64_t at) noexcept {
  return reinterpret_cast<std::uint64_t*>(page->data + at % kRingBytes);
}

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
// Any frame fits when half of the ring is free: see take_starved().
static_assert(room_of(kMaxFrame) <= kRingBytes / 2);
// Any frame also fits into an empty ring whose producer has not read the last kTellBytes of head.
static_assert(kTellBytes + room_of(kMaxFrame) <= kRingBytes);
static_assert(kRingBytes % kLine == 0 && kMaxFrame < UINT32_MAX);

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
  const std::size_t offset = at % kRingBytes;
  const std::size_t first = std::min(bytes.size(), kRingBytes - offset);
  copy(page_->data + offset, bytes.first(first));
  copy(page_->data, bytes.subspan(first));
}

bool Producer::push(BlobView head, BlobView body) noexcept {
  const std::uint64_t size = head.size() + body.size();
  TROUPE_ASSERT(size <= kMaxFrame, "a frame is at most kMaxFrame; larger things travel as objects");
  const std::uint64_t need = room_of(size);
  if (corrupt_) return false;
  if (!room_for(need)) {
    if (corrupt_) return false;
    // Announce the wait, then look again: the consumer may have made room between the first look
    // and the announcement, and then does not see it (Dekker; both sides use seq_cst). A consumer
    // that makes room later sees `starved`.
    page_->starved.exchange(tail_, std::memory_order_seq_cst);
    if (!room_for(need)) return false;
    page_->starved.exchange(0, std::memory_order_seq_cst);
  }
  // The place where the next frame will begin usually holds a length word of an earlier lap. The
  // consumer recognizes that by its lap, so the word stays, and with it the line in both caches.
  // But the place may hold bytes from inside a longer old frame, which may look like a length word
  // of the next frame's lap. Such a word is cleared, and before this frame is published, so that a
  // consumer which has read this frame sees the cleared word. When the ring is full, the place
  // holds the length word of the oldest unread frame. It has the earlier lap and is not cleared.
  std::uint64_t* const next = word_at(page_, tail_ + need);
  if (is_length(__atomic_load_n(next, __ATOMIC_RELAXED), tail_ + need))
    __atomic_store_n(next, std::uint64_t{0}, __ATOMIC_RELAXED);
  // Bytes that share a cache line with the length word are written last. A consumer that polls that
  // word takes the line from this core, and each transfer costs as much as a message.
  const std::size_t offset = tail_ % kRingBytes + kHeader;
  if (size <= kBeside) {  // the usual case; one line does not wrap around the ring's end
    std::byte* const to = page_->data + offset;
    copy(to + head.size(), body);
    copy(to, head);
  } else if (offset + size <= kRingBytes) {
    std::byte* const to = page_->data + offset;
    const std::size_t beside = std::min(head.size(), kBeside);
    copy(to + beside, head.subspan(beside));
    copy(to + head.size(), body);
    copy(to, head.first(beside));
  } else {
    copy_in(tail_ + kHeader, head);
    copy_in(tail_ + kHeader + head.size(), body);
  }
  // Publishes the frame. The exchange is also a full barrier between this store and the loads of
  // Doorbell::mark(), which follows. Otherwise mark() could read an old mark as set before the
  // frame is visible; the owner could take that mark, find no frame, and would not be rung again.
  __atomic_exchange_n(word_at(page_, tail_), length_word(tail_, size), __ATOMIC_SEQ_CST);
  tail_ += need;
  return true;
}

Progress Producer::progress() const noexcept {
  return {page_->started.load(std::memory_order_acquire),
          page_->completed.load(std::memory_order_acquire)};
}

bool Consumer::empty() const noexcept {
  return !is_length(__atomic_load_n(word_at(page_, head_), __ATOMIC_SEQ_CST), head_);
}

void Consumer::tell_head() noexcept {
  if (told_ == head_) return;
  told_ = head_;
  page_->head.store(head_, std::memory_order_seq_cst);
}

Pop Consumer::pop(std::byte* buffer, std::size_t& size) noexcept {
  if (corrupt_) return Pop::corrupt;
  const std::uint64_t word = __atomic_load_n(word_at(page_, head_), __ATOMIC_SEQ_CST);
  if (!is_length(word, head_)) return Pop::empty;
  const std::uint64_t length = static_cast<std::uint32_t>(word) - 1;
  if (length > kMaxFrame) {
    corrupt_ = true;
    return Pop::corrupt;
  }
  const std::size_t offset = head_ % kRingBytes + kHeader;
  if (length <= kBeside) {
    std::memcpy(buffer, page_->data + offset, kBeside);  // fixed length: compiles to a few moves
  } else {
    const std::size_t first = std::min<std::size_t>(length, kRingBytes - offset);
    std::memcpy(buffer, page_->data + offset, first);
    if (first < length) std::memcpy(buffer + first, page_->data, length - first);
  }
  size = length;
  head_ += room_of(length);
  if (head_ - told_ >= kTellBytes) tell_head();
  return Pop::frame;
}

bool Consumer::take_starved() noexcept {
  const std::uint64_t tail = page_->starved.load(std::memory_order_seq_cst);
  if (tail == 0) return false;
  tell_head();
  // Wait until half of the ring is free. Then any frame fits, and a producer that fills the ring is
  // woken once per half of it, not once per frame. The half is reached at the latest with the last
  // unread frame. (A producer that found room by itself may leave an old number, below head_.)
  if (tail > head_ && tail - head_ > kRingBytes / 2) return false;
  return page_->starved.exchange(0, std::memory_order_seq_cst) != 0;
}

void Consumer::count_started(std::uint64_t total) noexcept {
  page_->started.store(total, std::memory_order_release);
}
void Consumer::count_completed(std::uint64_t total) noexcept {
  page_->completed.store(total, std::memory_order_release);
}

Result<ChannelMemory> ChannelMemory::create() {
  Fd memory = make_fd(memfd_create("troupe-channel", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory || !resize_memory(memory.get(), 2 * sizeof(RingPage)))
    return channel_error("cannot create a channel between two processes: ");
  fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  return attach(std::move(memory));
}

Result<ChannelMemory> ChannelMemory::attach(Fd memory) {
  struct stat info{};
  if (fstat(memory.get(), &info) != 0 || info.st_size != static_cast<off_t>(2 * sizeof(RingPage)))
    return Error(Code::invalid_argument, "a channel from a peer has the wrong size");
  // A peer that shrinks the file makes our next access raise SIGBUS, so it must be sealed. A file
  // that cannot be sealed answers -1.
  const int seals = fcntl(memory.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0)
    return Error(Code::invalid_argument, "a channel from a peer is not sealed against shrinking");
  void* at =
      mmap(nullptr, 2 * sizeof(RingPage), PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
  if (at == MAP_FAILED) return channel_error("cannot map a channel: ");
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
