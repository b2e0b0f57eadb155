/// Reads and writes the safetensors format (Hugging Face, README of the format): a JSON header of
/// names, types, shapes and places, then the bytes. PyTorch, NumPy and others read it.
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
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::train {

/// The format's element types with a whole number of bytes. (The format's F4 and F6 types are
/// refused.)
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
/// "F32"; the format's name of a type.
TROUPE_API std::string_view name_of(FileType type) noexcept;
/// Bytes of one element.
TROUPE_API std::int64_t size_of(FileType type) noexcept;

/// A named tensor whose bytes (row-major, little-endian) belong to somebody else.
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

  /// nullptr when there is none of that name.
  const FileTensor* find(std::string_view name) const;
};

/// The bytes of a file: tensors ordered by type (widest first), then name; header padded with
/// spaces to a multiple of 8. Throws InvalidArgument for two equal names, the name "__metadata__",
/// names that are not UTF-8, or bytes that do not fit type and shape.
TROUPE_API Blob write_safetensors(std::span<const FileTensor> tensors,
                                  const Metadata& metadata = {});

/// Checks and indexes a file's bytes. Errors (invalid_argument) say what is wrong: a header past
/// 100,000,000 bytes or the end, bad JSON, an unknown type, a duplicate key, a negative or
/// overflowing size, holes, overlaps, or bytes left over.
TROUPE_API Result<SafetensorsFile> parse_safetensors(Blob bytes);

/// Writes to a new file beside the path, syncs, renames over path, syncs the folder: a crash leaves
/// the old file or the new, and perhaps a file PATH.PID-N.tmp. Of several writers of one path the
/// last one wins. Errors: out_of_disk, unavailable.
TROUPE_API Result<void> write_safetensors_file(const std::string& path,
                                               std::span<const FileTensor> tensors,
                                               const Metadata& metadata = {});
/// Reads a file of at most max_size. Its header is checked against its size before memory is taken
/// for its data. Errors: unavailable (cannot be read, or is no regular file, such as a FIFO, which
/// is not waited for), out_of_memory (the machine has not so much free), and those of parse.
TROUPE_API Result<SafetensorsFile> read_safetensors_file(const std::string& path,
                                                         Bytes max_size = {16ull << 30});

}  // namespace troupe::train
