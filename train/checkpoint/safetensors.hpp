/// Reads and writes the safetensors format (Hugging Face, README of the format): a JSON header
/// with names, types, shapes and offsets, followed by the bytes. PyTorch, NumPy and others read
/// it.
///
///     std::vector<FileTensor> tensors = {{"w", FileType::f32, {2, 3}, bytes}};
///     write_safetensors_file("step-100.safetensors", tensors, {{"step", "100"}}).value();
///     SafetensorsFile file = read_safetensors_file("step-100.safetensors").value();
///
/// A file is not trusted: everything in it is checked before use.
#pragma once

#include "troupe/runtime/base/result.hpp"
#include "troupe/runtime/base/units.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::train {

/// The format's element types with a whole number of bytes. The format's F4 and F6 types are
/// refused.
enum class FileType : std::uint8_t {
  boolean,
  u8,
  i8,
  f8_e5m2,
  f8_e4m3,
  f8_e8m0,
  f8_e4m3fnuz,
  f8_e5m2fnuz,
  i16,
  u16,
  f16,
  bf16,
  i32,
  u32,
  f32,
  c64,
  f64,
  i64,
  u64
};
/// Returns the format's name of a type, such as "F32".
TROUPE_API std::string_view name_of(FileType type) noexcept;
/// Returns the bytes of one element.
TROUPE_API std::int64_t size_of(FileType type) noexcept;

/// A named tensor with borrowed bytes (row-major, little-endian).
struct FileTensor {
  std::string name;
  FileType type = FileType::f32;
  std::vector<std::int64_t> shape;
  BlobView bytes;
};

using Metadata = std::map<std::string, std::string>;

/// A whole file in memory; the tensors point into `storage`. Movable, not copyable.
struct TROUPE_API SafetensorsFile {
  SafetensorsFile() = default;
  SafetensorsFile(SafetensorsFile&&) = default;
  SafetensorsFile& operator=(SafetensorsFile&&) = default;
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  Blob storage;
  std::vector<FileTensor> tensors;  ///< in the order of their bytes
  Metadata metadata;

  /// Returns the tensor of that name, or nullptr.
  const FileTensor* find(std::string_view name) const;
};

/// Returns the bytes of a file. Tensors are ordered by type (widest first), then by name; the
/// header is padded with spaces to a multiple of 8. Throws InvalidArgument for two equal names,
/// the name "__metadata__", names that are not UTF-8, and bytes that do not fit type and shape.
TROUPE_API Blob write_safetensors(std::span<const FileTensor> tensors,
                                  const Metadata& metadata = {});

/// Checks and indexes the bytes of a file. Errors (invalid_argument) say what is wrong: a header
/// longer than 100,000,000 bytes or than the file, bad JSON, an unknown type or a duplicate key.
/// Also a negative or overflowing size, holes, overlaps, or bytes left over.
TROUPE_API Result<SafetensorsFile> parse_safetensors(Blob bytes);

/// Writes a new file beside the path, syncs it, renames it over the path and syncs the folder. A
/// crash leaves the old file or the new one, and perhaps a file PATH.PID-N.tmp. The last one of
/// several writers of a path wins. `stops` is asked between pieces of some MiB and before the new
/// file appears; once it returns true, the file is given up. Errors: out_of_disk, unavailable,
/// cancelled.
TROUPE_API Result<void> write_safetensors_file(const std::string& path,
                                               std::span<const FileTensor> tensors,
                                               const Metadata& metadata = {},
                                               const std::function<bool()>& stops = {});
/// Reads a file of at most max_size. Checks the header against the file's size before it
/// allocates memory for the data. Errors: unavailable when the file cannot be read or is not a
/// regular file (opening a FIFO does not block); out_of_memory when the machine has not enough
/// free memory; and those of parse_safetensors().
TROUPE_API Result<SafetensorsFile> read_safetensors_file(const std::string& path,
                                                         Bytes max_size = {16ull << 30});

}  // namespace troupe::train
