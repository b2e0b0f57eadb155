#include "troupe/train/checkpoint/safetensors.hpp"

#include "troupe/train/checkpoint/internal/file_plan.hpp"
#include "troupe/train/checkpoint/internal/file_reader.hpp"
#include "troupe/train/checkpoint/internal/safetensors_header.hpp"
#include "troupe/train/internal/reject.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <utility>

namespace troupe::train {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

struct TypeInfo {
  std::string_view name;
  std::int64_t size;
};
// In the order of FileType.
constexpr std::array<TypeInfo, 19> kTypeInfos = {{{"BOOL", 1},
                                                  {"U8", 1},
                                                  {"I8", 1},
                                                  {"F8_E5M2", 1},
                                                  {"F8_E4M3", 1},
                                                  {"F8_E8M0", 1},
                                                  {"F8_E4M3FNUZ", 1},
                                                  {"F8_E5M2FNUZ", 1},
                                                  {"I16", 2},
                                                  {"U16", 2},
                                                  {"F16", 2},
                                                  {"BF16", 2},
                                                  {"I32", 4},
                                                  {"U32", 4},
                                                  {"F32", 4},
                                                  {"C64", 8},
                                                  {"F64", 8},
                                                  {"I64", 8},
                                                  {"U64", 8}}};

std::optional<FileType> find_type(std::string_view name) {
  for (std::size_t i = 0; i < kTypeInfos.size(); ++i)
    if (kTypeInfos[i].name == name) return static_cast<FileType>(i);
  return std::nullopt;
}

/// Returns the bytes of a tensor, or nullopt when a dimension is negative or the product
/// overflows.
std::optional<std::uint64_t> byte_size(FileType type, const std::vector<std::int64_t>& shape) {
  auto size = static_cast<std::uint64_t>(size_of(type));
  bool empty = false;
  for (const std::int64_t dimension : shape) {
    if (dimension < 0) return std::nullopt;
    if (dimension == 0)
      empty = true;
    else if (__builtin_mul_overflow(size, static_cast<std::uint64_t>(dimension), &size))
      return std::nullopt;
  }
  return empty ? 0 : size;
}

Error broken(const std::string& why) {
  return Error(Code::invalid_argument, "not a safetensors file: " + why);
}

std::string in_quotes(std::string_view name) {
  return '"' + std::string(name.substr(0, 200)) + '"';
}

/// Checks one entry against the type, the shape and the size of the data.
Result<FileType> check_entry(const internal::HeaderEntry& entry, std::uint64_t data_size) {
  const std::optional<FileType> type = find_type(entry.type);
  if (!type)
    return broken("tensor " + in_quotes(entry.name) + " has unknown type " + in_quotes(entry.type));
  const std::optional<std::uint64_t> size = byte_size(*type, entry.shape);
  if (!size) return broken("tensor " + in_quotes(entry.name) + " has an impossible shape");
  if (entry.begin > entry.end || entry.end > data_size || entry.end - entry.begin != *size)
    return broken("tensor " + in_quotes(entry.name) +
                  " has offsets that do not fit its shape or the file");
  return *type;
}

}  // namespace

std::string_view name_of(FileType type) noexcept {
  return kTypeInfos[static_cast<std::size_t>(type)].name;
}
std::int64_t size_of(FileType type) noexcept {
  return kTypeInfos[static_cast<std::size_t>(type)].size;
}

const FileTensor* SafetensorsFile::find(std::string_view name) const {
  for (const FileTensor& tensor : tensors)
    if (tensor.name == name) return &tensor;
  return nullptr;
}

internal::FilePlan internal::plan_file(std::span<const FileTensor> tensors,
                                       const Metadata& metadata) {
  FilePlan plan;
  for (const FileTensor& tensor : tensors) plan.order.push_back(&tensor);
  std::sort(plan.order.begin(), plan.order.end(), [](const FileTensor* a, const FileTensor* b) {
    return std::pair(-size_of(a->type), std::string_view(a->name)) <
           std::pair(-size_of(b->type), std::string_view(b->name));
  });
  std::vector<HeaderEntry> entries;
  std::uint64_t offset = 0;
  for (const FileTensor* tensor : plan.order) {
    if (byte_size(tensor->type, tensor->shape) != tensor->bytes.size())
      reject("tensor " + in_quotes(tensor->name) + ": the bytes do not fit type and shape");
    entries.push_back({tensor->name, std::string(name_of(tensor->type)), tensor->shape, offset,
                       offset + tensor->bytes.size()});
    offset += tensor->bytes.size();
  }
  const std::string header = write_header(entries, metadata);
  const std::uint64_t length = (header.size() + 7) / 8 * 8;
  plan.head.assign(reinterpret_cast<const char*>(&length), sizeof length);
  plan.head += header;
  plan.head.resize(static_cast<std::size_t>(sizeof length + length), ' ');
  plan.data_size = offset;
  return plan;
}

Blob write_safetensors(std::span<const FileTensor> tensors, const Metadata& metadata) {
  const internal::FilePlan plan = internal::plan_file(tensors, metadata);
  Blob bytes(plan.head.size() + static_cast<std::size_t>(plan.data_size));
  std::memcpy(bytes.data(), plan.head.data(), plan.head.size());
  std::byte* data = bytes.data() + plan.head.size();
  for (const FileTensor* tensor : plan.order) {
    if (!tensor->bytes.empty()) std::memcpy(data, tensor->bytes.data(), tensor->bytes.size());
    data += tensor->bytes.size();
  }
  return bytes;
}

Result<internal::FileIndex> internal::index_of_file(std::string_view text,
                                                    std::uint64_t data_size) {
  Result<Header> header = parse_header(text);
  if (!header) return broken(header.error().message());
  FileIndex index{std::move(*header), {}};
  std::vector<HeaderEntry>& entries = index.header.entries;
  std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  std::uint64_t covered = 0;
  for (const HeaderEntry& entry : entries) {
    const Result<FileType> type = check_entry(entry, data_size);
    if (!type) return type.error();
    if (entry.begin != covered)
      return broken("a hole or an overlap before tensor " + in_quotes(entry.name));
    covered = entry.end;
    index.types.push_back(*type);
  }
  if (covered != data_size) return broken("bytes are left over after the last tensor");
  return index;
}

Result<SafetensorsFile> parse_safetensors(Blob bytes) {
  std::uint64_t length = 0;
  if (bytes.size() < sizeof length) return broken("it is shorter than 8 bytes");
  std::memcpy(&length, bytes.data(), sizeof length);
  if (length > internal::kMaxHeader) return broken("its header claims more than 100,000,000 bytes");
  if (length > bytes.size() - sizeof length) return broken("its header runs past the end");
  const auto size = static_cast<std::size_t>(length);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + sizeof length, size);
  Result<internal::FileIndex> index =
      internal::index_of_file(text, bytes.size() - sizeof length - size);
  if (!index) return index.error();

  SafetensorsFile file;
  file.storage = std::move(bytes);
  file.metadata = std::move(index->header.metadata);
  const BlobView data = BlobView(file.storage).subspan(sizeof length + size);
  for (std::size_t i = 0; i < index->types.size(); ++i) {
    internal::HeaderEntry& entry = index->header.entries[i];
    file.tensors.push_back({std::move(entry.name), index->types[i], std::move(entry.shape),
                            data.subspan(static_cast<std::size_t>(entry.begin),
                                         static_cast<std::size_t>(entry.end - entry.begin))});
  }
  return file;
}

}  // namespace troupe::train
