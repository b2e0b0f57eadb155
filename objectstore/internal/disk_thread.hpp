/// The thread that carries out the disk jobs of SpillFiles: writes, reads, punches holes, closes
/// files.
#pragma once

#include "troupe/objectstore/spill_files.hpp"
#include "troupe/runtime/base/fd.hpp"
#include "troupe/runtime/base/signal_masked_thread.hpp"

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>

namespace troupe::objectstore::internal {

struct DiskJob {
  enum class Kind : std::uint8_t { write, read, punch, close };
  Kind kind = Kind::close;
  SpillId id = 0;
  SpillPlace place;
  const std::byte* from = nullptr;  ///< write
  std::byte* into = nullptr;        ///< read
  std::uint64_t size = 0;
  std::uint64_t checksum = 0;  ///< read: the expected one; write: set when done
};

struct DiskOutcome {
  enum class How : std::uint8_t { done, full, failed, damaged };
  DiskJob job;
  How how = How::done;
  std::string why;
};

/// Does reads first, since a process waits for them, and the other jobs in their order. So a read
/// may be posted only after the end of its write. A close or punch may be posted right after a read
/// of the same place.
class DiskThread {
 public:
  DiskThread(const SpillOptions& options, std::vector<Fd> folders);
  ~DiskThread();
  void post(DiskJob job);
  std::vector<DiskOutcome> take();
  int fd() const noexcept { return event_.get(); }

 private:
  void run();
  void carry_out(DiskOutcome& outcome);
  void write(DiskOutcome& outcome);
  void read(DiskOutcome& outcome);
  void punch(const SpillPlace& place);
  int file(const SpillPlace& place, int& error);

  const decltype(SpillOptions::pwrite) pwrite_;
  const decltype(SpillOptions::pread) pread_;
  const double keep_free_;
  const std::vector<Fd> folders_;
  std::map<std::uint64_t, Fd> files_;  ///< used by the thread only
  Fd event_;
  std::mutex mutex_;  ///< guards the members below
  std::condition_variable wake_;
  std::deque<DiskJob> reads_, others_;
  std::vector<DiskOutcome> outcomes_;
  bool stop_ = false;
  SignalMaskedThread thread_;
};

/// Makes a file without a name in the folder. Returns its descriptor, or -1 with errno.
int unnamed_file(int folder) noexcept;

}  // namespace troupe::objectstore::internal
