/// The configuration that a launcher sends to the agents and the control process that it starts,
/// and their answer: one packet each way over the inherited socket.
///
///     launcher:  send_config(socket, config);
///                Result<Ready> r = receive_ready(socket, 10s, "the agent of node-0");
///     child:     Result<AgentConfig> c = receive_agent_config(socket, 10s);
///                send_ready(socket, Ready{.door = "tcp://127.0.0.1:40001"});
///
/// The socket stays open while both processes live. Its end tells each that the other is gone.
///
/// A packet is 32 secret bytes followed by JSON, at most 32 KiB together. The secret is therefore
/// in no argument list, environment, file or JSON value. Buffers that held it are wiped.
#pragma once

#include "troupe/runtime/base/fd.hpp"
#include "troupe/runtime/base/ids.hpp"
#include "troupe/runtime/base/result.hpp"
#include "troupe/runtime/base/units.hpp"
#include "troupe/runtime/net/keys.hpp"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace troupe::os {

/// The identity and address of control.
struct ControlEndpoint {
  NodeId node;
  net::PublicKey key;
  std::string door;  ///< like tcp://127.0.0.1:40001
};

/// The resources that a node offers.
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
  /// The node has no CPU, whatever `cpus` says. Drivers connect through it, and no task runs there.
  bool without_slots = false;
  net::CurveKeys keys;
  ControlEndpoint control;
  std::string listen;       ///< door for other nodes; port 0: any free one
  std::string socket_name;  ///< abstract unix socket to which drivers and observers connect
  /// Number of nodes that the launcher starts together. The agent is ready when it knows that many.
  std::uint32_t together = 1;
  bool beside_control = false;  ///< control runs on this host, started by the same launcher
  std::string log_folder;       ///< for what its workers write; empty: they have the agent's output
  Bytes log_bytes{};            ///< the most bytes of the files there
  /// Its workers are forked from its own executable (the driver's), not from a program that a
  /// driver ships.
  bool embedded = false;
};

/// A node that control admits.
struct Admitted {
  NodeId node;
  net::PublicKey key;
};

struct ControlConfig {
  ClusterId cluster;
  NodeId node;  ///< control's own, as a peer of agents
  net::CurveKeys keys;
  std::string data_folder;  ///< empty: control keeps its state in `store`
  /// A file in memory with control's state, which outlives control. It travels beside the packet,
  /// and the launcher keeps its own. Without both, the state ends with control's process.
  Fd store;
  std::string listen;              ///< port 0: any free one
  std::vector<Admitted> admitted;  ///< at most kMaxAdmitted
  /// Public halves of join tokens, each for one node; at most kMaxJoinKeys.
  std::vector<net::PublicKey> join_keys;
};

/// The child's only answer. With an error the child ends right after it.
struct Ready {
  std::string door;   ///< the address on which it listens, with the bound port
  std::string error;  ///< the reason why it cannot serve; empty: it serves
};

inline constexpr std::size_t kMaxAdmitted = 200;
inline constexpr std::size_t kMaxJoinKeys = 16;

/// Encodes an offer as one line, which spawn() passes to the agent of a private node; and decodes
/// it. Errors of both: InvalidArgument with the field, as below.
Result<std::string> offer_text(const NodeOffer& offer);
Result<NodeOffer> parse_offer(const std::string& text);

// Sockets are borrowed SOCK_SEQPACKET descriptors. Sending waits at most 1 s for room.
// Errors: InvalidArgument for a value that exceeds its bound (names and doors 256 bytes, folders
// 4096 bytes, 64 labels or resources) or does not fit a packet; Unavailable when the other side is
// gone.

[[nodiscard]] Result<void> send_config(int socket, const AgentConfig& config);
[[nodiscard]] Result<void> send_config(int socket, const ControlConfig& config);
[[nodiscard]] Result<void> send_ready(int socket, const Ready& ready);

// Receiving waits at most `limit`. Errors: TimedOut; Unavailable when the other side is gone;
// InvalidArgument, with the field, for anything that is not a whole packet of that kind.

Result<AgentConfig> receive_agent_config(int socket, Duration limit);
Result<ControlConfig> receive_control_config(int socket, Duration limit);
/// `who` is named in errors, like "the agent of node-0".
Result<Ready> receive_ready(int socket, Duration limit, const std::string& who);

/// Raises the soft limit of open files to the hard one.
void raise_file_limit() noexcept;
/// Returns how many files this process may have open.
std::uint64_t file_limit() noexcept;

}  // namespace troupe::os
