/// The files of a log in memory, on a disk that can be full and can hang.
#pragma once

#include "troupe/runtime/agent/log_writer.hpp"
#include "troupe/runtime/wire/log_batch.hpp"

#include <gtest/gtest.h>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace troupe::agent {

/// A disk in memory that can fail and hang.
struct Faults {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<LogStore::File, std::string> files;
  bool is_full = false, hangs = false, is_inside = false;

  std::string text_of(const std::string& job) {
    const std::lock_guard lock(mutex);
    std::string text;
    for (const auto& [file, bytes] : files)
      if (file.job == job) text += bytes;
    return text;
  }
  void set(bool full, bool hanging) {
    const std::lock_guard lock(mutex);
    is_full = full;
    hangs = hanging;
    changed.notify_all();
  }
};

class FaultyFiles final : public LogFiles {
 public:
  explicit FaultyFiles(std::shared_ptr<Faults> faults) : faults_(std::move(faults)) {}
  Result<void> write(const LogStore::File& file, std::uint64_t at,
                     std::string_view bytes) override {
    std::unique_lock lock(faults_->mutex);
    faults_->is_inside = true;
    faults_->changed.notify_all();
    faults_->changed.wait(lock, [&] { return !faults_->hangs; });
    faults_->is_inside = false;
    if (faults_->is_full) return Error(Code::out_of_disk, "No space left on device");
    std::string& text = faults_->files[file];
    EXPECT_EQ(at, text.size());
    text += bytes;
    return {};
  }
  Result<std::string> read(const LogStore::File& file, std::uint64_t at,
                           std::uint64_t bytes) override {
    const std::lock_guard lock(faults_->mutex);
    return faults_->files[file].substr(at, bytes);
  }
  void remove(const LogStore::File& file) noexcept override {
    const std::lock_guard lock(faults_->mutex);
    faults_->files.erase(file);
  }

 private:
  std::shared_ptr<Faults> faults_;
};

/// Returns the texts of the lines.
inline std::vector<std::string> texts_of(const std::string& bytes) {
  std::vector<std::string> texts;
  wire::each_record(bytes, [&](const wire::LogRecord& one) { texts.emplace_back(one.text); });
  return texts;
}

}  // namespace troupe::agent
