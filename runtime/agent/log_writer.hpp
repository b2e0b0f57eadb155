/// Writes the lines of a node's jobs to files, on a thread of its own, since a disk may hang.
///
///     LogWriter writer(log_files_in(folder), limits, "node-0");
///     if (writer.has_room()) writer.write({job, "…\n", 3});
///     writer.read({request, job, offset, most});
///     poll(writer.fd()); for (auto& read : writer.take()) …
///
/// At most kMostQueued bytes wait; then has_room() is false, and fd() becomes readable when there is
/// room again. Lines that cannot be written are counted, and one line of the log says how many and
/// why once a write succeeds.
#pragma once

#include "troupe/runtime/agent/log_store.hpp"
#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/result.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::agent {

/// The files of a log. Called by one thread; each call may block.
class LogFiles {
 public:
  virtual ~LogFiles() = default;
  /// Writes all the bytes at this place, which is the file's end. After an error the next call for
  /// the file has the same place.
  virtual Result<void> write(const LogStore::File& file, std::uint64_t at,
                             std::string_view bytes) = 0;
  virtual Result<std::string> read(const LogStore::File& file, std::uint64_t at,
                                   std::uint64_t bytes) = 0;
  virtual void remove(const LogStore::File& file) noexcept = 0;
};
/// Returns the files of this folder, which is made at the first write.
std::unique_ptr<LogFiles> log_files_in(std::string folder);

class LogWriter {
 public:
  static constexpr std::size_t kMostQueued = 8 << 20;
  struct Lines {
    std::string job;
    std::string bytes;  ///< whole lines of the file
    std::uint32_t count = 0;
  };
  struct ReadOrder {
    std::uint64_t request = 0;
    std::string job;
    std::uint64_t offset = 0, most = 0;
  };
  struct Read {
    std::uint64_t request = 0;
    std::uint64_t offset = 0;  ///< of the first byte; above the one asked for if that is gone
    std::string bytes;         ///< whole lines; empty: nothing is there
  };

  /// `node`: for the line that tells of lost lines. Throws OutOfMemory when there is no thread.
  LogWriter(std::unique_ptr<LogFiles> files, LogStore::Limits limits, std::string node);
  /// Writes what waits, for kLastWrites at most. A thread that hangs in the disk is left alone.
  ~LogWriter();
  LogWriter(const LogWriter&) = delete;
  LogWriter& operator=(const LogWriter&) = delete;

  // None of these functions waits for the disk.
  bool has_room() const;
  /// Queues the lines, even beyond the bound.
  void write(Lines lines);
  /// Counts lines of the job that were dropped before they came here. `why` ends the sentence.
  void lost(const std::string& job, std::uint64_t count, const std::string& why);
  /// Reads before what waits to be written; take() has the answer.
  void read(ReadOrder order);
  /// Readable when take() has something, more of a job is written, or there is room again.
  int fd() const noexcept;
  std::vector<Read> take();
  /// Returns the offset after the last byte of the job that is written.
  std::uint64_t end(const std::string& job) const;
  /// Returns whether nothing of the job waits.
  bool is_written(const std::string& job) const;

 private:
  struct Shared;
  static void run(Shared& shared);
  std::shared_ptr<Shared> shared_;
};

}  // namespace troupe::agent
