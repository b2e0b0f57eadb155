/// A cluster of real processes on this host: one control and N agents, started, watched and ended
/// as children of this process.
///
///     auto cluster = LocalCluster::start(options).value();
///     knock(cluster->nodes()[0].socket_name);     // a driver's way in
///     cluster.reset();                            // everything ends
///
/// A thread of its own starts the children and lives as long as they do. The children die with it,
/// also when this process gets SIGKILL (parent-death signal, and the end of their socket). The
/// thread starts a dead control again with the same identity and door. It only reports a dead
/// agent, since a node that comes back is another node.
#pragma once

#include "troupe/runtime/os/launch.hpp"
#include "troupe/runtime/os/role.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace troupe::boot {

/// An event in the cluster that people should know of.
struct ClusterEvent {
  enum class Kind {
    control_restarted,
    control_lost,  ///< it died again and again, and is not started any more
    agent_died,
    agent_left,  ///< in good order: it was drained, or the cluster was ended at its head
  } kind = Kind::agent_died;
  NodeId node;       ///< of the agent
  std::string text;  ///< a sentence: which process, how it ended, what that means
};

/// The NodeOffer is that of each node. Without `memory` the nodes divide the usual share of the
/// machine's memory.
struct LocalClusterOptions : os::NodeOffer {
  std::uint32_t nodes = 1;     ///< 1 to kMaxAdmitted
  bool without_slots = false;  ///< the nodes run no work: a driver's door to a cluster it joins

  /// Control's folder. Empty: control keeps its store in a memfd of this process, on which it is
  /// also started again.
  std::string data_folder;
  /// Address at which each agent listens, on any free port. Empty: the loopback address, or with
  /// `join` the address by which this machine reaches control.
  std::string listen;
  std::string control_listen;  ///< address of control; empty: like `listen`. It may name a port.
  os::Program executable;      ///< of the children; empty: this process's own
  bool embedded = false;       ///< as in AgentConfig
  /// How many join tokens control honours, each for one node from elsewhere, while it lives; at
  /// most kMaxJoinKeys. With the default `listen` only nodes of this host can use them.
  std::uint32_t join_tokens = 0;
  /// A join token. With one, no control is started, and the one node joins the token's cluster.
  std::string join;
  /// STATE, where the nodes keep the lines of their workers (os/state_folder.hpp). Empty: workers
  /// write to the output of this process.
  std::string state_folder;
  Bytes log_bytes{};  ///< the most bytes of a node's lines; 0: log_bytes_of_node()
  /// Called on the watching thread; must not call the cluster and must not block.
  std::function<void(const ClusterEvent&)> on_event;

  Duration start_within = std::chrono::seconds(10);
  Duration stop_within = std::chrono::seconds(5);  ///< children that run longer get SIGKILL
  /// Starts a child; empty: spawn().
  std::function<Result<pid_t>(os::Role, Fd socket, const os::Program&)> starter;
};

/// A node of the cluster, for its launcher.
struct LocalNode {
  NodeId id;
  std::string name;         ///< "node-0", "node-1", …
  std::string socket_name;  ///< of the door for local processes
  std::string door;         ///< its address for other nodes
  pid_t pid = 0;
  bool alive = true;
};

class LocalCluster {
 public:
  /// Starts the cluster. Blocks until control and every agent answer Ready, at most start_within.
  /// Errors name the process and the reason: TimedOut, Unavailable (it ended, or cannot serve),
  /// OutOfMemory (processes, descriptors), InvalidArgument (options). After an error no process of
  /// the cluster is left.
  static Result<std::unique_ptr<LocalCluster>> start(LocalClusterOptions options);
  /// Ends all children and waits for their ends, at most stop_within and the time of a kill.
  ~LocalCluster();
  LocalCluster(const LocalCluster&) = delete;
  LocalCluster& operator=(const LocalCluster&) = delete;

  ClusterId id() const noexcept;
  /// Control's identity and door. They stay the same while the cluster lives.
  os::ControlEndpoint control() const;
  /// The present process of control; 0 while it is restarted, and when it was not started here.
  pid_t control_pid() const;
  /// As many tokens as were asked for, until they are wiped. They are secret.
  const std::vector<std::string>& join_tokens() const noexcept;
  /// Overwrites the tokens in this process's memory. They stay valid.
  void wipe_join_tokens() noexcept;
  /// As many nodes as were asked for, in order of their names.
  std::vector<LocalNode> nodes() const;

 private:
  class Supervisor;
  explicit LocalCluster(std::unique_ptr<Supervisor> supervisor);
  std::unique_ptr<Supervisor> supervisor_;
};

}  // namespace troupe::boot
