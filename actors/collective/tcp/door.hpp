/// Door: the listening TCP socket of one rank, and the source of its sealed links to other nodes.
///
///     Door door({.host = "10.0.0.2", .rank = 1});
///     tell_everyone(door.address());                       // like 10.0.0.2:43817
///     door.meet(addresses_of_all_ranks, std::move(key));   // once; `key` is new for each gang
///     std::unique_ptr<Link> link = door.link({.first = 0, .lane = 2}, /*peer=*/0);
///
/// A stranger who opens a connection learns nothing and costs a descriptor for 5 s at most.
#pragma once

#include "troupe/actors/collective/nodes/link.hpp"
#include "troupe/runtime/base/assert.hpp"
#include "troupe/runtime/base/secret.hpp"
#include "troupe/runtime/base/units.hpp"

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace troupe::collective {

struct DoorOptions {
  /// An IPv4 address of this node, by which other nodes reach it. Where no interface of the host
  /// has it (a forwarded address), the door listens on all interfaces.
  std::string host = "127.0.0.1";
  int rank = 0;  ///< of the world
  /// The timeout of the groups. A link that it has to open fails after three quarters of it, so
  /// that the error, which names ranks and address, comes before that of the group.
  Duration timeout = std::chrono::seconds(30);
  Bytes buffer = {0};  ///< of each socket and direction; 0: the system's choice
  /// After as many bytes both ends replace the key of a direction; equal on all ranks.
  Bytes per_key = {std::uint64_t{1} << 36};
};

/// All functions may be called from any thread; none blocks. The door has one thread.
class TROUPE_API Door final : public LinkSource {
 public:
  /// Listens on a free port. Throws InvalidArgument when `host` is no IPv4 address; Unavailable
  /// when the system gives no socket.
  explicit Door(const DoorOptions& options);
  /// Closes the door, and connections that no link has taken. Precondition: its links are gone.
  ~Door() override;

  /// Returns "host:port" for meet() of the other ranks.
  const std::string& address() const noexcept;
  /// Sets the doors of all ranks, in their order, and the gang's key. Connections that came before
  /// are judged now. Precondition: it was not called before. Throws InvalidArgument for an address
  /// that is not "IPv4:port", and when the own rank has none.
  void meet(const std::vector<std::string>& addresses, Secret<32> key);
  /// Returns a link in state `opening`. A link that is never opened by a lower rank stays so.
  /// Preconditions: meet(); `peer` is another rank; each name and peer at most once, since two
  /// streams must not share keys. Throws Unavailable when the system has no descriptor.
  std::unique_ptr<Link> link(const LinkName& name, int peer) override;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace troupe::collective
