#include "troupe/tune/views/tables.hpp"

#include "troupe/tune/internal/text.hpp"

#include <fmt/format.h>
#include <array>
#include <cmath>
#include <cstring>

namespace troupe::tune {
namespace {

/// Builds the CRC table of the reflected Castagnoli polynomial.
constexpr std::array<std::uint32_t, 256> crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t c = i;
    for (int k = 0; k < 8; ++k) c = (c & 1) != 0 ? (c >> 1) ^ 0x82F63B78U : c >> 1;
    table[i] = c;
  }
  return table;
}

std::uint32_t masked(std::uint32_t crc) {
  return ((crc >> 15) | (crc << 17)) + 0xA282EAD8U;
}

template <class T>
std::string little_endian(T value) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  std::string out;
  for (std::size_t i = 0; i < sizeof value; ++i) out += static_cast<char>(bits >> (8 * i) & 0xFF);
  return out;
}

/// Encodes a protobuf variable-length integer.
std::string varint(std::uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += static_cast<char>((value & 0x7F) | 0x80);
  return out + static_cast<char>(value);
}

/// Encodes a length-delimited protobuf field.
std::string field(int number, std::string_view bytes) {
  return varint(static_cast<std::uint64_t>(number) << 3 | 2) + varint(bytes.size()) +
         std::string(bytes);
}

/// Encodes one record of the TFRecord format: length, its CRC, payload, its CRC.
std::string framed(const std::string& payload) {
  const std::string length = little_endian(static_cast<std::uint64_t>(payload.size()));
  return length + little_endian(masked(crc32c(length))) + payload +
         little_endian(masked(crc32c(payload)));
}

std::string event_at(double unix_seconds) {
  return "\x09" + little_endian(unix_seconds);
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) noexcept {
  static constexpr std::array<std::uint32_t, 256> kTable = crc_table();
  std::uint32_t crc = ~0U;
  for (const char c : bytes)
    crc = kTable[(crc ^ static_cast<unsigned char>(c)) & 0xFF] ^ (crc >> 8);
  return ~crc;
}

std::string tensorboard_file_name(double unix_seconds, std::string_view host, int pid) {
  return fmt::format("events.out.tfevents.{:010}.{}.{}", static_cast<long long>(unix_seconds), host,
                     pid);
}

std::string tensorboard_header(double unix_seconds) {
  return framed(event_at(unix_seconds) + field(3, "brain.Event:2"));
}

std::string tensorboard_scalar(double unix_seconds, long step, std::string_view tag, float value) {
  const std::string point = field(1, valid_utf8(tag)) + "\x15" + little_endian(value);
  return framed(event_at(unix_seconds) + "\x10" + varint(static_cast<std::uint64_t>(step)) +
                field(5, field(1, point)));
}

std::string tensorboard_events(const TrialInfo& trial, const Board& board, double began) {
  std::string out = tensorboard_header(began + trial.created);
  for (const Sample& s : trial.history) {
    out += tensorboard_scalar(began + s.seconds, s.step, board.metric, static_cast<float>(s.score));
  }
  return out;
}

}  // namespace troupe::tune
