/// RunLock: makes a program the only driver of a run's folder.
///
///     RunLock lock(folder);        // throws while another driver has it
///     lock.check();                // before each rename
#pragma once

#include "troupe/runtime/base/assert.hpp"
#include "troupe/runtime/base/fd.hpp"
#include "troupe/runtime/base/units.hpp"

#include <string>

namespace troupe::train {

/// The file FOLDER/lock has host, process and a random id. The system locks it while the driver
/// lives (flock). File systems over which that lock does not reach show the last driver's id.
class TROUPE_API RunLock {
 public:
  /// Throws InvalidArgument, naming the other driver's process and host, while one has the
  /// folder. Throws InvalidArgument also when the file cannot be made or locked.
  explicit RunLock(const std::string& folder);

  /// Returns 32 hexadecimal digits that no other driver has.
  const std::string& id() const noexcept { return id_; }
  /// Throws Unavailable, naming the other driver, when another one has taken the folder since.
  void check() const;

 private:
  std::string folder_, path_, id_;
  Fd file_;
};

/// Waits until the lock file of the folder shows the driver's id, `timeout` at most, and writes
/// and removes a file there. Returns an empty text, or why the folder cannot be used. Blocks.
TROUPE_API std::string why_not_shared(const std::string& folder, const std::string& id,
                                      const std::string& rank, Duration timeout);

}  // namespace troupe::train
