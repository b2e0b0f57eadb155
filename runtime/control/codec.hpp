/// The byte form of control's durable records: fixed little-endian numbers and length-prefixed
/// bytes, with a version byte first, so that a later build reads what an earlier one wrote.
///
///     RecordWriter out(1);                    // version 1
///     out.u64(epoch).bytes(name);
///     const std::string record = out.take();
///     RecordReader in(record);                // checks every length
///     auto epoch = in.u64(); auto name = in.bytes();
///     if (!in.ok()) ...                       // truncated, or longer than it says
#pragma once

#include "troupe/runtime/base/ids.hpp"
#include "troupe/runtime/base/units.hpp"

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

namespace troupe::control {

/// Appends fields; values come back in the same order.
class RecordWriter {
 public:
  explicit RecordWriter(std::uint8_t version) { out_.push_back(static_cast<char>(version)); }
  RecordWriter& u64(std::uint64_t value) {
    for (int i = 0; i < 8; ++i) out_.push_back(static_cast<char>(value >> (8 * i)));
    return *this;
  }
  RecordWriter& i64(std::int64_t value) { return u64(static_cast<std::uint64_t>(value)); }
  RecordWriter& boolean(bool value) { return u64(value ? 1 : 0); }
  RecordWriter& bytes(std::string_view value) {
    u64(value.size());
    out_.append(value);
    return *this;
  }
  RecordWriter& blob(const Blob& value) {
    return bytes({reinterpret_cast<const char*>(value.data()), value.size()});
  }
  template <class Tag>
  RecordWriter& id(const Id<Tag>& value) {
    return u64(value.high).u64(value.low);
  }
  std::string take() { return std::move(out_); }

 private:
  std::string out_;
};

/// Reads fields; after the first bad one every further read gives zero or empty and ok() is false.
class RecordReader {
 public:
  explicit RecordReader(std::string_view record) : rest_(record) {
    if (rest_.empty()) {
      ok_ = false;
      return;
    }
    version_ = static_cast<std::uint8_t>(rest_.front());
    rest_.remove_prefix(1);
  }
  RecordReader(std::string&&) = delete;  // the reader only views the bytes
  std::uint8_t version() const noexcept { return version_; }
  std::uint64_t u64() {
    if (!need(8)) return 0;
    std::uint64_t value = 0;
    for (int i = 0; i < 8; ++i)
      value |= static_cast<std::uint64_t>(static_cast<unsigned char>(rest_[i])) << (8 * i);
    rest_.remove_prefix(8);
    return value;
  }
  std::int64_t i64() { return static_cast<std::int64_t>(u64()); }
  bool boolean() { return u64() != 0; }
  std::string bytes() {
    const std::uint64_t size = u64();
    if (!need(size)) return {};
    std::string value(rest_.substr(0, size));
    rest_.remove_prefix(size);
    return value;
  }
  Blob blob() {
    const std::string value = bytes();
    const auto* data = reinterpret_cast<const std::byte*>(value.data());
    return Blob(data, data + value.size());
  }
  template <class IdType>
  IdType id() {
    IdType value;
    value.high = u64();
    value.low = u64();
    return value;
  }
  /// Reads the number of list elements that follow, of at least `least` bytes each. A number that
  /// the rest of the record cannot hold is a bad field: it returns 0.
  std::uint64_t count(std::uint64_t least) {
    const std::uint64_t n = u64();
    if (least != 0 && n > rest_.size() / least) ok_ = false;
    return ok_ ? n : 0;
  }
  bool ok() const noexcept { return ok_; }
  bool at_end() const noexcept { return rest_.empty(); }

 private:
  bool need(std::uint64_t size) {
    if (ok_ && size <= rest_.size()) return true;
    ok_ = false;
    return false;
  }
  std::string_view rest_;
  std::uint8_t version_ = 0;
  bool ok_ = true;
};

}  // namespace troupe::control
