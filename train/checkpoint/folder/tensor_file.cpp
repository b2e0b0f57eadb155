#include "troupe/train/checkpoint/folder/tensor_file.hpp"

#include "troupe/runtime/base/json.hpp"
#include "troupe/runtime/base/standard_descriptors.hpp"
#include "troupe/train/checkpoint/internal/files.hpp"
#include "troupe/train/checkpoint/internal/safetensors_header.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <span>

namespace troupe::train {
namespace {

/// Returns what PyTorch keeps under this key: for each tensor where its part begins in the whole.
std::string sharding_text(const std::vector<TensorShape>& tensors) {
  Json info = Json::object();
  for (const TensorShape& tensor : tensors)
    info[tensor.name] = Json{{"saved_offsets", std::vector<int>(tensor.shape.size(), 0)}};
  return info.dump();
}

std::string head_of(const std::vector<TensorShape>& tensors, long step) {
  std::vector<internal::HeaderEntry> entries;
  std::uint64_t at = 0;
  for (const TensorShape& tensor : tensors) {
    std::uint64_t bytes = sizeof(float);
    for (const std::int64_t size : tensor.shape) bytes *= static_cast<std::uint64_t>(size);
    entries.push_back({tensor.name, "F32", tensor.shape, at, at + bytes});
    at += bytes;
  }
  const std::string header =
      internal::write_header(entries, {{"format", "pt"},
                                       {"step", std::to_string(step)},
                                       {"DCP_VERSION", "1.0"},
                                       {"DCP_SHARDING_INFO", sharding_text(tensors)}});
  const std::uint64_t length = (header.size() + 7) / 8 * 8;
  std::string head(reinterpret_cast<const char*>(&length), sizeof length);
  head += header;
  head.resize(static_cast<std::size_t>(sizeof length + length), ' ');
  return head;
}

}  // namespace

Result<TensorFile> TensorFile::create(const std::string& path,
                                      const std::vector<TensorShape>& tensors, long step) {
  TensorFile made(
      make_fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666)),
      path);
  if (!made.file_) return internal::failed("create", path, errno);
  const std::string head = head_of(tensors, step);
  if (const Result<void> written = made.append(std::as_bytes(std::span(head))); !written)
    return written.error();
  return made;
}

Result<void> TensorFile::append(BlobView bytes) {
  hash_.add(bytes.data(), bytes.size());
  size_ += bytes.size();
  return internal::write_all(file_, bytes, path_);
}

Result<SavedFile> TensorFile::finish() {
  if (::fsync(file_.get()) != 0) return internal::failed("sync", path_, errno);
  file_.reset();
  return SavedFile{path_.substr(path_.rfind('/') + 1), size_, hash_.value()};
}

}  // namespace troupe::train
