/// Prepares memory for objects on a thread of its own that is as nice as can be: where there is no
/// CPU to spare it would be taken from the programs that the agent serves. Until all that was asked
/// for is there, or there is no more memory.
///
///     const Prefaulter prefaulter(host);   // ends with its block
///
/// Not `SCHED_IDLE`: such a thread may wait for a second until it may end, and its process with it.
#pragma once

#include "troupe/objectstore/host.hpp"

#include <atomic>
#include <thread>

namespace troupe::agent {

class Prefaulter {
 public:
  /// `host` outlives it. Its other calls may be made meanwhile.
  explicit Prefaulter(objectstore::Host& host);
  /// Waits for the piece that is being made: 45 µs of CPU time, at its priority.
  ~Prefaulter();
  Prefaulter(const Prefaulter&) = delete;
  Prefaulter& operator=(const Prefaulter&) = delete;

 private:
  void run() noexcept;

  objectstore::Host& host_;
  std::atomic<bool> over_{false};
  std::thread thread_;
};

}  // namespace troupe::agent
