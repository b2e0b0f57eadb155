/// A cluster of real processes on this host: one control and N agents, started, watched and ended
/// as children of this process.
///
///     auto cluster = LocalCluster::start(options).value();
///     knock(cluster->nodes()[0].socket_name);     // a driver's way in
///     cluster.reset();                            // everything ends
///
/// A thread of its own starts the children and lives as long as they do: they die with it, also by
/// SIGKILL of this process (parent-death signal and the end of their socket). It starts a dead
/// control again with the same identity and door; a dead agent is told and stays dead, since a
/// node that comes back is another node.
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

/// Something that people should know.
struct ClusterEvent {
  enum class Kind {
    control_restarted,
    control_lost,  ///< it died again and again; nobody starts it any more
    agent_died,
  } kind = Kind::agent_died;
  NodeId node;       ///< of the agent
  std::string text;  ///< a sentence: who, how it ended, what that means
};

/// The offer is that of each node; without `memory` they divide the usual share of the machine's.
struct LocalClusterOptions : os::NodeOffer {
  std::uint32_t nodes = 1;     ///< 1 to kMaxAdmitted
  bool without_slots = false;  ///< they run nothing: a driver's door to a cluster that it joins

  /// Control's; empty: it keeps everything in memory of this process, and is started again on it.
  std::string data_folder;
  /// Of each agent, which takes any free port. Empty: the loopback address, and where `join` is
  /// given the address by which this machine reaches control.
  std::string listen;
  std::string control_listen;  ///< of control; empty: like `listen`. A port may be named here.
  os::Program executable;      ///< of the children; empty: this process's own
  bool embedded = false;       ///< as AgentConfig says
  /// How many join tokens control honours, each for one node from elsewhere, while it lives; at
  /// most kMaxJoinKeys. With the default `listen` only nodes of this host can use them.
  std::uint32_t join_tokens = 0;
  /// A join token: then no control is started, and the one node joins the token's cluster.
  std::string join;
  /// Called on the watching thread; must not call the cluster and must not block.
  std::function<void(const ClusterEvent&)> on_event;

  Duration start_within = std::chrono::seconds(10);
  Duration stop_within = std::chrono::seconds(5);  ///< then SIGKILL
  /// What starts a child; empty: spawn().
  std::function<Result<pid_t>(os::Role, Fd socket, const os::Program&)> starter;
};

/// A node as the launcher knows it.
struct LocalNode {
  NodeId id;
  std::string name;         ///< "node-0", "node-1", …
  std::string socket_name;  ///< of its local door
  std::string door;         ///< of its network
  pid_t pid = 0;
  bool alive = true;
};

class LocalCluster {
 public:
  /// Blocks until control and every agent say that they serve, at most start_within. Errors, each
  /// naming the process and why: TimedOut, Unavailable (it ended, or cannot serve), OutOfMemory
  /// (processes, descriptors), InvalidArgument (options). After an error nothing is left.
  static Result<std::unique_ptr<LocalCluster>> start(LocalClusterOptions options);
  /// Ends all of it and waits for their ends, at most stop_within and the time of a kill.
  ~LocalCluster();
  LocalCluster(const LocalCluster&) = delete;
  LocalCluster& operator=(const LocalCluster&) = delete;

  ClusterId id() const noexcept;
  /// Control's identity and door; the same for the cluster's life.
  os::ControlEndpoint control() const;
  /// Of control as it runs now; 0 between two lives, and where it was not started here.
  pid_t control_pid() const;
  /// As many as were asked for; secret.
  const std::vector<std::string>& join_tokens() const noexcept;
  /// As many as were asked for, in order of their names.
  std::vector<LocalNode> nodes() const;

 private:
  class Supervisor;
  explicit LocalCluster(std::unique_ptr<Supervisor> supervisor);
  std::unique_ptr<Supervisor> supervisor_;
};

}  // namespace troupe::boot
