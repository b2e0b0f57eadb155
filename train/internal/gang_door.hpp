/// GangDoor: the listening socket of a rank, before the rank knows key and ranks of its gang.
///
///     std::unique_ptr<GangDoor> door = open_gang_door("10.0.0.7", rank, timeout);
///     tell(door->address());                              // "10.0.0.7:41234"
///     auto links = door->links(key, doors);               // once the supervisor has told them
#pragma once

#include "troupe/actors/collective/nodes/link.hpp"
#include "troupe/train/detail/gang.hpp"

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace troupe::train::internal {

class GangDoor {
 public:
  virtual ~GangDoor() = default;
  /// Where other ranks reach this one, as "ip:port".
  virtual const std::string& address() const = 0;
  /// Returns the links to the ranks behind these doors, sealed with the key. Called once.
  virtual std::shared_ptr<collective::LinkSource> links(std::span<const std::byte> key,
                                                        const std::vector<std::string>& doors) = 0;
};

/// Listens on any port of `host`. `timeout`: of the gang's groups. Throws Unavailable when the
/// system gives no socket.
std::unique_ptr<GangDoor> open_gang_door(const std::string& host, int rank, Duration timeout);

}  // namespace troupe::train::internal
