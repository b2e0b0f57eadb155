/// The targets and the source of encoding: Sizer counts bytes, Writer writes them, and Reader reads
/// them without trust in their content. encode.hpp says which type calls which member.
///
/// A value is a run of bytes. Lengths are LEB128 (unsigned, 7 bits to a byte, lowest first).
/// Numbers are little-endian in their own size. A run of trivial data is aligned from the start of
/// the value, long runs to 64 bytes, so that a reader uses it in place. A handle is encoded as 1 +
/// its index in the value's list of handles; 0 is an empty handle.
#pragma once

#include "troupe/runtime/engine/engine.hpp"

#include <bit>
#include <cstring>

namespace troupe::detail {

static_assert(std::endian::native == std::endian::little, "the wire format is little-endian");

/// The deepest nesting of recursive types that is encoded or decoded. It is bounded since both
/// recurse on the stack.
inline constexpr int kMaxDepth = 1000;
/// From this many bytes on, a run of trivial data is aligned for SIMD rather than for its type.
inline constexpr std::size_t kWideRun = 512;

/// Reports bytes that are no encoding of their type.
[[noreturn]] TROUPE_API void throw_malformed(const char* what);
/// Reports a value that cannot cross to another process. This and the next two throw
/// InvalidArgument.
[[noreturn]] TROUPE_API void throw_not_encodable(const char* what);
/// Reports the use of an empty Ref or Actor.
[[noreturn]] TROUPE_API void throw_empty_handle(const char* what);
[[noreturn]] TROUPE_API void throw_invalid_argument(const char* what);

/// Returns the alignment of a run of `size` bytes whose elements need the alignment `natural`.
constexpr std::size_t run_alignment(std::size_t size, std::size_t natural) noexcept {
  return size >= kWideRun ? 64 : natural;
}

/// Counts the bytes and handles that Writer would write. It has Writer's interface, so the same
/// template drives both. Only Sizer checks the depth of nesting, because it always runs first.
class Sizer {
 public:
  void raw(const void*, std::size_t size) noexcept { size_ += size; }
  void byte(std::uint8_t) noexcept { ++size_; }
  // A byte for each 7 bits begun; `| 1` gives the value 0 one bit, and so one byte.
  void varint(std::uint64_t value) noexcept {
    size_ += (static_cast<std::size_t>(std::bit_width(value | 1)) + 6) / 7;
  }
  void align(std::size_t alignment) noexcept { size_ = (size_ + alignment - 1) & ~(alignment - 1); }
  void handle(const ObjectHandle& handle) noexcept { varint(handle ? ++handles_ : 0); }
  void enter() {
    if (++depth_ > kMaxDepth) throw_not_encodable("a value is nested deeper than 1000 levels");
  }
  void leave() noexcept { --depth_; }
  std::size_t size() const noexcept { return size_; }
  std::size_t handles() const noexcept { return handles_; }

 private:
  std::size_t size_ = 0;
  std::size_t handles_ = 0;
  int depth_ = 0;
};

/// Writes into exactly the bytes that Sizer counted. Throws if the value has grown since: another
/// thread may have changed it.
class Writer {
 public:
  Writer(std::span<std::byte> out, std::vector<ObjectHandle>& handles) noexcept
      : begin_(out.data()),
        at_(out.data()),
        end_(out.data() + out.size()),
        handles_(handles),
        first_(handles.size()) {}
  void raw(const void* data, std::size_t size) {
    room(size);
    if (size != 0) std::memcpy(at_, data, size);
    at_ += size;
  }
  void byte(std::uint8_t value) {
    room(1);
    *at_++ = static_cast<std::byte>(value);
  }
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) byte(static_cast<std::uint8_t>(value | 0x80));
    byte(static_cast<std::uint8_t>(value));
  }
  // -position mod alignment, for powers of two: the bytes up to the next multiple.
  void align(std::size_t alignment) {
    const std::size_t pad = (0 - static_cast<std::size_t>(at_ - begin_)) & (alignment - 1);
    room(pad);
    std::memset(at_, 0, pad);
    at_ += pad;
  }
  void handle(const ObjectHandle& handle) {
    if (handle) handles_.push_back(handle);
    varint(handle ? handles_.size() - first_ : 0);
  }
  void enter() const noexcept {}
  void leave() const noexcept {}
  bool full() const noexcept { return at_ == end_; }

 private:
  void room(std::size_t size) const {
    if (static_cast<std::size_t>(end_ - at_) < size)
      throw_not_encodable("a value changed while it was being encoded");
  }
  std::byte* begin_;
  std::byte* at_;
  std::byte* end_;
  std::vector<ObjectHandle>& handles_;
  std::size_t first_;
};

/// Reads bytes that may come from a faulty or hostile process. Throws InvalidArgument if they are
/// no encoding. Never reads outside them, and never returns a count of more elements than the
/// remaining bytes could hold.
class Reader {
 public:
  /// `keep` owns the bytes and may be null. An Array that is decoded in place holds a copy of it.
  Reader(BlobView bytes, std::span<const ObjectHandle> handles,
         const std::shared_ptr<const void>* keep) noexcept
      : begin_(bytes.data()),
        at_(bytes.data()),
        end_(bytes.data() + bytes.size()),
        handles_(handles),
        keep_(keep) {}

  const std::byte* take(std::size_t size) {
    if (left() < size) throw_malformed("it ends too early");
    const std::byte* data = at_;
    at_ += size;
    return data;
  }
  void raw(void* out, std::size_t size) {
    const std::byte* data = take(size);
    if (size != 0) std::memcpy(out, data, size);
  }
  std::uint8_t byte() { return static_cast<std::uint8_t>(*take(1)); }
  bool flag() {
    const std::uint8_t value = byte();
    if (value > 1) throw_malformed("a truth value is neither 0 nor 1");
    return value != 0;
  }
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const std::uint64_t part = byte();
      if (shift == 63 && part > 1) break;
      value |= (part & 0x7f) << shift;
      if (part < 0x80) return value;
    }
    throw_malformed("a length does not fit 64 bits");
  }
  /// Reads a number of elements, each of at least `least` bytes. `least` is not 0 (Shape::least).
  std::size_t count(std::size_t least) {
    const std::uint64_t n = varint();
    if (n > left() / least) throw_malformed("it names more elements than it has bytes for");
    return static_cast<std::size_t>(n);
  }
  void align(std::size_t alignment) {
    take((0 - static_cast<std::size_t>(at_ - begin_)) & (alignment - 1));
  }
  /// Returns the bytes of a run of `n` elements of `size` bytes each. `n` comes from count(size),
  /// so the product does not overflow.
  const std::byte* run(std::size_t n, std::size_t size, std::size_t natural) {
    align(run_alignment(n * size, natural));
    return take(n * size);
  }
  ObjectHandle handle() {
    const std::uint64_t index = varint();
    if (index == 0) return {};
    if (index > handles_.size()) throw_malformed("it names a Ref that it does not hold");
    return handles_[static_cast<std::size_t>(index - 1)];
  }
  void enter() {
    if (++depth_ > kMaxDepth) throw_malformed("it is nested deeper than 1000 levels");
  }
  void leave() noexcept { --depth_; }
  /// Throws unless all bytes have been read.
  void finish() const {
    if (at_ != end_) throw_malformed("it is longer than its type");
  }
  std::size_t left() const noexcept { return static_cast<std::size_t>(end_ - at_); }
  const std::shared_ptr<const void>* keep() const noexcept { return keep_; }

 private:
  const std::byte* begin_;
  const std::byte* at_;
  const std::byte* end_;
  std::span<const ObjectHandle> handles_;
  const std::shared_ptr<const void>* keep_;
  int depth_ = 0;
};

}  // namespace troupe::detail
