#include "troupe/runtime/net/bulk.hpp"

#include "troupe/runtime/base/random_bytes.hpp"
#include "troupe/runtime/base/sealing/sealing.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <algorithm>
#include <cerrno>
#include <cstring>

namespace troupe::net {
namespace {

constexpr std::size_t kHeaderSize = 40;
constexpr std::size_t kTagSize = kSealTag;

void put_u64(std::byte* at, std::uint64_t value) noexcept {
  for (int i = 0; i < 8; ++i) at[i] = static_cast<std::byte>(value >> (8 * i));
}
std::uint64_t take_u64(const std::byte* at) noexcept {
  std::uint64_t value = 0;
  for (int i = 0; i < 8; ++i) value |= static_cast<std::uint64_t>(at[i]) << (8 * i);
  return value;
}

/// 16 bytes object, 8 offset, 4 length, 1 last, 3 zero, 8 stamp.
void encode_header(const BulkHeader& header, std::byte (&out)[kHeaderSize]) noexcept {
  std::memset(out, 0, sizeof out);
  put_u64(out, header.object.high);
  put_u64(out + 8, header.object.low);
  put_u64(out + 16, header.offset);
  put_u64(out + 24, header.length | static_cast<std::uint64_t>(header.last) << 32);
  put_u64(out + 32, header.stamp);
}
BulkHeader decode_header(const std::byte (&in)[kHeaderSize]) noexcept {
  const std::uint64_t packed = take_u64(in + 24);
  return {.object = {take_u64(in), take_u64(in + 8)},
          .offset = take_u64(in + 16),
          .length = static_cast<std::uint32_t>(packed),
          .last = (packed >> 32) != 0,
          .stamp = take_u64(in + 32)};
}

Error closed(const std::string& why) {
  return Error(Code::unavailable, "the bulk connection ended: " + why, Outcome::unknown);
}

/// Waits until the descriptor is ready or `by` has passed.
Result<void> wait_for(int fd, short events, Time by) {
  while (true) {
    const Duration left = by - steady_now();
    if (left <= Duration{})
      return Error(Code::timed_out, "the bulk connection did not move in time", Outcome::unknown);
    pollfd entry{fd, events, 0};
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(
        std::min<Duration>(left, std::chrono::hours(1)));
    const int n = poll(&entry, 1, static_cast<int>(ms.count()));
    if (n > 0) return {};
    if (n < 0 && errno != EINTR) return closed(std::strerror(errno));
  }
}

/// Reads at least one byte and at most `size`.
Result<std::size_t> read_some(int fd, std::byte* into, std::size_t size, Time by) {
  while (true) {
    const ssize_t n = recv(fd, into, size, MSG_DONTWAIT);
    if (n > 0) return static_cast<std::size_t>(n);
    if (n == 0) return closed("the peer closed it");
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (Result<void> ready = wait_for(fd, POLLIN, by); !ready) return ready.error();
    } else if (errno != EINTR) {
      return closed(std::strerror(errno));
    }
  }
}

Result<void> read_all(int fd, std::byte* into, std::size_t size, Time by) {
  while (size > 0) {
    const Result<std::size_t> n = read_some(fd, into, size, by);
    if (!n) return n.error();
    into += *n;
    size -= *n;
  }
  return {};
}

Result<void> write_all(int fd, iovec* parts, int count, Time by) {
  while (count > 0) {
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = static_cast<std::size_t>(count);
    ssize_t n = sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      if (Result<void> ready = wait_for(fd, POLLOUT, by); !ready) return ready;
      continue;
    }
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return closed(std::strerror(errno));
    for (; count > 0 && static_cast<std::size_t>(n) >= parts->iov_len; ++parts, --count)
      n -= static_cast<ssize_t>(parts->iov_len);
    if (count > 0) {
      parts->iov_base = static_cast<char*>(parts->iov_base) + n;
      parts->iov_len -= static_cast<std::size_t>(n);
    }
  }
  return {};
}

}  // namespace

Result<BulkKey> fresh_bulk_key() {
  BulkKey key;
  if (!try_fill_random({key.data(), key.size()}))
    return Error(Code::unavailable, "the system gives no random numbers");
  return key;
}

struct BulkSender::Impl {
  int fd;
  FrameCipher cipher;
  std::vector<std::byte> sealed;
};

BulkSender::BulkSender(int fd, BulkKey key)
    : impl_(new Impl{fd, FrameCipher(key, FrameCipher::Use::seal), {}}) {}
BulkSender::~BulkSender() = default;
BulkSender::BulkSender(BulkSender&&) noexcept = default;

Result<void> BulkSender::start(Time by) {
  return send({}, {}, by);
}

Result<void> BulkSender::send(const BulkHeader& given, BlobView chunk, Time by) {
  if (chunk.size() > kMaxBulkChunk)
    return Error(Code::invalid_argument, "a bulk chunk of more than 1 MiB");
  BulkHeader header = given;
  header.length = static_cast<std::uint32_t>(chunk.size());
  std::byte head[kHeaderSize], tag[kTagSize];
  encode_header(header, head);
  if (impl_->sealed.size() < chunk.size()) impl_->sealed.resize(chunk.size());
  impl_->cipher.begin(head);
  if (!chunk.empty()) impl_->cipher.update(chunk.data(), impl_->sealed.data(), chunk.size());
  impl_->cipher.seal(tag);
  iovec parts[3] = {{head, kHeaderSize}, {impl_->sealed.data(), chunk.size()}, {tag, kTagSize}};
  return write_all(impl_->fd, parts, 3, by);
}

Result<void> BulkSender::send_object(ObjectId object, BlobView bytes, Time by) {
  std::size_t offset = 0;
  do {
    const std::size_t size = std::min(kBulkChunk, bytes.size() - offset);
    const BulkHeader header{object, offset, 0, offset + size == bytes.size()};
    if (Result<void> sent = send(header, bytes.subspan(offset, size), by); !sent) return sent;
    offset += size;
  } while (offset < bytes.size());
  return {};
}

struct BulkReceiver::Impl {
  int fd;
  FrameCipher cipher;
  Time first_by;
  std::vector<std::byte> sealed{};
  std::byte head[kHeaderSize] = {};
  std::uint32_t length = 0;
  bool in_frame = false, proven = false, forged = false;

  Time limit(Time by) const noexcept { return proven ? by : std::min(by, first_by); }

  /// Decrypts the bytes that have arrived while the rest is on its way. The buffer is small enough
  /// to stay in the cache, so that the caller's memory is touched once. It decrypts whole cipher
  /// blocks only, because OpenSSL is slow with parts of a block.
  Result<void> decrypt(std::span<std::byte> into, Time by) {
    constexpr std::size_t kPiece = std::size_t{128} << 10, kBlock = 16;
    if (!into.empty() && sealed.empty()) sealed.resize(kPiece);
    std::size_t done = 0, have = 0;
    while (done < into.size()) {
      const std::size_t want = std::min(kPiece, into.size() - done) - have;
      const Result<std::size_t> n = read_some(fd, sealed.data() + have, want, by);
      if (!n) return n.error();
      have += *n;
      const bool all = done + have == into.size();
      const std::size_t size = all ? have : have - have % kBlock;
      cipher.update(sealed.data(), into.data() + done, size);
      done += size;
      have -= size;
      std::memmove(sealed.data(), sealed.data() + size, have);
    }
    return {};
  }
};

BulkReceiver::BulkReceiver(int fd, BulkKey key, Time first_by)
    : impl_(new Impl{fd, FrameCipher(key, FrameCipher::Use::open), first_by}) {}
BulkReceiver::~BulkReceiver() = default;
BulkReceiver::BulkReceiver(BulkReceiver&&) noexcept = default;

bool BulkReceiver::forged() const noexcept {
  return impl_->forged;
}

Result<void> BulkReceiver::start(Time by) {
  const Result<BulkHeader> header = next(by);
  if (!header) return header.error();
  return read({}, by);
}

Result<BulkHeader> BulkReceiver::next(Time by) {
  TROUPE_ASSERT(!impl_->in_frame, "the bytes of the last bulk frame were not read");
  if (Result<void> got = read_all(impl_->fd, impl_->head, kHeaderSize, impl_->limit(by)); !got)
    return got.error();
  const BulkHeader header = decode_header(impl_->head);
  if (header.length > kMaxBulkChunk || (!impl_->proven && header.length != 0)) {
    impl_->forged = true;
    return closed("a frame of " + std::to_string(header.length) + " bytes is not allowed here");
  }
  impl_->length = header.length;
  impl_->in_frame = true;
  return header;
}

Result<void> BulkReceiver::read(std::span<std::byte> into, Time by) {
  TROUPE_ASSERT(impl_->in_frame && into.size() == impl_->length,
                "memory of another size than the bulk frame");
  impl_->in_frame = false;
  by = impl_->limit(by);
  impl_->cipher.begin(impl_->head);
  if (Result<void> got = impl_->decrypt(into, by); !got) return got;
  std::byte tag[kTagSize];
  if (Result<void> got = read_all(impl_->fd, tag, kTagSize, by); !got) return got;
  if (!impl_->cipher.open(tag)) {
    impl_->forged = true;
    return closed("a frame is not authentic (altered, repeated, or under another key)");
  }
  impl_->proven = true;
  return {};
}

Result<void> BulkReceiver::receive_object(ObjectId object, std::span<std::byte> into, Time by) {
  std::size_t offset = 0;
  while (true) {
    const Result<BulkHeader> header = next(by);
    if (!header) return header.error();
    const bool fits = header->object == object && header->offset == offset &&
                      header->length <= into.size() - offset &&
                      header->last == (offset + header->length == into.size()) &&
                      (header->length > 0 || header->last);
    if (!fits)
      return Error(Code::invalid_argument, "the peer sends something else than the " +
                                               std::to_string(into.size()) + " bytes of object " +
                                               object.str());
    if (Result<void> got = read(into.subspan(offset, header->length), by); !got) return got;
    offset += header->length;
    if (header->last) return {};
  }
}

}  // namespace troupe::net
