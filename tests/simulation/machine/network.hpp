/// The network between simulated machines, without faults: the packets of Transports, bulk
/// connections, and what is known of ended processes. Machine 0 runs control, the others a node
/// each. Messages from one machine to another arrive in order.
///
///     Network& network = *new Network(baton, seed, 3);     // never destroyed, as the baton
///     const cluster::WireScope scope(network.wire(1));     // the Transport of node 1 opens here
#pragma once

#include "tests/simulation/cluster/wire.hpp"
#include "tests/simulation/machine/baton.hpp"
#include "troupe/runtime/net/bulk.hpp"

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace troupe::sim::machine {

struct Did;

/// A bulk connection. Each end sets its functions, and clears them when it is destroyed.
struct Stream {
  const Process* sender = nullptr;
  const Process* receiver = nullptr;
  bool over = false, moving = false;  ///< moving: a piece is under way
  std::function<void()> pump;         ///< sender: sends the next piece
  std::function<Result<void>(const net::BulkHeader&, BlobView)> take;  ///< receiver
  std::function<void(const Error&)> sender_ended, receiver_ended;
};

class Network {
 public:
  Network(Baton& baton, std::uint64_t seed, std::size_t nodes);
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;
  /// Of the schedule that runs; null when there is one machine.
  static Network* current() noexcept { return current_; }
  static void leave() noexcept { current_ = nullptr; }

  static NodeId id_of(std::size_t machine) { return {1, machine}; }
  cluster::Wire& wire(std::size_t machine);
  /// Whether the process that had this id has ended.
  bool has_ended(NodeId node) const { return ended_.at(node.low); }
  Duration delay() {
    return std::chrono::microseconds(20) +
           Duration(static_cast<Duration::rep>(random_.below(300'000)));
  }

  /// A connection of the calling process, which the caller connects.
  std::shared_ptr<Stream> open_stream();
  /// Ends a connection after a delay, for both ends.
  void end_stream(const std::shared_ptr<Stream>& stream, const std::string& why);

 private:
  class MachineWire;
  using Packet = cluster::Packet;
  void send(std::size_t from, Packet packet);
  void deliver(std::size_t to, Packet packet);
  void process_ended(const Process& process);
  Time arrival(std::size_t from, std::size_t to);

  inline static Network* current_ = nullptr;
  Baton& baton_;
  Random random_;
  std::vector<std::unique_ptr<MachineWire>> wires_;
  std::vector<bool> ended_;
  std::map<std::pair<std::size_t, std::size_t>, Time> last_;  ///< arrival, by route
  std::vector<std::weak_ptr<Stream>> streams_;
};

/// Starts control, the nodes, and the program's driver on node 1. Baton::run() plays them.
void start_nodes(Baton& baton, std::uint64_t seed, std::size_t nodes, Did& did);

}  // namespace troupe::sim::machine
