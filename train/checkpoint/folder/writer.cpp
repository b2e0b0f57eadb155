#include "troupe/train/checkpoint/folder/writer.hpp"

#include "troupe/runtime/base/error.hpp"
#include "troupe/train/checkpoint/folder/exchange.hpp"
#include "troupe/train/checkpoint/folder/names.hpp"
#include "troupe/train/checkpoint/folder/tensor_file.hpp"
#include "troupe/train/checkpoint/internal/files.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <exception>
#include <span>
#include <utility>

namespace troupe::train {
namespace {

/// Returns the tensors of a kind that the rank writes, in the order of the plan.
std::vector<TensorShape> shapes_of(const StagePlan& plan, int rank, FileKind kind) {
  std::vector<TensorShape> shapes;
  for (const StagedTensor& tensor : plan.tensors)
    if (tensor.kind == kind && plan.first + tensor.writer == rank)
      shapes.push_back({tensor.name, {tensor.place.global.begin(), tensor.place.global.end()}});
  return shapes;
}

/// The file that is written now. After an error it takes tensors and drops them, so that other
/// ranks' exchanges go on.
class Output {
 public:
  Output(const WriteJob& job, const StagePlan& plan, int rank, int world,
         std::vector<SavedFile>& files, std::optional<Error> error)
      : job_(&job),
        plan_(&plan),
        rank_(rank),
        world_(world),
        files_(&files),
        error_(std::move(error)) {}

  void append(const StagedTensor& tensor, BlobView bytes) {
    if (error_) return;
    if (!file_ || tensor.kind != kind_) {
      close();
      open(tensor.kind);
    }
    if (file_) keep(file_->append(bytes));
  }
  /// Throws the first error.
  void finish() {
    close();
    if (error_) raise(*error_);
  }

 private:
  void open(FileKind kind) {
    if (error_) return;
    kind_ = kind;
    Result<TensorFile> made =
        TensorFile::create(job_->folder + "/" + tensor_file_name(kind, rank_ + 1, world_),
                           shapes_of(*plan_, rank_, kind), job_->step);
    if (made)
      file_.emplace(std::move(*made));
    else
      error_ = made.error();
  }
  void close() {
    if (!file_ || error_) return;
    const Result<SavedFile> saved = file_->finish();
    file_.reset();
    if (saved)
      files_->push_back(*saved);
    else
      error_ = saved.error();
  }
  void keep(const Result<void>& result) {
    if (!result && !error_) error_ = result.error();
  }

  const WriteJob* job_;
  const StagePlan* plan_;
  int rank_, world_;
  std::vector<SavedFile>* files_;
  FileKind kind_ = FileKind::model;
  std::optional<TensorFile> file_;
  std::optional<Error> error_;
};

}  // namespace

CheckpointWriter::CheckpointWriter(int rank, int world,
                                   std::unique_ptr<collective::Communicator> group)
    : rank_(rank),
      world_(world),
      group_(std::move(group)),
      thread_("troupe-save", [this] { run(); }) {}

CheckpointWriter::~CheckpointWriter() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

bool CheckpointWriter::wait(Duration timeout) {
  std::unique_lock lock(mutex_);
  const auto idle = [this] { return !job_.has_value(); };
  constexpr Duration kLong = std::chrono::hours(24 * 365);  // longer waits overflow
  return changed_.wait_for(lock, std::min(timeout, kLong), idle);
}

void CheckpointWriter::begin(WriteJob job) {
  {
    const std::lock_guard lock(mutex_);
    job_ = std::move(job);
  }
  changed_.notify_all();
}

void CheckpointWriter::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return job_.has_value() || ends_; });
    if (!job_) return;
    const WriteJob& job = *job_;  // stays in its place until this thread resets it
    lock.unlock();
    WrittenShare share = write(job);
    job.done(std::move(share));
    lock.lock();
    job_.reset();
    changed_.notify_all();
  }
}

WrittenShare CheckpointWriter::write(const WriteJob& job) {
  WrittenShare share;
  try {
    // An exchange needs all ranks, so a rank that cannot write takes part in it nevertheless.
    std::optional<Error> error;
    if (::mkdir(job.folder.c_str(), 0777) != 0 && errno != EEXIST)
      error = internal::failed("make the folder", job.folder, errno);
    if (job.engine) write_engine(job, share.files, error);
    if (error) raise(*error);
    if (job.parts) {
      const std::string path = job.folder + "/" + kPartsFile;
      const std::string text(reinterpret_cast<const char*>(job.parts->data()), job.parts->size());
      internal::write_text(path, text).value();
      share.files.push_back({kPartsFile, text.size(), hash_bytes(text.data(), text.size())});
    }
    if (!share.files.empty()) internal::sync_folder(job.folder).value();
  } catch (const Error& e) {
    share.error = e.message();
  } catch (const std::exception& e) {
    share.error = e.what();
  }
  return share;
}

void CheckpointWriter::write_engine(const WriteJob& job, std::vector<SavedFile>& files,
                                    const std::optional<Error>& error) {
  Output output(job, *staged_.plan, rank_, world_, files, error);
  exchange(staged_, rank_, group_.get(),
           [&](const StagedTensor& tensor, BlobView bytes) { output.append(tensor, bytes); });
  output.finish();
}

}  // namespace troupe::train
