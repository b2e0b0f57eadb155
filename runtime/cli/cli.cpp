#include "troupe/runtime/cli/cli.hpp"

#include "troupe/runtime/base/json.hpp"
#include "troupe/runtime/base/standard_descriptors.hpp"
#include "troupe/runtime/base/version.hpp"
#include "troupe/runtime/cli/internal/print.hpp"
#include "troupe/runtime/cli/verbs.hpp"

#include <unistd.h>
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <functional>
#include <numeric>
#include <utility>

namespace troupe::cli {
namespace {

constexpr const char* kExitCodes =
    "Exit codes: 0 done; 1 the cluster ended by itself; 2 bad usage; 3 no cluster runs or "
    "answers;\n"
    "4 refused (the cluster's file is not yours alone, damaged, or of another protocol); 5 a\n"
    "cluster or program could not be started. 'run' ends as its program does.";

/// The command line with all verbs. Parsing fills in the requests and sets `verb`.
struct CommandLine {
  CLI::App app{"troupe: tasks and actors in C++ on many processes and machines"};
  Request request;
  UpRequest up_request;
  std::uint32_t limit = 100;
  double leak_after = 60;
  DoctorRequest doctor_request;
  PlanRequest plan_request;
  CheckpointRequest checkpoint_request;
  LogsRequest logs_request;
  EventsRequest events_request;
  ListRequest list_request;
  StudyRequest study_request;
  bool head = false, all = false, verbose = false;
  std::string name;            ///< of an object, node, process, actor or job; an id
  std::string kind;            ///< of rows
  std::string within = "10m";  ///< of a drain
  std::function<Exit()> verb;
  bool starts = false;  ///< the verb starts a cluster

  CommandLine();
  CLI::App* add(CLI::App& to, const char* name, const char* what, const char* example,
                std::function<Exit()> action);
  void add_target(CLI::App& verb);
  void add_cluster(CLI::App& verb);
  void add_up();
  void add_start();
  void add_others();
  void add_events(CLI::App& to);
  void add_lists();
  void add_leak_after(CLI::App& verb);
  CLI::App* add_rows(CLI::App& to, const char* kind, const char* what, const char* example);
  void add_doctor();
  void add_train();
  void add_checkpoint();
  void add_tune();
};

CLI::App* CommandLine::add(CLI::App& to, const char* name, const char* what, const char* example,
                           std::function<Exit()> action) {
  CLI::App* sub = to.add_subcommand(name, what);
  sub->footer(std::string("Example:\n  ") + example + "\n\n" + kExitCodes);
  if (action) sub->callback([this, action = std::move(action)] { verb = action; });
  return sub;
}

void CommandLine::add_target(CLI::App& sub) {
  sub.add_option("--address", request.address,
                 "file of the cluster; else TROUPE_ADDRESS, else the newest cluster of this host");
  sub.add_flag("--json", request.json, "one JSON document on stdout, nothing else there");
}

void CommandLine::add_cluster(CLI::App& sub) {
  sub.add_option("--nodes", up_request.nodes, "node processes, each with its own workers")
      ->check(CLI::Range(1u, 200u))
      ->capture_default_str();
  sub.add_option("--cpus", up_request.cpus,
                 "CPU slots of each node; else all that troupe may use here")
      ->check(CLI::Range(0.01, 1e6));
  sub.add_option("--gpus", up_request.gpus, "GPUs of each node")->check(CLI::Range(0.0, 1e6));
  sub.add_option("--memory", up_request.memory,
                 "object store of each node, like 512MiB; else the nodes share 30% of the memory");
  sub.add_option("--data-folder", up_request.data_folder,
                 "where control keeps actors, names and jobs; else in memory only");
  sub.add_option("--label", up_request.labels, "name=value, for placing; may be repeated");
  sub.add_option("--resource", up_request.resources,
                 "name=amount of something of your own; may be repeated");
  sub.add_option(
      "--listen", up_request.listen,
      "address or name of this machine for nodes of other hosts, like 10.0.0.1 (or "
      "10.0.0.1:6500, a port for control); else none can come, and a node that joins listens on "
      "the address by which it reaches the head");
  sub.add_option("--join-tokens", up_request.join_tokens,
                 "how many nodes from elsewhere may join; each needs a token")
      ->check(CLI::Range(0u, 16u));
  sub.add_option("--file", up_request.file, "where to put the cluster's file");
  sub.add_option("--state-folder", up_request.state_folder,
                 "where logs are kept, also after the cluster's end; else ~/.local/state/troupe");
  sub.add_option("--log-bytes", up_request.log_bytes)->group("");  // for tests
  sub.add_flag("--json", up_request.json, "one JSON document on stdout, nothing else there");
}

void CommandLine::add_up() {
  CLI::App* sub = add(app, "up", "start a cluster on this machine and stay until Ctrl-C ends it",
                      "troupe up --nodes 3 --cpus 2", [this] { return up(up_request); });
  add_cluster(*sub);
  sub->add_option("--tell", up_request.tell)->group("");  // for 'start'
  sub->add_option("--join", up_request.join)->group("");
  sub->add_option("--log", up_request.log)->group("");
  sub->add_option("--grace", up_request.grace)->group("");
  sub->callback([this] {
    starts = true;
    verb = [this] { return up(up_request); };
  });
}

void CommandLine::add_start() {
  CLI::App* sub = add(app, "start", "start a cluster in the background and return when it serves",
                      "troupe start --head --nodes 3", nullptr);
  auto* role = sub->add_option_group("role");
  role->add_flag("--head", head, "this machine is the cluster's first: control runs here");
  role->add_option("--address", up_request.join,
                   "the token that the head gave: one node here joins it; - reads it from stdin");
  role->require_option(1);
  add_cluster(*sub);
  sub->add_option("--grace", up_request.grace,
                  "SIGTERM drains the node that joins: it leaves when it is empty, after this time "
                  "anyway, like 60s");
  sub->callback([this] {
    starts = true;
    if (head && !up_request.grace.empty())
      throw CLI::ValidationError("--grace", "is for a node that joins with --address TOKEN");
    if (head && up_request.join_tokens == 0) up_request.join_tokens = 1;
    verb = [this] { return start(up_request); };
  });
}

void CommandLine::add_others() {
  CLI::App* sub = add(app, "stop", "end a cluster and all it runs", "troupe stop",
                      [this] { return stop(request, all); });
  add_target(*sub);
  sub->add_flag("--all", all, "every cluster of yours on this host");
  sub = add(app, "status", "nodes, and how many actors and jobs", "troupe status -v",
            [this] { return status(request, verbose); });
  add_target(*sub);
  sub->add_flag("-v,--verbose", verbose, "the actors and jobs too");
  sub = add(app, "run",
            "run a program as a job of a cluster: troupe run [--address FILE] PROGRAM [ARGUMENTS]",
            "troupe run build/bin/01_hello_task", nullptr);
  sub->add_option("--address", request.address,
                  "file of the cluster; else TROUPE_ADDRESS, else the newest cluster of this host");
  sub->prefix_command();
  sub->callback([this, sub] {
    const auto command = sub->remaining();
    if (command.empty()) throw CLI::RequiredError("PROGRAM");
    if (command.front().rfind('-', 0) == 0) throw CLI::ExtrasError(command);
    verb = [this, command] { return run_program(request, command); };
  });
  add_lists();
  CLI::App* forgets =
      add(app, "forget", "let go of an object's name: it is freed with its last ref",
          "troupe forget weights", [this] { return forget(request, name); });
  add_target(*forgets);
  forgets->add_option("NAME", name, "as in 'troupe list names'")->required();
  CLI::App* drains = add(
      app, "drain",
      "take a node out: it gets nothing new, and leaves when its tasks, actors and drivers have "
      "ended",
      "troupe drain node-2 --within 60s", [this] { return drain(request, name, within); });
  add_target(*drains);
  drains->add_option("NODE", name, "name or id as in 'troupe list nodes'")->required();
  drains->add_option("--within", within, "after this time it leaves anyway, like 60s or 5m")
      ->capture_default_str();
  CLI::App* job = add(app, "job", "about jobs", "troupe job stop train", nullptr);
  job->require_subcommand(1);
  CLI::App* stops =
      add(*job, "stop", "end a job: its waits are cancelled, and its driver is killed after 10 s",
          "troupe job stop train", [this] { return stop_job(request, name); });
  add_target(*stops);
  stops->add_option("JOB", name, "id or name as in 'troupe list jobs'; the newest of that name")
      ->required();
  CLI::App* logged =
      add(app, "logs", "what the tasks and actors of a job have written",
          "troupe logs mix --tail 50 --grep 'loss|error'", [this] { return logs(logs_request); });
  LogsRequest& r = logs_request;
  logged->add_option("JOB", r.job, "id or name as in 'troupe list jobs'; else the newest job");
  logged->add_option("--address", r.address,
                     "file of the cluster; else TROUPE_ADDRESS, else the newest of this host");
  logged->add_flag("-f,--follow", r.follow, "go on with lines that come; Ctrl-C ends it");
  logged->add_option("--tail", r.tail, "the last so many lines")->check(CLI::Range(1, 1 << 20));
  logged->add_option("--since", r.since, "lines since 14:00 or 14:00:30, or of the last 10m");
  logged->add_flag("--time", r.time, "the time before each line");
  logged->add_option("--grep", r.grep, "lines that match a POSIX extended expression");
  logged->add_option("--node", r.node, "of one node");
  logged->add_option("--pid", r.pid, "of one process")->check(CLI::Range(1, 1 << 30));
  logged->add_flag("--stderr", r.only_errors, "of standard error alone");
  logged->add_flag("--raw", r.raw, "control characters as they are");
  add_events(app);
  CLI::App* stacked = add(app, "stack", "where the threads of a process, an actor or a job are now",
                          "troupe stack node-0/8185", [this] { return stack(request, name); });
  stacked->add_option("--address", request.address,
                      "file of the cluster; else TROUPE_ADDRESS, else the newest of this host");
  stacked->add_option("PROCESS", name, "NODE/PID, or the id or name of an actor or a job")
      ->required();
  CLI::App* used =
      add(app, "memory", "what the memory of each node is used for, and what may leak",
          "troupe memory --leak-after 30", [this] { return memory(request, leak_after); });
  add_target(*used);
  add_leak_after(*used);
}

/// Adds the verb `events`, or the list of the same name.
void CommandLine::add_events(CLI::App& to) {
  EventsRequest& r = events_request;
  CLI::App* sub =
      add(to, "events", "what has happened: deaths, starts, ends, full memory and disks",
          "troupe events --since 14:00 --where 'severity = error'", [this] {
            request.json = events_request.json;  // an error is a document, too
            return events(events_request);
          });
  sub->add_option("--address", r.address,
                  "file of the cluster; else TROUPE_ADDRESS, else the newest cluster of this host");
  sub->add_flag("--json", r.json, "one JSON document on stdout; with --follow one a line");
  sub->add_flag("-f,--follow", r.follow, "go on with events that come; Ctrl-C ends it");
  sub->add_option("--since", r.since, "events since 14:00 or 14:00:30, or of the last 10m");
  sub->add_option("--where", r.where,
                  "like 'kind = worker_died and node = node-1'; a wrong field is "
                  "refused with the names of all");
  sub->add_option("--limit", r.limit, "the newest so many")
      ->check(CLI::Range(1U, kMostEvents))
      ->capture_default_str();
  sub->add_flag("-v,--verbose", r.verbose, "stacks and last lines of dead workers, too");
}

void CommandLine::add_leak_after(CLI::App& sub) {
  sub.add_option("--leak-after", leak_after,
                 "seconds without use after which an object that only silent processes hold is "
                 "suspect")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
}

/// Adds a list whose rows can be chosen.
CLI::App* CommandLine::add_rows(CLI::App& to, const char* list, const char* what,
                                const char* example) {
  CLI::App* sub = add(to, list, what, example, nullptr);
  add_target(*sub);
  observe::Question& q = list_request.question;
  sub->add_option("--where", q.where,
                  "rows to show, like 'state = running and since > 10s'; a wrong field is refused "
                  "with the names of all");
  sub->add_option("--sort", q.sort, "FIELD, FIELD:asc or FIELD:desc");
  sub->add_option("--after", q.after, "go on behind an earlier page");
  sub->add_option("--limit", limit, "how many at most")
      ->check(CLI::Range(1U, observe::kMaxRows))
      ->capture_default_str();
  sub->callback([=, this] {
    list_request.question.kind = observe::parse_row_kind(list).value();
    list_request.question.limit = limit;
    list_request.address = request.address;
    list_request.json = request.json;
    list_request.leak_after = leak_after;
    verb = [this] { return list_rows(list_request); };
  });
  return sub;
}

void CommandLine::add_lists() {
  CLI::App* sub = add(app, "list", "what is in a cluster",
                      "troupe list tasks --where 'state = running and since > 10s'", nullptr);
  sub->require_subcommand(1);
  add_rows(*sub, "tasks", "tasks that have not ended, and why they wait",
           "troupe list tasks --where 'state = running' --sort since --limit 20");
  add_rows(*sub, "functions", "how many tasks of each function wait and run",
           "troupe list functions --sort waiting");
  add_rows(*sub, "processes", "drivers, workers and actors, their memory and CPU time",
           "troupe list processes --sort anonymous");
  add_rows(*sub, "nodes", "processes that stand for machines", "troupe list nodes");
  add_rows(*sub, "actors", "actors, dead ones for a while too",
           "troupe list actors --where 'state != alive'");
  add_rows(*sub, "jobs", "drivers and what became of them", "troupe list jobs --json");
  add_target(*add(*sub, "names", "objects that stay when their program has ended",
                  "troupe list names", [this] { return list_names(request); }));
  CLI::App* objects = add_rows(*sub, "objects", "what is kept, the largest first",
                               "troupe list objects --limit 20");
  add_leak_after(*objects);
  add_events(*sub);
  CLI::App* got = add(app, "get", "all that is known about one row of a list",
                      "troupe get actor 3f2a", [this] { return get(request, kind, name); });
  add_target(*got);
  got->add_option("KIND", kind, "task, process, node, actor, job, object or event")->required();
  got->add_option("ID", name, "as a list prints it, or its only beginning or end")->required();
  CLI::App* topped =
      add(app, "top", "one screen of nodes, tasks and failures, once a second; q ends",
          "troupe top", [this] { return top(request); });
  topped->add_option("--address", request.address,
                     "file of the cluster; else TROUPE_ADDRESS, else the newest of this host");
  CLI::App* explained =
      add(app, "explain", "why something waits; without an ID, what waits in the cluster",
          "troupe explain 3f2a", [this] { return explain(request, name); });
  add_target(*explained);
  explained->add_option("ID", name, "of a task, actor, object or process");
}

void CommandLine::add_doctor() {
  CLI::App* sub =
      add(app, "doctor", "what can be saved of a data folder on which control refuses to start",
          "troupe doctor --salvage /var/lib/troupe --to /var/lib/troupe-saved",
          [this] { return doctor(doctor_request); });
  sub->add_option("--salvage", doctor_request.salvage, "the data folder; it is only read")
      ->required();
  sub->add_option("--to", doctor_request.to,
                  "a new folder for what can be saved; without it nothing is written");
  sub->add_flag("--json", doctor_request.json, "one JSON document on stdout");
}

void CommandLine::add_checkpoint() {
  CLI::App* checkpoint = add(app, "checkpoint", "about checkpoints in a folder",
                             "troupe checkpoint inspect /runs/gpt", nullptr);
  checkpoint->require_subcommand(1);
  CheckpointRequest& r = checkpoint_request;
  CLI::App* inspect =
      add(*checkpoint, "inspect", "step, tensors, bytes, layout, and whether it is complete",
          "troupe checkpoint inspect /runs/gpt/step-00000100",
          [this] { return inspect_checkpoint(checkpoint_request); });
  inspect->add_option("path", r.path, "a run's folder, a checkpoint's, or a file")->required();
  inspect->add_flag("--json", r.json, "one JSON document on stdout, nothing else there");
  CLI::App* consolidate =
      add(*checkpoint, "consolidate", "write the weights as one safetensors file",
          "troupe checkpoint consolidate /runs/gpt --to gpt.safetensors",
          [this] { return consolidate_checkpoint(checkpoint_request); });
  consolidate
      ->add_option("path", r.path,
                   "a checkpoint's folder, or a run's: then the newest complete one")
      ->required();
  consolidate->add_option("--to", r.to, "the file; replaced if it is there")->required();
  consolidate->add_flag("--all", r.all, "the optimizer's moments too");
}

void CommandLine::add_tune() {
  CLI::App* tune = add(app, "tune", "about studies", "troupe tune list studies", nullptr);
  tune->require_subcommand(1);
  StudyRequest& r = study_request;
  CLI::App* list = add(*tune, "list", "the studies in a folder: their state, trials and best",
                       "troupe tune list studies", [this] { return list_studies(study_request); });
  list->add_option("folder", r.folder, "a folder that holds studies, or a study's")->required();
  CLI::App* show =
      add(*tune, "show", "a study and its trials", "troupe tune show studies/a --follow",
          [this] { return show_study(study_request); });
  show->add_flag("-f,--follow", r.follow, "go on with its events; with --json one a line");
  CLI::App* trials = add(
      *tune, "trials", "the trials that a filter picks",
      "troupe tune trials studies/a --where 'lr < 1e-3 and score > 0.9' --sort score --limit 20",
      [this] { return list_trials(study_request); });
  trials->add_option("--where", r.where, "like 'state = failed', of columns, parameters, metrics");
  trials->add_option("--sort", r.sort, "a field, also FIELD:asc or FIELD:desc; score: best first");
  trials->add_option("--limit", r.limit, "how many at most")
      ->check(CLI::Range(1u, 1u << 30))
      ->capture_default_str();
  CLI::App* logs =
      add(*tune, "logs", "the lines that a trial has written", "troupe tune logs studies/a 17",
          [this] { return trial_logs(study_request); });
  CLI::App* adds = add(*tune, "add", "try a point in a study that runs",
                       "troupe tune add studies/a lr=1e-3 optimizer=adam",
                       [this] { return add_point(study_request); });
  CLI::App* stops =
      add(*tune, "stop", "end a trial of a study that runs", "troupe tune stop studies/a 17",
          [this] { return stop_trial(study_request); });
  CLI::App* pauses =
      add(*tune, "pause", "hold a study that runs, or one trial of it",
          "troupe tune pause studies/a 17", [this] { return pause_study(study_request, true); });
  CLI::App* resumes =
      add(*tune, "resume", "let a paused study or trial go on", "troupe tune resume studies/a",
          [this] { return pause_study(study_request, false); });
  CLI::App* sets = add(*tune, "set", "change options of a study that runs",
                       "troupe tune set studies/a trials=500 time_limit=2h",
                       [this] { return set_options(study_request); });
  for (CLI::App* verb : {show, trials, logs, adds, stops, pauses, resumes, sets})
    verb->add_option("folder", r.folder, "the study's")->required();
  for (CLI::App* verb : {logs, stops})
    verb->add_option("trial", r.trial, "its number")->required()->check(CLI::Range(0, 1 << 30));
  for (CLI::App* verb : {pauses, resumes})
    verb->add_option("trial", r.trial, "its number; none: the whole study")
        ->check(CLI::Range(0, 1 << 30));
  adds->add_option("values", r.values, "name=value of each parameter")->required();
  sets->add_option("values", r.values,
                   "option=value: trials, concurrent, max_failures, fail_fast, max_steps, target, "
                   "time_limit, stop_grace, save_every, save_at_end")
      ->required();
  CLI::App* doctor = add(*tune, "doctor", "what can be saved of a study that does not open",
                         "troupe tune doctor studies/a --to saved.jsonl",
                         [this] { return doctor_study(study_request); });
  doctor->add_option("folder", r.folder, "the study's; it is only read")->required();
  doctor->add_option("--to", r.to, "a new file for what can be saved; without it none is written");
  for (CLI::App* verb : {list, show, trials, logs, adds, stops, pauses, resumes, sets, doctor})
    verb->add_flag("--json", r.json, "one JSON document on stdout, nothing else there");
}

void CommandLine::add_train() {
  CLI::App* train = add(app, "train", "about training", "troupe train plan --model gpt2", nullptr);
  train->require_subcommand(1);
  CLI::App* sub =
      add(*train, "plan", "bytes of each rank and traffic of a step, for the layouts that fit",
          "troupe train plan --model gpt2-xl --ranks 8 --memory 80GiB --batch 64",
          [this] { return plan_training(plan_request); });
  PlanRequest& r = plan_request;
  const auto size = CLI::Range(std::int64_t{1}, std::int64_t{1} << 20);
  sub->add_option("--model", r.model, "gpt2, gpt2-medium, gpt2-large, gpt2-xl, char, char-small")
      ->capture_default_str();
  sub->add_option("--ranks", r.ranks, "how many ranks there are at most")
      ->check(CLI::Range(1, 1 << 14))
      ->capture_default_str();
  sub->add_option("--memory", r.memory, "of each rank, like 80GiB")->capture_default_str();
  sub->add_option("--batch", r.batch, "samples of a step, over all ranks")
      ->check(size)
      ->capture_default_str();
  sub->add_option("--micro", r.micro, "micro-batches of a rank")
      ->check(CLI::Range(1, 1 << 12))
      ->capture_default_str();
  sub->add_option("--tp", r.tp, "ranks that divide tensors, at most")
      ->check(CLI::Range(1, 1 << 10))
      ->capture_default_str();
  sub->add_option("--pp", r.pp, "ranks that divide layers, at most")
      ->check(CLI::Range(1, 1 << 10))
      ->capture_default_str();
  sub->add_option("--schedule", r.schedule, "gpipe, 1f1b, interleaved[:V] or file:PATH")
      ->capture_default_str();
  sub->add_option("--compute", r.compute, "f32, bf16 or f16: of activations and weights")
      ->capture_default_str();
  sub->add_option("--layers", r.layers, "in place of the model's")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 12));
  sub->add_option("--heads", r.heads, "in place of the model's")->check(size);
  sub->add_option("--channels", r.channels, "in place of the model's")->check(size);
  sub->add_option("--context", r.context, "in place of the model's")->check(size);
  sub->add_option("--vocabulary", r.vocabulary, "in place of the model's")->check(size);
  sub->add_flag("--json", r.json, "one JSON document on stdout");
}

CommandLine::CommandLine() {
  app.name("troupe");
  app.require_subcommand(1);
  app.footer(std::string("Example:\n  troupe up --nodes 3 &\n  troupe run ./program\n\n") +
             kExitCodes);
  app.set_version_flag("--version", std::string("troupe ") + TROUPE_VERSION_TEXT);
  add_up();
  add_start();
  add_others();
  add_doctor();
  add_train();
  add_checkpoint();
  add_tune();
}

Exit exit_of(const Error& error, bool starts) {
  if (starts) return error.code() == Code::invalid_argument ? Exit::usage : Exit::not_started;
  switch (error.code()) {
    case Code::unavailable:
    case Code::timed_out: return Exit::unreachable;
    case Code::invalid_argument: return Exit::refused;
    default: return Exit::failed;
  }
}

/// Returns how many letters must be inserted, removed or changed to get from one word to the other
/// (Wagner and Fischer 1974).
std::size_t edits(const std::string& from, const std::string& to) {
  std::vector<std::size_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (std::size_t i = 0; i < from.size(); ++i) {
    std::size_t corner = std::exchange(row[0], i + 1);
    for (std::size_t k = 0; k < to.size(); ++k) {
      const std::size_t changed = corner + (from[i] == to[k] ? 0 : 1);
      corner = row[k + 1];
      row[k + 1] = std::min({changed, row[k] + 1, corner + 1});
    }
  }
  return row.back();
}

/// Verbs that end or forget something. A wrong word is never taken for one of them.
bool is_destructive(const std::string& verb) {
  return verb == "stop" || verb == "forget";
}

/// Returns the verb of which the word is a misspelling; empty: there is none, or it may be several.
/// One letter in three may be wrong, so short words match only themselves with one letter changed.
std::string meant_by(const std::string& word, const std::vector<const CLI::App*>& verbs) {
  std::string nearest;
  std::size_t least = std::min<std::size_t>(2, (word.size() + 1) / 3) + 1;
  for (const CLI::App* verb : verbs) {
    const std::size_t wrong = edits(word, verb->get_name());
    if (wrong > least || (wrong == least && nearest.empty())) continue;
    nearest = wrong < least ? verb->get_name() : "";
    least = wrong;
  }
  return is_destructive(nearest) ? "" : nearest;
}

/// Returns what is wrong with a command line, and where its help is.
std::string problem_of(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* at = &app;  // the innermost verb that was understood
  std::string name = "troupe";
  while (!at->get_subcommands().empty()) {
    at = at->get_subcommands().front();
    name += " " + at->get_name();
  }
  const auto verbs =
      at->get_subcommands([](const CLI::App* verb) { return !verb->get_name().empty(); });
  const auto rest = app.remaining(true);
  if (verbs.empty()) {
    std::string why = error.what();
    if (!rest.empty()) why = "'" + rest.front() + "' is not known here";
    return name + ": " + why + "\nsee '" + name + " --help'";
  }
  std::string known;
  for (const CLI::App* verb : verbs) known += (known.empty() ? "" : ", ") + verb->get_name();
  const std::string near = rest.empty() ? "" : meant_by(rest.front(), verbs);
  const std::string what =
      rest.empty() ? "a word is missing" : "'" + rest.front() + "' is not known";
  const std::string meant = near.empty() ? "" : "; was '" + near + "' meant?";
  return name + ": " + what + meant + "\nknown are " + known + "; see '" + name + " --help'";
}

Json error_document(const Error& error) {
  Json document{{"error", {{"code", name_of(error.code())}, {"message", error.message()}}}};
  return document;
}

/// Prints the problem on stderr, and if the line has --json also as a document on stdout.
int refuse(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv) {
  std::string text = problem_of(app, error);
  std::fprintf(stderr, "%s\n", text.c_str());
  if (std::find(argv, argv + argc, std::string_view("--json")) != argv + argc) {
    for (std::size_t at = 0; (at = text.find('\n', at)) != std::string::npos;)
      text.replace(at, 1, "; ");
    const Error usage(Code::invalid_argument, text);
    std::printf("%s\n", error_document(usage).dump(2).c_str());
  }
  return static_cast<int>(Exit::usage);
}

/// Prints the error on stderr, and with --json also the document on stdout.
int report(const CommandLine& line, Exit exit, const Error& error) {
  std::fprintf(stderr, "troupe: %s\n", escaped_lines(error.message()).c_str());
  const int tell = line.up_request.tell;
  if (line.request.json || line.up_request.json || line.doctor_request.json ||
      line.plan_request.json || line.study_request.json || tell >= 0) {
    const bool is_line = tell >= 0 || line.events_request.follow || line.study_request.follow;
    const std::string text = error_document(error).dump(is_line ? -1 : 2) + "\n";
    (void)!write(tell >= 0 ? tell : STDOUT_FILENO, text.data(), text.size());
  }
  return static_cast<int>(exit);
}

}  // namespace

int run(int argc, char** argv) {
  fill_standard_descriptors();
  CommandLine line;
  try {
    line.app.parse(argc, argv);
  } catch (const CLI::Success& asked) {  // --help, --version
    return line.app.exit(asked);
  } catch (const CLI::ParseError& error) {
    return refuse(line.app, error, argc, argv);
  }
  try {
    return static_cast<int>(line.verb());
  } catch (const Failure& failure) {
    return report(line, failure.exit, failure.error);
  } catch (const Error& error) {
    return report(line, exit_of(error, line.starts), error);
  } catch (const std::exception& other) {  // no memory, no thread
    return report(line, Exit::failed,
                  Error(Code::internal, std::string("the command broke off: ") + other.what()));
  }
}

}  // namespace troupe::cli
