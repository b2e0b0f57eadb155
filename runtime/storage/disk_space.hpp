/// The free space of the disk below a data folder, and a reserve that is given up when the disk is
/// full. RocksDB aborts the process on a full disk, so its users look here before each write.
///
///     DiskSpace disk("/var/lib/troupe", 16_MiB);
///     disk.use_reserve(false);                       // allocates the file `reserve` once
///     if (disk.free() < kLowWater) refuse();
#pragma once

#include "troupe/runtime/base/units.hpp"

#include <string>

namespace troupe::storage {

/// Below this much free space ordinary writes are refused.
inline constexpr Bytes kLowWater{64ull << 20};
/// Below this much free space all writes are refused.
inline constexpr Bytes kFloor{16ull << 20};
inline constexpr Bytes kReserve{16ull << 20};

class DiskSpace {
 public:
  DiskSpace() = default;
  DiskSpace(std::string folder, Bytes reserve) : folder_(std::move(folder)), reserve_(reserve) {}

  /// Returns what this user may still write there; zero when the system does not say.
  Bytes free() const;
  /// Removes the file `reserve` (true: space is short), or allocates it again (false). Cheap to
  /// repeat. A disk without room for the reserve gets none.
  void use_reserve(bool use);

 private:
  std::string folder_;
  Bytes reserve_;
};

}  // namespace troupe::storage
