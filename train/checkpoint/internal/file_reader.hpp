/// FileReader: reads a safetensors file tensor by tensor, without a copy of the whole.
#pragma once

#include "troupe/runtime/base/fd.hpp"
#include "troupe/train/checkpoint/internal/safetensors_header.hpp"
#include "troupe/train/checkpoint/safetensors.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::train::internal {

/// A checked header: entries in the order of their bytes, and the type of each.
struct FileIndex {
  Header header;
  std::vector<FileType> types;
};

/// Checks whether `data_size` bytes of data after this header make a valid file: every type,
/// shape, offset, hole and overlap. Reads none of the data.
Result<FileIndex> index_of_file(std::string_view text, std::uint64_t data_size);

/// An open file whose header was checked against its size.
struct FileReader {
  Fd file;
  std::string path;
  std::uint64_t size = 0;  ///< of the file
  std::uint64_t data = 0;  ///< first byte of the data
  FileIndex index;

  /// Reads the bytes of index.header.entries[tensor] into `out`, which has their size. Errors:
  /// invalid_argument when the file has become shorter, and unavailable.
  Result<void> read(std::size_t tensor, std::span<std::byte> out) const;
};

/// Opens a file and checks its header. Errors: those of read_safetensors_file(), and
/// out_of_memory when the machine has fewer free bytes than the file has.
Result<FileReader> open_safetensors(const std::string& path, std::uint64_t max_size);

}  // namespace troupe::train::internal
