/// What a launcher tells the agents and the control process that it starts, and what they answer:
/// one packet each way over the inherited socket.
///
///     launcher:  send_config(socket, config);  Result<Ready> r = receive_ready(socket, 10s, "…");
///     child:     Result<AgentConfig> c = receive_agent_config(socket, 10s);
///                send_ready(socket, Ready{.door = "tcp://127.0.0.1:40001"});
///
/// The socket stays open for as long as both live: its end tells each that the other is gone.
///
/// A packet is 32 secret bytes followed by JSON, at most 32 KiB together. So the secret stands in
/// no argument list, environment, file or JSON value; the buffers that held it are wiped.
#pragma once

#include "troupe/runtime/base/ids.hpp"
#include "troupe/runtime/base/result.hpp"
#include "troupe/runtime/base/units.hpp"
#include "troupe/runtime/net/keys.hpp"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace troupe::os {

/// Who control is and where it can be reached.
struct ControlEndpoint {
  NodeId node;
  net::PublicKey key;
  std::string door;  ///< like tcp://127.0.0.1:40001
};

/// What a node has to give.
struct NodeOffer {
  double cpus = 0;  ///< 0: as many as the process may use
  double gpus = 0;
  Bytes memory{};  ///< of the object store; 0: a share of the machine's
  std::vector<std::pair<std::string, std::string>> labels;  ///< sorted by name
  std::vector<std::pair<std::string, double>> resources;    ///< custom ones, sorted by name
};

/// One node of a cluster, as its launcher wants it.
struct AgentConfig : NodeOffer {
  ClusterId cluster;
  NodeId node;
  std::string name;  ///< for people, like "node-0"
  bool without_slots =
      false;  ///< no CPU whatever cpus says: a door for drivers, nothing runs there
  net::CurveKeys keys;
  ControlEndpoint control;
  std::string listen;       ///< door for other nodes; port 0: any free one
  std::string socket_name;  ///< abstract unix socket where drivers and observers come in
  /// Nodes that the launcher starts together: the agent is ready when it knows so many.
  std::uint32_t together = 1;
  bool beside_control = false;  ///< control runs on this host, started by the same launcher
  /// Its workers come from its own executable (the driver's), not from what a driver ships.
  bool embedded = false;
};

/// A node that control lets in.
struct Admitted {
  NodeId node;
  net::PublicKey key;
};

struct ControlConfig {
  ClusterId cluster;
  NodeId node;  ///< control's own, as a peer of agents
  net::CurveKeys keys;
  std::string data_folder;  ///< empty: everything is kept in memory and is lost with the process
  std::string listen;       ///< port 0: any free one
  std::vector<Admitted> admitted;  ///< at most kMaxAdmitted
  /// Public halves of join tokens, each worth one node; at most kMaxJoinKeys.
  std::vector<net::PublicKey> join_keys;
};

/// The child's only answer. With an error it ends by itself right after.
struct Ready {
  std::string door;   ///< where it listens, with the real port
  std::string error;  ///< why it cannot serve; empty: it serves
};

inline constexpr std::size_t kMaxAdmitted = 200;
inline constexpr std::size_t kMaxJoinKeys = 16;

/// One line that spawn() takes to the agent of a private node. Errors, of both: InvalidArgument,
/// naming the field, as below.
Result<std::string> offer_text(const NodeOffer& offer);
Result<NodeOffer> parse_offer(const std::string& text);

// Sockets are borrowed SOCK_SEQPACKET descriptors. Sending waits at most 1 s for room.
// Errors: InvalidArgument for what exceeds a bound (names of 256 bytes, doors of 256, folders of
// 4096, 64 labels or resources) or does not fit a packet; Unavailable when the other side is gone.

[[nodiscard]] Result<void> send_config(int socket, const AgentConfig& config);
[[nodiscard]] Result<void> send_config(int socket, const ControlConfig& config);
[[nodiscard]] Result<void> send_ready(int socket, const Ready& ready);

// Receiving waits at most `limit`. Errors: TimedOut; Unavailable when the other side is gone;
// InvalidArgument, naming the field, for anything that is not a whole packet of the kind.

Result<AgentConfig> receive_agent_config(int socket, Duration limit);
Result<ControlConfig> receive_control_config(int socket, Duration limit);
/// `who` is named in errors, like "the agent of node-0".
Result<Ready> receive_ready(int socket, Duration limit, const std::string& who);

/// Raises the soft limit of open files to the hard one.
void raise_file_limit() noexcept;
/// How many files this process may have open.
std::uint64_t file_limit() noexcept;

}  // namespace troupe::os
