#include "troupe/train/checkpoint/folder/commit.hpp"

#include "troupe/runtime/base/json.hpp"
#include "troupe/runtime/base/random_bytes.hpp"
#include "troupe/train/checkpoint/folder/names.hpp"
#include "troupe/train/checkpoint/internal/file_reader.hpp"
#include "troupe/train/checkpoint/internal/files.hpp"
#include "troupe/train/hash.hpp"
#include "troupe/train/internal/reject.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>

namespace troupe::train {
namespace {

constexpr std::uint64_t kAnySize = ~std::uint64_t{0};

void rename_or_throw(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) raise(internal::failed("rename to", to, errno));
}

/// Gives the files of a kind the numbers 1 to N. Ranks without tensors have written none.
void number(const std::string& folder, std::vector<SavedFile>& files, FileKind kind) {
  std::vector<SavedFile*> own;
  for (SavedFile& file : files)
    if (kind_of_file(file.name) == kind) own.push_back(&file);
  std::sort(own.begin(), own.end(),
            [](const SavedFile* a, const SavedFile* b) { return a->name < b->name; });
  const std::string begin = folder + "/";
  int at = 0;
  for (SavedFile* file : own) {
    const std::string name = tensor_file_name(kind, ++at, static_cast<int>(own.size()));
    if (name == file->name) continue;
    rename_or_throw(begin + file->name, begin + name);
    file->name = name;
  }
}

/// Opens each file and returns the index of the weights: which file has which tensor.
std::string index_text(const std::string& folder, const std::vector<SavedFile>& files) {
  Json map = Json::object();
  std::uint64_t total = 0;
  for (const SavedFile& file : files) {
    const std::string path = folder + "/" + file.name;
    const internal::OpenFile opened = internal::open_regular(path).value();
    if (opened.size != file.size)
      internal::reject(path + " has " + std::to_string(opened.size) +
                       " bytes, and its rank wrote " + std::to_string(file.size));
    if (!kind_of_file(file.name)) continue;
    const internal::FileReader reader = internal::open_safetensors(path, kAnySize).value();
    if (kind_of_file(file.name) != FileKind::model) continue;
    for (const internal::HeaderEntry& entry : reader.index.header.entries) {
      map[entry.name] = file.name;
      total += entry.end - entry.begin;
    }
  }
  return Json{{"metadata", Json{{"total_size", total}}}, {"weight_map", map}}.dump(2) + "\n";
}

bool has_model(const std::vector<SavedFile>& files) {
  return std::any_of(files.begin(), files.end(), [](const SavedFile& file) {
    return kind_of_file(file.name) == FileKind::model;
  });
}

}  // namespace

void commit_checkpoint(const std::string& folder, const std::string& id, const RunLock& lock,
                       CheckpointDocument& document, std::vector<SavedFile> files) {
  const std::string writing = folder + "/" + writing_folder_name(document.step, id);
  const std::string ready = folder + "/" + step_folder_name(document.step);
  for (const FileKind kind : {FileKind::model, FileKind::optimizer}) number(writing, files, kind);
  std::sort(files.begin(), files.end(),
            [](const SavedFile& a, const SavedFile& b) { return a.name < b.name; });
  const std::string index = index_text(writing, files);
  if (has_model(files)) {
    internal::write_text(writing + "/" + kIndexFile, index).value();
    files.push_back({kIndexFile, index.size(), hash_bytes(index.data(), index.size())});
  }
  document.files = std::move(files);
  internal::write_text(writing + "/" + kDocumentFile, text_of(document)).value();
  internal::sync_folder(writing).value();
  lock.check();
  std::error_code ignored;
  if (std::filesystem::exists(std::filesystem::symlink_status(ready, ignored)))
    rename_or_throw(ready, folder + "/" + skipped_folder_name(document.step, random_id()));
  rename_or_throw(writing, ready);
  internal::sync_folder(folder).value();
}

void remove_writing(const std::string& folder, const std::string& id, long step) {
  std::error_code ignored;
  std::filesystem::remove_all(folder + "/" + writing_folder_name(step, id), ignored);
}

void remove_all_writing(const std::string& folder) {
  std::error_code ignored;
  std::vector<std::filesystem::path> old;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored))
    if (is_writing_folder(entry.path().filename().string())) old.push_back(entry.path());
  for (const std::filesystem::path& path : old) std::filesystem::remove_all(path, ignored);
}

void remove_checkpoint(const std::string& folder, long step) {
  const std::string path = folder + "/" + step_folder_name(step);
  ::unlink((path + "/" + kDocumentFile).c_str());
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
}

}  // namespace troupe::train
