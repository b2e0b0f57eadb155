// Safetensors files on disk: whole reads, atomic writes.
#include "troupe/runtime/base/standard_descriptors.hpp"
#include "troupe/train/checkpoint/internal/file_plan.hpp"
#include "troupe/train/checkpoint/internal/file_reader.hpp"
#include "troupe/train/checkpoint/internal/files.hpp"
#include "troupe/train/checkpoint/safetensors.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <new>

namespace troupe::train {
namespace {

using internal::failed;
using internal::read_some;
using internal::sync_folder_of;
using internal::write_all;

/// A new file beside the path, with a name that no other write uses.
struct Temporary {
  std::string path;
  Fd file;
};

Result<Temporary> create_beside(const std::string& path) {
  static std::atomic<std::uint64_t> writes{0};
  constexpr int kTries = 1000;  // a former process with the same id may have left files
  for (int i = 0; i < kTries; ++i) {
    Temporary made{
        path + "." + std::to_string(::getpid()) + "-" + std::to_string(writes++) + ".tmp", {}};
    made.file = make_fd(::open(made.path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (made.file) return made;
    if (errno != EEXIST) return failed("create", made.path, errno);
  }
  return failed("create a file beside", path, EEXIST);
}

using Stops = std::function<bool()>;
constexpr std::size_t kPieceOfFile = 4 << 20;  ///< bytes between two questions whether to stop

Result<void> go_on(const Stops& stops, const std::string& path) {
  if (!stops || !stops()) return {};
  return Error(Code::cancelled, "the write of " + path + " was given up");
}

Result<void> write_file(const Temporary& to, const internal::FilePlan& plan, const Stops& stops) {
  Result<void> written = write_all(to.file, std::as_bytes(std::span(plan.head)), to.path);
  for (const FileTensor* tensor : plan.order)
    for (BlobView rest = tensor->bytes; written && !rest.empty();) {
      written = go_on(stops, to.path);
      const BlobView piece = rest.first(std::min(rest.size(), kPieceOfFile));
      if (written) written = write_all(to.file, piece, to.path);
      rest = rest.subspan(piece.size());
    }
  if (!written) return written;
  if (::fsync(to.file.get()) != 0) return failed("sync", to.path, errno);
  return go_on(stops, to.path);
}

Error no_file(const std::string& why) {
  return Error(Code::invalid_argument, "not a safetensors file: " + why);
}

/// Reads a header of that length in pieces, and stops at the first byte that JSON cannot contain:
/// a control character other than tab, newline and carriage return. The zeros of a hole in a
/// sparse file therefore end the reading with the first piece.
Result<std::string> read_header(const Fd& file, std::uint64_t length, const std::string& path) {
  constexpr std::uint64_t kPiece = 1 << 16;
  std::string text;
  while (text.size() < length) {
    const std::size_t have = text.size();
    text.resize(static_cast<std::size_t>(std::min(length, have + kPiece)));
    const Result<std::size_t> got =
        read_some(file, text.data() + have, text.size() - have, sizeof length + have, path);
    if (!got) return got.error();
    if (*got == 0) return no_file("it became shorter");
    text.resize(have + *got);
    const auto odd = [](unsigned char c) { return c < ' ' && c != '\t' && c != '\n' && c != '\r'; };
    if (std::any_of(text.begin() + static_cast<std::ptrdiff_t>(have), text.end(), odd))
      return no_file("its header is not JSON");
  }
  return text;
}

/// Fills in everything but file, path and size.
Result<void> read_index(internal::FileReader& reader) {
  std::uint64_t length = 0;
  const Result<std::size_t> first = read_some(reader.file, &length, sizeof length, 0, reader.path);
  if (!first) return first.error();
  if (*first != sizeof length) return no_file("it is shorter than 8 bytes");
  if (length > internal::kMaxHeader)
    return no_file("its header claims more than 100,000,000 bytes");
  if (length > reader.size - sizeof length) return no_file("its header runs past the end");
  const Result<std::string> text = read_header(reader.file, length, reader.path);
  if (!text) return text.error();
  reader.data = sizeof length + length;
  Result<internal::FileIndex> index = internal::index_of_file(*text, reader.size - reader.data);
  if (!index) return index.error();
  reader.index = std::move(*index);
  return {};
}

/// Returns the free memory of the machine; 2^64 - 1 when it is unknown.
std::uint64_t free_memory() {
  std::ifstream machine("/proc/meminfo");
  std::string name;
  std::uint64_t kilobytes = 0;
  while (machine >> name >> kilobytes) {
    if (name == "MemAvailable:") return kilobytes << 10;
    std::getline(machine, name);
  }
  return ~std::uint64_t{0};
}

}  // namespace

Result<void> write_safetensors_file(const std::string& path, std::span<const FileTensor> tensors,
                                    const Metadata& metadata, const Stops& stops) {
  const internal::FilePlan plan = internal::plan_file(tensors, metadata);
  const Result<Temporary> temporary = create_beside(path);
  if (!temporary) return temporary.error();
  Result<void> written = write_file(*temporary, plan, stops);
  if (written && ::rename(temporary->path.c_str(), path.c_str()) != 0)
    written = failed("rename to", path, errno);
  if (!written) {
    ::unlink(temporary->path.c_str());
    return written;
  }
  return sync_folder_of(path);
}

Result<internal::FileReader> internal::open_safetensors(const std::string& path,
                                                        std::uint64_t max_size) {
  FileReader reader;
  // O_NONBLOCK: opening a FIFO does not block, and the check below refuses it.
  reader.file = make_fd(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  reader.path = path;
  struct stat status{};
  if (!reader.file || ::fstat(reader.file.get(), &status) != 0) return failed("open", path, errno);
  if (!S_ISREG(status.st_mode))
    return Error(Code::unavailable, "cannot read " + path + ": it is not a regular file");
  reader.size = static_cast<std::uint64_t>(status.st_size);
  if (reader.size > max_size)
    return Error(Code::invalid_argument,
                 path + " is larger than the limit of " + std::to_string(max_size) + " bytes");
  if (const Result<void> checked = read_index(reader); !checked) return checked.error();
  if (reader.size > free_memory())
    return Error(Code::out_of_memory, path + " has " + std::to_string(reader.size) +
                                          " bytes, and the machine has not so many free");
  return reader;
}

Result<void> internal::FileReader::read(std::size_t tensor, std::span<std::byte> out) const {
  const Result<std::size_t> have =
      read_some(file, out.data(), out.size(), data + index.header.entries[tensor].begin, path);
  if (!have) return have.error();
  if (*have < out.size()) return no_file("it became shorter");
  return {};
}

Result<SafetensorsFile> read_safetensors_file(const std::string& path, Bytes max_size) {
  const Result<internal::FileReader> reader = internal::open_safetensors(path, max_size.count);
  if (!reader) return reader.error();
  Blob bytes;
  try {
    bytes.resize(static_cast<std::size_t>(reader->size));
  } catch (const std::bad_alloc&) {
    return Error(Code::out_of_memory,
                 "no memory for the " + std::to_string(reader->size) + " bytes of " + path);
  }
  // If the file has shrunk meanwhile, the parser reports it.
  const Result<std::size_t> have = read_some(reader->file, bytes.data(), bytes.size(), 0, path);
  if (!have) return have.error();
  bytes.resize(*have);
  return parse_safetensors(std::move(bytes));
}

}  // namespace troupe::train
