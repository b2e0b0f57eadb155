/// A cluster as an operator starts it: `troupe up` with a data folder, and nodes that join it by
/// token, each with a launcher of its own. All processes are descendants of this process.
///
///     Cluster cluster(setup);
///     cluster.start(3);
///     hit(cluster.nodes()[1].agent);
///     cluster.add_node();
#pragma once

#include "tests/chaos/page.hpp"
#include "tests/chaos/processes.hpp"

#include <string>
#include <vector>

namespace chaos {

struct Setup {
  std::string command;  ///< the `troupe` command
  std::string folder;   ///< holds all files of this run
  std::string shim;     ///< library to preload; empty: none
  std::string page;
  double cpus = 4;
  std::string memory = "1GiB";
};

struct Node {
  std::string id, name, file;
  int agent = 0, launcher = 0;
  bool first = false;  ///< drivers enter here, with the head's file
  bool stays = true;   ///< no fault struck it, so it must live
};

/// Returns the output of `troupe list WHAT --json`, or nothing when it fails.
std::string list(const std::string& command, const std::string& what, const std::string& file,
                 const std::string& log);

class Cluster {
 public:
  Cluster(Setup setup, std::string data_folder)
      : setup_(std::move(setup)), data_(std::move(data_folder)) {}
  ~Cluster();
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  /// Starts a head with two nodes, and further nodes that join. `nodes` is at least 3. Throws
  /// std::runtime_error.
  void start(int nodes);
  /// Returns false when no token is left.
  bool add_node();
  std::size_t tokens() const noexcept { return tokens_.size(); }
  std::vector<Node>& nodes() noexcept { return nodes_; }
  Node* of_agent(int pid);
  /// Removes dead nodes from nodes().
  void forget_dead();
  /// Returns whether control lists exactly these nodes and has heard each of them lately.
  bool is_whole() const;
  /// Returns the pid of the running control, or 0.
  int control() const;
  int launcher() const noexcept { return head_.pid; }
  const std::string& id() const noexcept { return id_; }
  const std::string& log() const noexcept { return log_; }
  /// Ends the cluster as an operator does, by SIGTERM to the launchers. Describes the processes
  /// that did not end well.
  std::string stop();

 private:
  Child up(std::vector<std::string> arguments);
  std::vector<std::pair<std::string, std::string>> variables() const;

  Setup setup_;
  std::string data_, id_, log_;
  Child head_;
  std::vector<Node> nodes_;
  std::vector<Child> others_;
  std::vector<std::string> tokens_;
  int made_ = 0;
};

}  // namespace chaos
