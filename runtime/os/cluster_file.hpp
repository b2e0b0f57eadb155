/// The file that names a running cluster: how programs and the command line find it. It holds no
/// secret, but who may read it is who may come in, so it is only its owner's.
///
///     write_cluster_file(path, file);                       // mode 0600, complete or not at all
///     Result<ClusterFile> f = read_cluster_file(path);      // refuses what is not ours alone
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
  std::string version;         ///< of the troupe that started it
  std::uint32_t protocol = 0;  ///< that its agents speak
  NodeId node;                 ///< one on this host
  std::string node_name;
  std::string socket_name;     ///< of that node's local door
  std::string control_door;    ///< on the network
  std::uint32_t nodes = 0;     ///< started here
  pid_t launcher = 0;          ///< whose end is the end of what runs on this host
  std::uint64_t launched = 0;  ///< its start, as /proc has it; tells it from a later process
};

/// TROUPE_ADDRESS, by which a program finds a cluster that runs: the path of its file, or a join
/// token. Empty: none.
std::string address_of_environment();
/// For the program that takes this process's place. Not while another thread reads the environment.
void set_address_of_environment(const std::string& address);

/// $XDG_RUNTIME_DIR/troupe, or /tmp/troupe-<uid>.
std::string cluster_folder();
/// Makes that folder with mode 0700 if it is missing. Errors: InvalidArgument when it is another
/// user's, a link, or open to others; OutOfDisk when it cannot be made.
Result<std::string> make_cluster_folder();
/// Where a cluster's file stands by default; `more` tells several launchers of one cluster apart.
std::string default_cluster_file(ClusterId cluster, const std::string& more = "");

/// Replaces the file whole. Errors: OutOfDisk, naming the file and why.
Result<void> write_cluster_file(const std::string& path, const ClusterFile& file);
/// Errors, each naming the file, what is wrong and what to do: Unavailable (there is none);
/// InvalidArgument (not ours, others may read or write it, a link, malformed, another protocol).
Result<ClusterFile> read_cluster_file(const std::string& path);

/// When the process started, in clock ticks since boot; 0 when there is none.
std::uint64_t start_of(pid_t pid);
/// Whether the launcher runs.
bool is_launched(const ClusterFile& file);

/// The clusters that run on this host by the files of the default folder, newest first; removes
/// files of ones that have ended.
struct FoundCluster {
  std::string path;
  ClusterFile file;
};
std::vector<FoundCluster> running_clusters();

}  // namespace troupe::os
