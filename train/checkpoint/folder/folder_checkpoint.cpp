#include "troupe/train/checkpoint/folder/folder_checkpoint.hpp"

#include "troupe/train/checkpoint/folder/names.hpp"
#include "troupe/train/checkpoint/internal/file_reader.hpp"
#include "troupe/train/checkpoint/internal/files.hpp"
#include "troupe/train/checkpoint/internal/snapshot_metadata.hpp"
#include "troupe/train/hash.hpp"
#include "troupe/train/internal/reject.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>
#include <utility>

namespace troupe::train {
namespace {

using internal::reject;

constexpr std::uint64_t kMostDocument = std::uint64_t{64} << 20;

CheckpointDocument document_in(const std::string& path) {
  const std::string file = path + "/" + kDocumentFile;
  const Result<std::string> text = internal::read_text(file, kMostDocument);
  if (!text) raise(text.error());
  Result<CheckpointDocument> document = document_of(*text);
  if (!document) reject(file + ": " + document.error().message());
  return std::move(*document);
}

/// Throws InvalidArgument unless the file is a regular one of its size.
void require_size(const std::string& path, const SavedFile& file, std::uint64_t size) {
  if (size != file.size)
    reject(path + " has " + std::to_string(size) + " bytes, and " + kDocumentFile + " says " +
           std::to_string(file.size));
}

/// Adds the tensors of a mapped safetensors file.
void add_tensors(const std::string& path, BlobView bytes, std::vector<TensorOf<BlobView>>& to) {
  std::uint64_t length = 0;
  if (bytes.size() < sizeof length) reject(path + " is shorter than 8 bytes");
  std::memcpy(&length, bytes.data(), sizeof length);
  if (length > internal::kMaxHeader || length > bytes.size() - sizeof length)
    reject(path + " has a header that runs past its end");
  const auto size = static_cast<std::size_t>(length);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + sizeof length, size);
  const BlobView data = bytes.subspan(sizeof length + size);
  Result<internal::FileIndex> index = internal::index_of_file(text, data.size());
  if (!index) reject(path + ": " + index.error().message());
  for (std::size_t i = 0; i < index->types.size(); ++i) {
    internal::HeaderEntry& entry = index->header.entries[i];
    if (index->types[i] != FileType::f32)
      reject(path + ": tensor " + entry.name + " is " + std::string(name_of(index->types[i])) +
             ", and checkpoints have F32 alone");
    to.push_back({std::move(entry.name), DType::f32, std::move(entry.shape),
                  data.subspan(static_cast<std::size_t>(entry.begin),
                               static_cast<std::size_t>(entry.end - entry.begin))});
  }
}

bool is_moment(const TensorOf<BlobView>& tensor) {
  return tensor.name.starts_with("optimizer.");
}

}  // namespace

FolderCheckpoint FolderCheckpoint::open(const std::string& path) {
  FolderCheckpoint opened;
  opened.path_ = path;
  opened.document_ = document_in(path);
  for (const SavedFile& file : opened.document_.files) {
    const std::string name = path + "/" + file.name;
    Result<MappedFile> mapped = MappedFile::open(name);
    if (!mapped) raise(mapped.error());
    require_size(name, file, mapped->bytes().size());
    if (kind_of_file(file.name)) add_tensors(name, mapped->bytes(), opened.tensors_);
    opened.files_.push_back(std::move(*mapped));
  }
  std::set<std::string_view> names;
  for (const TensorOf<BlobView>& tensor : opened.tensors_)
    if (!names.insert(tensor.name).second)
      reject(path + ": tensor " + tensor.name + " is in two files");
  return opened;
}

std::uint64_t FolderCheckpoint::identity() const noexcept {
  const std::uint64_t hash = identity_of(document_);
  return hash == 0 ? 1 : hash;
}

SnapshotView FolderCheckpoint::view() const {
  return {.step = document_.steps,
          .seed = document_.seed,
          .tensors = tensors_,
          .loss_scale = document_.loss_scale,
          .moments_since = document_.moments_since};
}

BlobView FolderCheckpoint::parts() const noexcept {
  for (std::size_t f = 0; f < files_.size(); ++f)
    if (document_.files[f].name == kPartsFile) return files_[f].bytes();
  return {};
}

Result<void> FolderCheckpoint::verify(std::size_t file) const {
  const BlobView bytes = files_.at(file).bytes();
  if (hash_bytes(bytes.data(), bytes.size()) == document_.files[file].hash) return {};
  return Error(Code::invalid_argument, path_ + "/" + document_.files[file].name +
                                           " has other bytes than " + kDocumentFile +
                                           " says: its hash differs");
}

FoundFolder look_at(const std::string& path, long step) {
  FoundFolder found{step, {}};
  try {
    const CheckpointDocument document = document_in(path);
    if (document.step != step)
      reject(path + "/" + kDocumentFile + " is of step " + std::to_string(document.step));
    for (const SavedFile& file : document.files) {
      const std::string name = path + "/" + file.name;
      const Result<internal::OpenFile> opened = internal::open_regular(name);
      if (!opened) raise(opened.error());
      require_size(name, file, opened->size);
    }
  } catch (const Error& error) {
    found.problem = error.message();
  }
  return found;
}

std::vector<FoundFolder> folders_in(const std::string& run) {
  std::vector<FoundFolder> found;
  std::error_code problem;
  std::filesystem::directory_iterator entries(run, problem);
  if (problem)
    throw Unavailable(Code::unavailable,
                      "cannot read the folder " + run + ": " + problem.message());
  for (const auto& entry : entries) {
    const std::optional<long> step = step_of_folder(entry.path().filename().string());
    if (step) found.push_back(look_at(entry.path().string(), *step));
  }
  return found;
}

void consolidate(const std::string& checkpoint, const std::string& to, bool all) {
  const FolderCheckpoint from = FolderCheckpoint::open(checkpoint);
  for (std::size_t f = 0; f < from.document().files.size(); ++f) from.verify(f).value();
  const SnapshotView view = from.view();
  if (view.tensors.empty())
    reject("the checkpoint " + checkpoint + " has no engine, so there are no tensors to write");
  std::vector<FileTensor> tensors;
  for (const TensorOf<BlobView>& tensor : view.tensors)
    if (all || !is_moment(tensor))
      tensors.push_back({tensor.name, FileType::f32, tensor.shape, tensor.bytes});
  write_safetensors_file(to, tensors, internal::metadata_of(view)).value();
}

}  // namespace troupe::train
