/// One function per verb of the command line, and what they share. Each throws Error, or Failure
/// where the code of the error does not decide the exit code; cli.cpp prints it.
///
///     Request request;  request.json = true;
///     return list(request, Table::nodes);
#pragma once

#include "troupe/runtime/cli/cli.hpp"
#include "troupe/runtime/cli/observer.hpp"

#include "troupe/runtime/base/result.hpp"
#include "troupe/runtime/os/cluster_file.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe::cli {

/// What all verbs that go to a running cluster know.
struct Request {
  std::string address;  ///< --address; empty: TROUPE_ADDRESS, else the newest cluster of this host
  bool json = false;
};

/// A cluster to be started.
struct UpRequest {
  std::uint32_t nodes = 1;
  double cpus = 0, gpus = 0;
  std::string memory;       ///< like 512MiB; empty: a share of the machine's
  std::string data_folder;  ///< empty: control keeps everything in memory
  std::string listen;       ///< address of this machine; empty: loopback
  std::uint32_t join_tokens = 0;
  /// A join token: one node for a cluster that runs elsewhere. "-": the token is a line of stdin.
  std::string join;
  std::vector<std::string> labels, resources;  ///< name=value
  std::string file;                            ///< empty: the default folder's
  bool json = false;
  /// Set by start(): the descriptor that gets the one JSON document, in place of stdout. The
  /// process is then a background one and its stderr a log.
  int tell = -1;
  std::string log;  ///< of a background process; removed when it ends well
};

/// An error and what the command ends with.
struct Failure {
  Exit exit = Exit::failed;
  Error error;
};

/// What is to be looked into.
struct DoctorRequest {
  std::string salvage;  ///< control's data folder
  std::string to;       ///< where what can be saved is written; empty: nowhere
  bool json = false;
};

/// A model of which is asked in what layouts it can be trained.
struct PlanRequest {
  std::string model = "gpt2";  ///< of train::models::gpt2_preset()
  /// In place of the model's; 0: as it has them.
  std::int64_t layers = 0, heads = 0, channels = 0, context = 0, vocabulary = 0;
  int ranks = 1;                  ///< at most
  std::int64_t batch = 8;         ///< samples of a step, over all ranks
  int micro = 1;                  ///< micro-batches of a rank
  int tp = 1, pp = 1;             ///< ranks that divide tensors, layers: at most
  std::string schedule = "1f1b";  ///< of the pipeline
  std::string compute = "f32";    ///< type of activations and weights
  std::string memory = "80GiB";   ///< of a rank
  bool json = false;
};

enum class Table { nodes, actors, jobs, names };

/// Starts the cluster and stays until a signal ends it (ok) or it is lost (failed).
Exit up(const UpRequest& request);
/// The same in the background: returns when the cluster serves.
Exit start(const UpRequest& request);
/// Ends the cluster of the address; `all`: every one on this host that is this user's.
Exit stop(const Request& request, bool all);
Exit status(const Request& request, bool verbose);
/// Says what of a damaged data folder can be saved, and saves it.
Exit doctor(const DoctorRequest& request);
Exit list(const Request& request, Table table);
/// What the memory of each node is used for, and what looks like a leak: objects that nobody has
/// used for `leak_after` seconds, held only by processes that were silent for as long.
Exit memory(const Request& request, double leak_after);
/// The objects of each node, the largest first; at most `limit`.
Exit list_objects(const Request& request, std::uint32_t limit, double leak_after);
/// Lets go of an object's name, so that it is freed with its last ref; failed: there is none.
Exit forget(const Request& request, const std::string& name);
/// Which layouts of a model fit into a memory; failed: none does.
Exit plan_training(const PlanRequest& request);
/// Becomes the program, with TROUPE_ADDRESS set; returns only by an Error.
Exit run_program(const Request& request, const std::vector<std::string>& command);

// --- shared

struct Target {
  std::string path;
  os::ClusterFile file;
};
/// The cluster that the request means. Throws Unavailable (there is none), or what reading its
/// file throws.
Target find_cluster(const Request& request);

/// A connection to the cluster of a request, whose errors name it and are thrown.
class Asked {
 public:
  explicit Asked(const Request& request);
  control::ListReply list(control::ListRequest::What what);
  wire::MemoryReport memory(NodeId node);
  std::optional<control::ObjectName> forget(const std::string& name);
  const std::string& node_name() const { return observer_.node_name(); }
  const Target target;

 private:
  Observer observer_;
};

/// What people see of a cluster that is up.
std::string up_text(const std::string& id, std::uint32_t nodes, const std::string& path,
                    const std::vector<std::string>& tokens);

/// "512MiB" in bytes. Throws InvalidArgument naming the flag.
std::uint64_t bytes_of(const std::string& flag, const std::string& text);
/// "name=value" parted. Throws InvalidArgument naming the flag.
std::pair<std::string, std::string> pair_of(const std::string& flag, const std::string& text);
/// 1536 → "1.5 KiB".
std::string size_text(std::uint64_t bytes);

/// 90 s → "1m 30s".
std::string age_text(std::uint64_t nanoseconds);

/// Why the object looks like a leak; empty: it does not. `after`: nanoseconds.
std::string suspicion(const wire::MemoryObject& object, std::uint64_t after);

/// Objects with names: a table of them.
std::string text_of_names(const std::vector<control::ObjectName>& objects,
                          const std::map<NodeId, std::string>& nodes);

/// The first is the head; columns are as wide as they must be. Control characters are shown as '?',
/// since names come from programs.
std::string table_text(const std::vector<std::vector<std::string>>& rows);

}  // namespace troupe::cli
