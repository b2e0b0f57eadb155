// Reads RocksDB's log format (the same for write-ahead logs and manifests) far enough to find where
// it is damaged. The format has blocks of 32 KiB. A record is crc32c (masked), length, type and
// payload. The last 6 bytes or less of a block are padding.
// Source: RocksDB wiki, "Write Ahead Log File Format".
#include "troupe/runtime/storage/damage.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>
#include <vector>

namespace troupe::storage {
namespace {

constexpr std::size_t kBlock = 32768;
constexpr std::size_t kHead = 7;
constexpr std::size_t kRecyclableHead = 11;  // types 5 to 8 carry the log's number too

std::array<std::uint32_t, 256> crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t c = i;
    for (int k = 0; k < 8; ++k) c = (c & 1) != 0 ? 0x82f63b78u ^ (c >> 1) : c >> 1;
    table[i] = c;
  }
  return table;
}

std::uint32_t masked_crc32c(std::string_view data) {
  static const std::array<std::uint32_t, 256> table = crc_table();
  std::uint32_t crc = 0xffffffffu;
  for (const char c : data) crc = table[(crc ^ static_cast<unsigned char>(c)) & 0xff] ^ (crc >> 8);
  crc = ~crc;
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

std::uint32_t u32(std::string_view data, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i)
    value |= static_cast<std::uint32_t>(static_cast<unsigned char>(data[at + i])) << (8 * i);
  return value;
}

/// Returns the offset of the first record whose checksum is wrong, or npos. Stops at a cut or zero
/// tail.
std::size_t first_bad_record(std::string_view log) {
  std::size_t at = 0;
  while (at + kHead <= log.size()) {
    const std::size_t left = kBlock - at % kBlock;
    if (left < kHead) {
      at += left;
      continue;
    }
    const std::size_t size = static_cast<unsigned char>(log[at + 4]) |
                             static_cast<std::size_t>(static_cast<unsigned char>(log[at + 5])) << 8;
    const auto type = static_cast<unsigned char>(log[at + 6]);
    const std::size_t head = type >= 5 && type <= 8 ? kRecyclableHead : kHead;
    if (type == 0 && size == 0) return std::string_view::npos;
    if (head + size > left) return at;
    if (at + head + size > log.size()) return std::string_view::npos;
    if (masked_crc32c(log.substr(at + 6, head - 6 + size)) != u32(log, at)) return at;
    at += head + size;
  }
  return std::string_view::npos;
}

}  // namespace

std::string find_damage(const std::string& folder) {
  namespace fs = std::filesystem;
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (it->path().extension() == ".log" || name.rfind("MANIFEST-", 0) == 0)
      files.push_back(it->path());
  }
  std::sort(files.begin(), files.end());
  for (const fs::path& path : files) {
    std::ifstream in(path, std::ios::binary);
    const std::string log((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    const std::size_t at = first_bad_record(log);
    if (at != std::string_view::npos) return path.string() + ", offset " + std::to_string(at);
  }
  return {};
}

}  // namespace troupe::storage
