#include "troupe/tune/study/checkpoint_files.hpp"

#include "troupe/runtime/base/leave_behind.hpp"
#include "troupe/runtime/base/signal_masked_thread.hpp"
#include "troupe/runtime/storage/disk_space.hpp"
#include "troupe/train/hash.hpp"
#include "troupe/tune/study/internal/files.hpp"

#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <mutex>
#include <utility>

namespace troupe::tune {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSuffix = ".safetensors";
constexpr const char* kTensor = "model";
constexpr const char* kFormat = "troupe.tune.checkpoint.1";
/// The header of such a file is far shorter.
constexpr std::uint64_t kMostHeader = 64 << 10;

std::uint64_t number_of(const train::Metadata& metadata, const std::string& name) {
  std::uint64_t number = 0;
  const auto found = metadata.find(name);
  if (found != metadata.end())
    std::from_chars(found->second.data(), found->second.data() + found->second.size(), number);
  return number;
}

/// Returns a hash of all metadata but itself.
std::string check_of(const train::Metadata& metadata) {
  std::string text;
  for (const auto& [name, value] : metadata)
    if (name != "check") text.append(name).append("=").append(value).append("\n");
  return hash_text(train::hash_bytes(text.data(), text.size()));
}

Error bad_file(const std::string& path, const std::string& why) {
  return Error(Code::invalid_argument, "tune: the checkpoint " + path + " " + why);
}

}  // namespace

/// What the threads share with the object, which they may outlive.
struct CheckpointFiles::Work {
  struct Waiting {
    CheckpointSave save;
    Pull pull;
  };
  Work(std::string where, Options with) : folder(std::move(where)), options(std::move(with)) {}
  void run();
  Done carry_out(Waiting write);
  Result<void> write_file(const CheckpointSave& save, const StoredModel& model) const;

  const std::string folder;
  const Options options;
  std::mutex writing;  ///< one file at a time
  std::mutex mutex;
  std::condition_variable wake, ended;
  std::deque<Waiting> queue;
  std::vector<Done> done;
  std::atomic<bool> over = false;
  int running = kMostAtOnce;  ///< threads
  std::array<SignalMaskedThread, kMostAtOnce> threads;
};

CheckpointFiles::CheckpointFiles(std::string folder, Options options)
    : folder_(folder), work_(std::make_shared<Work>(std::move(folder), std::move(options))) {
  for (SignalMaskedThread& thread : work_->threads)
    thread = SignalMaskedThread("tune-files", [work = work_.get()] { work->run(); });
}

CheckpointFiles::~CheckpointFiles() {
  std::unique_lock lock(work_->mutex);
  work_->over = true;
  work_->wake.notify_all();
  if (work_->ended.wait_for(lock, kLastWrites, [this] { return work_->running == 0; })) {
    lock.unlock();
    for (SignalMaskedThread& thread : work_->threads) thread.join();
    return;
  }
  leave_behind(work_);  // the disk hangs, or a model is still pulled
}

void CheckpointFiles::write(CheckpointSave save, Pull pull) {
  {
    const std::lock_guard guard(work_->mutex);
    work_->queue.push_back({std::move(save), std::move(pull)});
  }
  work_->wake.notify_one();
}

std::vector<CheckpointFiles::Done> CheckpointFiles::take_done() {
  const std::lock_guard guard(work_->mutex);
  return std::exchange(work_->done, {});
}

void CheckpointFiles::Work::run() {
  std::unique_lock lock(mutex);
  for (;;) {
    wake.wait(lock, [this] { return over || !queue.empty(); });
    if (over) break;
    Waiting next = std::move(queue.front());
    queue.pop_front();
    lock.unlock();
    Done ended_write = carry_out(std::move(next));
    lock.lock();
    if (over) break;  // what wake() needs may be gone
    done.push_back(std::move(ended_write));
    lock.unlock();
    if (options.wake) options.wake();
    lock.lock();
  }
  --running;
  ended.notify_all();
}

CheckpointFiles::Done CheckpointFiles::Work::carry_out(Waiting write) {
  CheckpointSave& save = write.save;
  try {
    const Result<StoredModel> model = write.pull();
    if (!model) return {std::move(save), model.error()};
    const std::lock_guard one_at_a_time(writing);
    const Result<void> written = write_file(save, *model);
    if (!written) return {std::move(save), written.error()};
    return {std::move(save), std::nullopt};
  } catch (const Error& error) {
    return {std::move(save), error};
  } catch (const std::exception& error) {
    return {std::move(save), Error(Code::internal, error.what())};
  }
}

Result<void> CheckpointFiles::Work::write_file(const CheckpointSave& save,
                                               const StoredModel& model) const {
  if (over) return Error(Code::cancelled, "tune: the study has ended");
  const Bytes free =
      options.free_space ? options.free_space() : storage::DiskSpace(folder, {}).free();
  if (free < Bytes{model.bytes.size()} + options.low_water)
    return Error(Code::out_of_disk, "tune: the checkpoint " + save.key + " of trial " +
                                        std::to_string(save.trial) + " needs " +
                                        std::to_string(model.bytes.size()) + " bytes, and " +
                                        std::to_string(free.count) + " are free at " + folder +
                                        ", of which " + std::to_string(options.low_water.count) +
                                        " stay free: make room, or raise save_every");
  const train::FileTensor tensor{
      kTensor, train::FileType::u8, {static_cast<std::int64_t>(model.bytes.size())}, model.bytes};
  train::Metadata metadata{{"format", kFormat},
                           {"trial", std::to_string(save.trial)},
                           {"step", std::to_string(save.step)},
                           {"hash", save.hash},
                           {"types", std::to_string(model.types)},
                           {"passes", std::to_string(model.passes)},
                           {"batches", std::to_string(model.batches)}};
  metadata["check"] = check_of(metadata);
  return train::write_safetensors_file(path_of(folder, save.key), {&tensor, 1}, metadata,
                                       [this] { return over.load(); });
}

void CheckpointFiles::remove(const std::vector<std::string>& keys) {
  {
    const std::lock_guard guard(work_->mutex);
    std::erase_if(work_->queue, [&keys](const Work::Waiting& waiting) {
      return std::find(keys.begin(), keys.end(), waiting.save.key) != keys.end();
    });
  }
  for (const std::string& key : keys) ::unlink(path_of(key).c_str());
}

std::string CheckpointFiles::path_of(const std::string& folder, const std::string& key) {
  return folder + "/" + key + kSuffix;
}

std::string CheckpointFiles::fault_of(const std::string& folder, const CheckpointSave& save) {
  struct stat there{};
  if (::stat(path_of(folder, save.key).c_str(), &there) != 0)
    return errno == ENOENT ? "is missing" : "cannot be read: " + internal::words_of(errno);
  const auto size = static_cast<std::uint64_t>(there.st_size);
  if (S_ISREG(there.st_mode) && size > save.bytes && size <= save.bytes + kMostHeader) return {};
  return "has " + std::to_string(size) + " bytes, and its model alone has " +
         std::to_string(save.bytes);
}

Result<StoredModel> CheckpointFiles::read(const std::string& folder, const CheckpointSave& save) {
  const std::string path = path_of(folder, save.key);
  if (const std::string fault = fault_of(folder, save); !fault.empty())
    return bad_file(path, fault);
  Result<train::SafetensorsFile> opened =
      train::read_safetensors_file(path, {save.bytes + kMostHeader});
  if (!opened && opened.error().code() == Code::invalid_argument)
    return bad_file(path, "is altered: " + opened.error().message());
  if (!opened) return opened.error();
  auto file = std::make_shared<train::SafetensorsFile>(std::move(*opened));
  const train::FileTensor* tensor = file->find(kTensor);
  if (tensor == nullptr || tensor->bytes.size() != save.bytes ||
      hash_text(train::hash_bytes(tensor->bytes.data(), tensor->bytes.size())) != save.hash)
    return bad_file(path, "is altered: its model's hash is not " + save.hash);
  const auto check = file->metadata.find("check");
  if (check == file->metadata.end() || check->second != check_of(file->metadata))
    return bad_file(path, "is altered: its metadata is not what was written");
  StoredModel model;
  model.bytes = tensor->bytes;
  model.types = number_of(file->metadata, "types");
  model.passes = number_of(file->metadata, "passes");
  model.batches = number_of(file->metadata, "batches");
  model.owner = std::move(file);
  return model;
}

int CheckpointFiles::tidy(const std::vector<std::string>& keys) const {
  std::vector<fs::path> unknown;
  std::error_code error;
  for (fs::directory_iterator at(folder_, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    const bool is_draft = name.ends_with(".tmp");
    const bool is_file = name.ends_with(kSuffix);
    const std::string key =
        is_file ? name.substr(0, name.size() - std::string(kSuffix).size()) : "";
    if (is_draft || (is_file && std::find(keys.begin(), keys.end(), key) == keys.end()))
      unknown.push_back(at->path());
  }
  for (const fs::path& path : unknown) fs::remove(path, error);
  return static_cast<int>(unknown.size());
}

}  // namespace troupe::tune
