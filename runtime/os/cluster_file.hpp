/// The file that names a running cluster. Programs and the command line find the cluster by it. It
/// holds no secret, but a process that can read it can join, so only its owner has access.
///
///     write_cluster_file(path, file);                       // mode 0600, complete or not at all
///     Result<ClusterFile> f = read_cluster_file(path);      // refuses files of others
///     knock(f->socket_name);
#pragma once

#include "troupe/runtime/base/ids.hpp"
#include "troupe/runtime/base/result.hpp"

#include <sys/types.h>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace troupe::os {

struct ClusterFile {
  ClusterId cluster;
  std::string version;         ///< of the troupe that started the cluster
  std::uint32_t protocol = 0;  ///< the protocol of its agents
  NodeId node;                 ///< a node on this host
  std::string node_name;
  std::string socket_name;     ///< of that node's local door
  std::string control_door;    ///< on the network
  std::uint32_t nodes = 0;     ///< number of nodes that the launcher started here
  pid_t launcher = 0;          ///< the process whose end ends the cluster's part on this host
  std::uint64_t launched = 0;  ///< the launcher's start_of(), since a later process may get its pid
  std::vector<std::string> other_doors{};  ///< local doors of the launcher's other nodes
};

/// Returns TROUPE_ADDRESS, by which a program finds a running cluster: the path of its file, or a
/// join token. Empty: none.
std::string address_of_environment();
/// Sets TROUPE_ADDRESS for the program that replaces this one by exec. Not while another thread
/// reads the environment.
void set_address_of_environment(const std::string& address);

/// Returns $XDG_RUNTIME_DIR/troupe, or /tmp/troupe-<uid>.
std::string cluster_folder();
/// Makes that folder with mode 0700 if it is missing. Errors: InvalidArgument when it is another
/// user's, a link, or open to others; OutOfDisk when it cannot be made.
Result<std::string> make_cluster_folder();
/// Returns the default path of a cluster's file. `more` distinguishes several launchers of one
/// cluster.
std::string default_cluster_file(ClusterId cluster, const std::string& more = "");

/// Replaces the whole file atomically. Errors: OutOfDisk, with the file and the reason.
Result<void> write_cluster_file(const std::string& path, const ClusterFile& file);
/// Reads a cluster file. Errors, each with the file, the reason and a remedy: Unavailable (there is
/// none); InvalidArgument (another user's, others may read or write it, a link, malformed, another
/// protocol).
Result<ClusterFile> read_cluster_file(const std::string& path);

/// Returns when the process started, in clock ticks since boot; 0 when there is no such process.
std::uint64_t start_of(pid_t pid);
/// Returns whether the file's launcher still runs.
bool is_launched(const ClusterFile& file);

struct FoundCluster {
  std::string path;
  ClusterFile file;
};
/// Returns the clusters with a file in the default folder that run on this host, newest first.
/// Removes the files of clusters that have ended.
std::vector<FoundCluster> running_clusters();

}  // namespace troupe::os
