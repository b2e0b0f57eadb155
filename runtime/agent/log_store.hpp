/// Decides in which files the lines of a node's jobs lie, and which files go. A plain state machine:
/// LogWriter does to the disk what it says.
///
///     LogStore::Plan plan = store.plan(job, bytes.size());
///     for (const auto& file : plan.remove) …;            // unlink
///     …                                                  // write at plan.at of plan.file
///     store.written(plan.file, bytes.size());
///     store.find(job, offset, most);                     // where later bytes can be read
///
/// An offset counts all bytes of a job on this node since its first one, also those of files that
/// are gone. Of jobs without files only the last Limits::files are remembered. A job that is
/// forgotten begins again at offset 0; its readers are told so by a batch that begins before what
/// they asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace troupe::agent {

class LogStore {
 public:
  struct Limits {
    std::uint64_t file = 64ull << 20;  ///< bytes of a file; at most a quarter of `total`
    std::size_t files_of_job = 4;
    std::uint64_t total = 1ull << 30;  ///< bytes of all files
    std::size_t files = 4096;          ///< of all jobs
  };
  /// JOB.NUMBER.log
  struct File {
    std::string job;
    std::uint32_t number = 0;
    friend auto operator<=>(const File&, const File&) = default;
    std::string name() const { return job + "." + std::to_string(number) + ".log"; }
  };
  struct Plan {
    std::vector<File> remove;
    File file;
    std::uint64_t at = 0;  ///< the first free byte of the file
  };
  struct Place {
    File file;
    std::uint64_t at = 0, bytes = 0;
    std::uint64_t offset = 0;  ///< of the first byte; above the one asked for if that is gone
  };

  explicit LogStore(Limits limits);
  /// Returns where the next `bytes` of the job go. The files to remove are forgotten.
  Plan plan(const std::string& job, std::uint64_t bytes);
  /// Notes that the bytes of the last plan for this file are on the disk. Without it the next plan
  /// has the same place.
  void written(const File& file, std::uint64_t bytes);
  /// Returns where bytes from `offset` on lie: at most `most`, of one file. nullopt: none are there.
  std::optional<Place> find(const std::string& job, std::uint64_t offset, std::uint64_t most) const;
  /// Returns the offset after the job's last byte.
  std::uint64_t end(const std::string& job) const;
  std::uint64_t total() const noexcept { return total_; }
  std::size_t jobs() const noexcept { return jobs_.size(); }

 private:
  struct Kept {
    std::uint32_t number = 0;
    std::uint64_t offset = 0;  ///< of its first byte
    std::uint64_t bytes = 0;
    std::uint64_t used = 0;  ///< when it was last written: a count
  };
  struct Job {
    std::deque<Kept> files;
    std::uint32_t last = 0;  ///< number of the newest file
    std::uint64_t end = 0;
    std::uint64_t used = 0;  ///< when it was planned last: a count
  };
  void forget_one_of_many();
  void remove_first(const std::string& job, Plan& plan);
  void make_room(const std::string& job, std::uint64_t bytes, Plan& plan);

  Limits limits_;
  std::map<std::string, Job> jobs_;
  std::uint64_t total_ = 0, uses_ = 0;
  std::size_t files_ = 0;
};

}  // namespace troupe::agent
