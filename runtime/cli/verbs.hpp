/// One function for each verb of the command line, and what they share. A verb throws Error, or
/// Failure where the error's code does not decide the exit code. cli.cpp prints it.
///
///     Request request;  request.json = true;
///     return list(request, Table::nodes);
#pragma once

#include "troupe/runtime/cli/cli.hpp"
#include "troupe/runtime/cli/observer.hpp"

#include "troupe/runtime/base/json.hpp"
#include "troupe/runtime/base/result.hpp"
#include "troupe/runtime/observe/question.hpp"
#include "troupe/runtime/observe/table.hpp"
#include "troupe/runtime/os/cluster_file.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe::cli {

/// The options of every verb that asks a running cluster.
struct Request {
  std::string address;  ///< --address; empty: TROUPE_ADDRESS, else the newest cluster of this host
  bool json = false;
};

/// The options of `up` and `start`.
struct UpRequest {
  std::uint32_t nodes = 1;
  double cpus = 0, gpus = 0;
  std::string memory;       ///< like 512MiB; empty: a share of the machine's
  std::string data_folder;  ///< empty: control keeps everything in memory
  std::string listen;       ///< address of this machine; empty: loopback
  std::uint32_t join_tokens = 0;
  /// A join token: one node is started for a cluster that runs elsewhere. "-": the token is a line
  /// of stdin.
  std::string join;
  std::vector<std::string> labels, resources;  ///< name=value
  /// With `join`: SIGTERM drains the node, which leaves within this time. Empty: it ends at once.
  std::string grace;
  std::string file;          ///< path of the cluster file; empty: one in the default folder
  std::string state_folder;  ///< where logs are kept; empty: the default one
  std::string log_bytes;     ///< the most of a node's lines; empty: its share
  bool json = false;
  /// Set by start() for its background process: the descriptor that gets the JSON document in place
  /// of stdout; -1: none. stderr of that process is a log.
  int tell = -1;
  std::string log;  ///< path of that log; removed when the process ends well
};

/// The options of `logs`.
struct LogsRequest : Request {
  std::string job;    ///< id, the begin of one, or a name; empty: the newest job
  std::string grep;   ///< POSIX extended; empty: all lines
  std::string since;  ///< like 14:00, or 10m
  std::string node;   ///< name or id; empty: all
  std::int64_t pid = 0;
  std::int64_t tail = -1;  ///< the last so many lines; -1: all
  bool follow = false, time = false, only_errors = false, raw = false;
};

/// The options of `events`.
struct EventsRequest : Request {
  std::string since;  ///< like 14:00, or 10m
  std::string where;  ///< as in base/where.hpp; empty: all
  std::uint32_t limit = 1000;
  bool follow = false, verbose = false;
};
inline constexpr std::uint32_t kMostEvents = 10'000;

/// The options of `list` that choose rows.
struct ListRequest : Request {
  observe::Question question;
  double leak_after = 60;  ///< of objects: seconds
};

/// An error with the exit code of the command.
struct Failure {
  Exit exit = Exit::failed;
  Error error;
};

/// The options of `doctor`.
struct DoctorRequest {
  std::string salvage;  ///< control's data folder
  std::string to;       ///< folder for the records that can be saved; empty: none is written
  bool json = false;
};

/// The options of `train plan`: a model, and the layouts to try.
struct PlanRequest {
  std::string model = "gpt2";  ///< a name of train::models::gpt2_preset()
  /// These replace the model's own; 0: they do not.
  std::int64_t layers = 0, heads = 0, channels = 0, context = 0, vocabulary = 0;
  int ranks = 1;                  ///< the most to try
  std::int64_t batch = 8;         ///< samples of a step, over all ranks
  int micro = 1;                  ///< micro-batches of a rank
  int tp = 1, pp = 1;             ///< the most ranks that divide tensors, and layers
  std::string schedule = "1f1b";  ///< of the pipeline
  std::string compute = "f32";    ///< type of activations and weights
  std::string memory = "80GiB";   ///< of a rank
  bool json = false;
};

/// The options of `checkpoint inspect` and `checkpoint consolidate`.
struct CheckpointRequest {
  std::string path;  ///< a run's folder, a checkpoint's, or a file
  std::string to;    ///< the file to write
  bool all = false;  ///< moments too
  bool json = false;
};

/// The options of the verbs of `tune`.
struct StudyRequest {
  std::string folder;  ///< a study's; of `list`: one that holds studies
  std::string to;      ///< the file for what can be saved; empty: none is written
  bool follow = false;
  std::string where, sort;          ///< as in base/where.hpp; empty: all, by number
  std::uint32_t limit = 100;        ///< of rows
  int trial = -1;                   ///< its number
  std::vector<std::string> values;  ///< name=value
  bool json = false;
};

/// Starts the cluster and stays until a signal ends it (ok) or it is lost (failed).
Exit up(const UpRequest& request);
/// Starts the cluster in the background; returns when the cluster serves.
Exit start(const UpRequest& request);
/// Ends the cluster of the address; `all`: every cluster of this user on this host.
Exit stop(const Request& request, bool all);
Exit status(const Request& request, bool verbose);
/// Shows which records of a damaged data folder can be saved, and saves them.
Exit doctor(const DoctorRequest& request);
/// Shows the named objects.
Exit list_names(const Request& request);
/// Shows what the memory of each node is used for, and what looks like a leak: objects that no
/// process has used for `leak_after` seconds, held only by processes that were silent for as long.
Exit memory(const Request& request, double leak_after);
/// Shows rows of the cluster as a table, or as the one document of a list, within 2 s. Who does not
/// answer in time is listed as such. Throws Failure (usage) for a question that does not parse.
Exit list_rows(const ListRequest& request);
/// Draws the state of the cluster once a second until a key q; without a terminal once. Asks another
/// node of this host when the one that it asks has gone. Throws the errors of a cluster that does not
/// answer at first, and Failure (unreachable) when no node of this host is left.
Exit top(const Request& request);
/// Shows the row with this id, or the only one whose id begins or ends so. `kind`: like actors, or
/// actor.
Exit get(const Request& request, const std::string& kind, const std::string& id);
/// Says why the thing with this id waits; empty: what waits in the cluster, and why.
Exit explain(const Request& request, const std::string& id);
/// Removes an object's name, so that the object is freed with its last ref. Returns failed when
/// there is no such name.
Exit forget(const Request& request, const std::string& name);
/// Shows which layouts of a model fit into a memory. Returns failed when none does.
Exit plan_training(const PlanRequest& request);
/// Prints the lines of a job.
Exit logs(const LogsRequest& request);
/// Prints what has happened on the nodes; `follow`: and what happens, until Ctrl-C.
Exit events(const EventsRequest& request);
/// Prints the stacks of NODE/PID, of an actor's process, or of all processes of a job.
Exit stack(const Request& request, const std::string& what);
/// Drains the node that find_node() finds and waits until it has left, at most `within` and 10 s.
/// Throws TimedOut (failed) then.
Exit drain(const Request& request, const std::string& node, const std::string& within);
/// Stops a job and waits until it has ended. Throws Failure: usage (an unknown or ended job), failed
/// (it has not ended within 20 s). Tells on stderr when control is silent for 2 s.
Exit stop_job(const Request& request, const std::string& job);
/// Shows what a checkpoint or a file has, and reads all of it. Returns failed when nothing there is
/// complete.
Exit inspect_checkpoint(const CheckpointRequest& request);
/// Writes one file with the tensors of a checkpoint.
Exit consolidate_checkpoint(const CheckpointRequest& request);
/// Shows the studies in a folder: their state, trials and best.
Exit list_studies(const StudyRequest& request);
/// Shows a study and its trials; `follow`: then its events, until it is over or its process ends.
/// These verbs ask the process that runs the study. They throw Unavailable and TimedOut, with its
/// pid, when it does not answer.
Exit show_study(const StudyRequest& request);
/// Shows the trials that a filter picks.
Exit list_trials(const StudyRequest& request);
/// Prints the lines that a trial has written. Returns failed when there are none.
Exit trial_logs(const StudyRequest& request);
/// Tries a point, ends a trial, or changes options, in a study that runs.
Exit add_point(const StudyRequest& request);
Exit stop_trial(const StudyRequest& request);
/// Holds a study that runs, or one trial of it, or lets it go on.
Exit pause_study(const StudyRequest& request, bool pause);
Exit set_options(const StudyRequest& request);
/// Shows which records of a damaged study can be read, and saves them to a file.
Exit doctor_study(const StudyRequest& request);
/// Replaces this process by the program, with TROUPE_ADDRESS set. Returns only by an Error.
Exit run_program(const Request& request, const std::vector<std::string>& command);

// --- shared

/// The least digits of an id by which a verb that ends something takes it: fewer may be a mistake.
inline constexpr std::size_t kLeastDigits = 8;

struct Target {
  std::string path;
  os::ClusterFile file;
};
/// Returns the cluster that the request means. Throws Unavailable when there is none, and the
/// errors of reading its file.
Target find_cluster(const Request& request);

/// A connection to the cluster of a request. It throws errors, and they name the cluster.
class Asked {
 public:
  /// `limit`: for the node's first word.
  explicit Asked(const Request& request, Duration limit = std::chrono::seconds(5));
  control::ListReply list(control::ListRequest::What what);
  Result<control::ListReply> try_list(control::ListRequest::What what, Duration limit);
  wire::MemoryReport memory(NodeId node);
  Observer::Objects objects(const std::vector<NodeId>& nodes, const observe::Question& question,
                            Duration limit);
  Result<observe::Answer> try_rows(const observe::Question& question, Duration limit);
  /// Returns a page of the rows. A node that does not answer in time is one of its missing sources.
  observe::Answer rows(const observe::Question& question, const observe::Query& query,
                       Duration limit);
  void drain(NodeId node, Duration within);
  Result<wire::LogBatch> logs(NodeId node, const wire::LogQuestion& question);
  Result<std::string> stacks(NodeId node, const wire::StackQuestion& question);
  Result<void> stop_job(NodeId node, const wire::StopQuestion& question);
  std::optional<control::ObjectName> forget(const std::string& name);
  /// The node that is asked.
  NodeId node() const { return observer_.node(); }
  const std::string& node_name() const { return observer_.node_name(); }
  /// Returns whether that node has ended the connection, as one that leaves or dies does.
  bool is_lost() const noexcept { return observer_.is_lost(); }
  const Target target;

 private:
  Observer observer_;
};

/// Connects to a node that the cluster still has on this host: one of the target's file, else one of
/// another file of that cluster. Throws Unavailable when no such node has a door any more, and
/// TimedOut when one has a door and is silent. Waits at most about `limit`.
std::unique_ptr<Asked> ask_anew(const Target& target, Duration limit);

/// Returns the error with the name of the cluster that does not answer.
Error named(const Target& target, const Error& error);
/// Returns the job that the text names: the newest one of that name, else one by a part of its id.
/// An empty text: the newest job. Throws Failure (usage) when there is none.
const control::JobRecord& find_job(const control::ListReply& reply, const std::string& text);

/// Reads "14:00", "14:00:30" (the last such time) or "10m" (so long ago) of the flag --since as Unix
/// time in nanoseconds; empty: 0. Throws Failure (usage).
std::int64_t since_of(const std::string& text);
/// Returns the local time with date and milliseconds, and a space behind it.
std::string time_text(std::int64_t unix_ns);
/// Returns the living node that a person means by its name, its id, or the first eight digits of its
/// id or more. Throws Failure (usage): none or several fit; it lists those.
const control::ClusterRow& find_node(const control::ListReply& reply, const std::string& text);
/// Returns a node's name. One that is not among `names` is gone, and gets the begin of its id; no
/// node is "-". Empty `names`: the nodes are not known.
std::string node_text(const std::map<NodeId, std::string>& names, NodeId id);

/// Returns the text that people see when a cluster is up. Each join token follows, between two more
/// texts.
std::string up_text(const std::string& id, std::uint32_t nodes, const std::string& path);
inline constexpr const char* kTokenBefore = "  add one node to it     troupe start --address ";
inline constexpr const char* kTokenAfter =
    "\n                         (secret; valid once, for 24 hours)\n";

/// Throws Failure (usage) with InvalidArgument and the sentence.
[[noreturn]] void throw_usage(const std::string& why);
/// Returns a size like "512MiB" in bytes. Throws InvalidArgument naming the flag.
std::uint64_t bytes_of(const std::string& flag, const std::string& text);
/// Returns a time like "60s". Throws Failure (usage) naming the flag.
Duration duration_of(const std::string& flag, const std::string& text);
/// Splits "name=value". Throws InvalidArgument naming the flag.
std::pair<std::string, std::string> pair_of(const std::string& flag, const std::string& text);
using observe::age_text;
using observe::IdPart;
using observe::size_text;
using observe::table_text;
using observe::unique_part;

/// Returns who holds the object. `nodes`: names by id. `name`: one of the object's; may be empty.
std::string holders_text(const std::map<NodeId, std::string>& nodes, const std::string& name,
                         const wire::MemoryObject& object);
/// Returns why the object looks like a leak; empty: it does not. `after`: nanoseconds.
std::string suspicion(const wire::MemoryObject& object, std::uint64_t after);

/// Returns how many tasks wait for each reason, as lines for people, and as the rows of a document.
/// Missing tells of those that did not answer.
std::string waiting_text(const observe::Answer& reasons);
Json waiting_rows(const observe::Answer& reasons);

/// Returns a table of the named objects.
std::string text_of_names(const std::vector<control::ObjectName>& objects,
                          const std::map<NodeId, std::string>& nodes);

}  // namespace troupe::cli
