#include "troupe/runtime/session.hpp"

#include "troupe/objectstore/arena.hpp"
#include "troupe/runtime/base/environment.hpp"
#include "troupe/runtime/base/log.hpp"
#include "troupe/runtime/base/process_mark.hpp"
#include "troupe/runtime/base/size_text.hpp"
#include "troupe/runtime/base/standard_descriptors.hpp"
#include "troupe/runtime/base/words.hpp"
#include "troupe/runtime/boot/local_cluster.hpp"
#include "troupe/runtime/boot/take_role.hpp"
#include "troupe/runtime/client/engine.hpp"
#include "troupe/runtime/client/log_printer.hpp"
#include "troupe/runtime/client/session_engine.hpp"
#include "troupe/runtime/client/worker.hpp"
#include "troupe/runtime/net/keys.hpp"
#include "troupe/runtime/os/cluster_file.hpp"
#include "troupe/runtime/os/early_output.hpp"
#include "troupe/runtime/os/launch.hpp"
#include "troupe/runtime/os/local_listener.hpp"
#include "troupe/runtime/os/own_program.hpp"
#include "troupe/runtime/os/role.hpp"
#include "troupe/runtime/os/zygote.hpp"

#include <cxxabi.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <iterator>

namespace troupe {
namespace {

SessionOptions g_flags;  // its string views point into argv
bool g_entered = false;

[[noreturn]] void bad_flag(const std::string& flag, const std::string& why) {
  throw InvalidArgument(Code::invalid_argument, "flag " + flag + ": " + why);
}

double number_of(const std::string& flag, std::string_view text) {
  const auto value = parse_amount(text);
  if (!value || *value == 0)
    bad_flag(flag, "'" + std::string(text) + "' is not a number above 0 and up to 1000000");
  return *value;
}

std::pair<std::string_view, std::string_view> pair_of(const std::string& flag,
                                                      std::string_view text) {
  const auto pair = parse_pair(text);
  if (!pair) bad_flag(flag, "'" + std::string(text) + "' is not NAME=VALUE");
  return *pair;
}

Resource resource_of(const std::string& flag, std::string_view text) {
  const auto [name, amount] = pair_of(flag, text);
  return {name, number_of(flag, amount)};
}

Label label_of(const std::string& flag, std::string_view text) {
  const auto [key, value] = pair_of(flag, text);
  return {key, value};
}

Bytes bytes_of(const std::string& flag, std::string_view text) {
  const auto size = parse_size(text);
  if (!size || size->count == 0)
    bad_flag(flag, "'" + std::string(text) + "' is not a size like 512MiB or 2GiB");
  return *size;
}

unsigned nodes_of(const std::string& flag, std::string_view text) {
  unsigned value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ec != std::errc{} || parsed.ptr != text.data() + text.size() || value < 1 ||
      value > os::kMaxAdmitted)
    bad_flag(flag, "'" + std::string(text) + "' is not a number of nodes from 1 to " +
                       std::to_string(os::kMaxAdmitted));
  return value;
}

std::string address_of(const std::string& flag, std::string_view text) {
  if (text.empty()) bad_flag(flag, "is empty; give the file of a running cluster");
  return std::string(text);
}

struct Flag {
  std::string_view name;
  void (*set)(const std::string& flag, std::string_view value);
};
using Name = const std::string&;
using Value = std::string_view;
constexpr Flag kFlags[] = {
    {"--troupe-address", [](Name flag, Value v) { g_flags.address = address_of(flag, v); }},
    {"--troupe-cpus", [](Name flag, Value v) { g_flags.cpus = number_of(flag, v); }},
    {"--troupe-gpus", [](Name flag, Value v) { g_flags.gpus = number_of(flag, v); }},
    {"--troupe-label", [](Name flag, Value v) { g_flags.labels.add(label_of(flag, v)); }},
    {"--troupe-memory", [](Name flag, Value v) { g_flags.memory = bytes_of(flag, v); }},
    {"--troupe-nodes", [](Name flag, Value v) { g_flags.nodes = nodes_of(flag, v); }},
    {"--troupe-resource", [](Name flag, Value v) { g_flags.resources.add(resource_of(flag, v)); }},
};

std::string names_of_flags() {
  std::string names;
  for (const Flag& flag : kFlags) (names += names.empty() ? "" : ", ") += flag.name;
  return names;
}

/// Takes --troupe-x=v and --troupe-x v out of argv.
void take_flags(int& argc, char** argv) {
  int kept = argc > 0 ? 1 : 0;
  for (int i = 1; i < argc; ++i) {
    const std::string_view text = argv[i];
    if (text == "--") {  // the arguments after it belong to the program
      while (i < argc) argv[kept++] = argv[i++];
      break;
    }
    if (text.rfind("--troupe-", 0) != 0) {
      argv[kept++] = argv[i];
      continue;
    }
    const auto equals = text.find('=');
    const std::string flag(text.substr(0, equals));
    const auto known = std::find_if(std::begin(kFlags), std::end(kFlags),
                                    [&flag](const Flag& one) { return one.name == flag; });
    if (known == std::end(kFlags)) bad_flag(flag, "unknown; known are " + names_of_flags());
    if (equals != std::string_view::npos)
      known->set(flag, text.substr(equals + 1));
    else if (i + 1 < argc)
      known->set(flag, argv[++i]);
    else
      bad_flag(flag, "needs a value");
  }
  argc = kept;
  argv[argc] = nullptr;
}

}  // namespace

void enter(int& argc, char** argv) {
  boot::link_roles();
  os::Inherited& inherited = os::inherited();
  os::end_early_output();
  if (inherited.role == os::Role::zygote) {
    // If the program forked before this line (daemon()), the agent is not the parent. The agent
    // alone holds the other end of the socket, and its end ends a zygote in any case.
    const auto agent = static_cast<pid_t>(std::strtol(inherited.text.c_str(), nullptr, 10));
    if (getppid() == agent) os::die_with_parent(agent);
    os::Forked forked = os::run_zygote(std::move(inherited.socket));
    client::run_worker(std::move(forked.socket), forked.token, std::move(forked.page));
  }
  if (inherited.role == os::Role::worker) {
    char* end = nullptr;
    os::die_with_parent(static_cast<pid_t>(std::strtol(inherited.text.c_str(), &end, 10)));
    const std::uint64_t token = *end == ',' ? std::strtoull(end + 1, &end, 10) : 0;
    const long page = *end == ',' ? std::strtol(end + 1, nullptr, 10) : -1;
    client::run_worker(std::move(inherited.socket), token, Fd(static_cast<int>(page)));
  }
  take_flags(argc, argv);
  if (g_flags.nodes != 0 && !g_flags.address.empty())
    bad_flag("--troupe-nodes", "starts a cluster, --troupe-address joins one: give one of them");
  g_entered = true;
}

namespace {

/// Returns what each node of the session's own cluster offers.
os::NodeOffer offer_of(const SessionOptions& options) {
  os::NodeOffer offer;
  offer.cpus = options.cpus;
  offer.gpus = options.gpus;
  offer.memory = options.memory;
  for (const Label& label : options.labels) offer.labels.emplace_back(label.key, label.value);
  for (const Resource& resource : options.resources)
    offer.resources.emplace_back(resource.name, resource.amount);
  std::sort(offer.labels.begin(), offer.labels.end());
  std::sort(offer.resources.begin(), offer.resources.end());
  return offer;
}

/// Returns whether the options describe nodes that the session would start.
bool describes_nodes(const SessionOptions& options) {
  return options.cpus != 0 || options.memory.count != 0 || options.gpus != 0 ||
         options.resources.size() != 0 || options.labels.size() != 0;
}

}  // namespace

struct Session::State {
  const ProcessMark mark;
  pid_t agent = 0;  ///< the agent of a private node; 0: none
  Fd agent_pidfd;
  std::unique_ptr<boot::LocalCluster> cluster;  ///< what the session started otherwise, or null
  std::unique_ptr<client::ClientEngine> engine;
  std::unique_ptr<client::LogPrinter> printer;  ///< of a driver that joined a cluster
  client::SessionEngine* front = nullptr;       ///< the engine for Contexts; it outlives this
  const int throwing = std::uncaught_exceptions();

  void start_node(const SessionOptions& options);
  void start_cluster(const SessionOptions& options);
  void join(const std::string& address, const std::string& source);
  void join_by_token(std::string token, const std::string& source);
  void attach(Fd socket, wire::Hello hello);

  ~State() {
    // When an exception leaves the program's body and destroys the session, the job has failed.
    if (front != nullptr) front->refuse();
    if (engine) engine->finish(std::uncaught_exceptions() != throwing);
    printer.reset();
    if (front != nullptr) front->close();
    engine.reset();  // closes the socket: a private agent takes its node down and ends
    cluster.reset();
    end_agent();
    flush_log();  // the lines of a session come before its end
  }

 private:
  void end_agent() const {
    if (agent == 0) return;
    int status = 0;
    pollfd entry{agent_pidfd.get(), POLLIN, 0};
    if (!agent_pidfd || poll(&entry, 1, 5000) <= 0) ::kill(agent, SIGKILL);
    waitpid(agent, &status, 0);
  }
};

void Session::State::attach(Fd socket, wire::Hello hello) {
  const bool joins = !hello.program.empty();
  const auto mode = joins ? client::LogPrinter::mode_of(Environment()) : client::LogPrinter::Mode();
  client::ClientEngine::Start start;
  start.socket = std::move(socket);
  start.kind = wire::ProcessKind::driver;
  start.hello = std::move(hello);
  engine = std::make_unique<client::ClientEngine>(std::move(start));
  if (joins) {
    printer = std::make_unique<client::LogPrinter>(
        [this](const wire::NodeMessage& message) { engine->ask_agent(message); },
        engine->identity().job, mode);
    engine->print_logs(*printer);
  }
  front = &client::SessionEngine::open(*engine);
}

void Session::State::start_node(const SessionOptions& options) {
  if (options.memory.count != 0) objectstore::check_arena(options.memory, 1).value();
  auto ends = os::LocalSocket::pair().value();
  const std::string offer = os::offer_text(offer_of(options)).value();
  agent = os::spawn(os::Role::agent, std::move(ends.second), offer).value();
  agent_pidfd = make_fd(static_cast<int>(syscall(SYS_pidfd_open, agent, 0)));
  attach(std::move(ends.first), {});
}

void Session::State::start_cluster(const SessionOptions& options) {
  boot::LocalClusterOptions wanted;
  static_cast<os::NodeOffer&>(wanted) = offer_of(options);
  wanted.nodes = options.nodes;
  wanted.embedded = true;
  wanted.on_event = [](const boot::ClusterEvent& event) { log_line("%s", event.text.c_str()); };
  cluster = boot::LocalCluster::start(std::move(wanted)).value();
  auto visitor = os::knock(cluster->nodes().front().socket_name);
  attach(std::move(visitor.value().socket), {});
}

namespace {

/// Throws that the cluster cannot be joined. `source`: where the address came from.
[[noreturn]] void cannot_join(const std::string& source, const Error& error) {
  raise(Error(error.code(), "cannot join a cluster (" + source + "): " + error.message()));
}

/// Returns the Hello of a driver: it describes the program, so that other nodes can run it.
wire::Hello introduce(const std::string& source) {
  auto program = os::own_program();
  if (!program) cannot_join(source, program.error());
  wire::Hello hello;
  hello.program = std::move(program->path);
  hello.arguments = std::move(program->arguments);
  hello.libraries = std::move(program->libraries);
  hello.job_name = std::move(program->name);
  const os::SignalState& signals = os::inherited_signals();
  hello.ignored_signals = signals.ignored;
  hello.blocked_signals = signals.blocked;
  return hello;
}

}  // namespace

/// Joins a cluster that has no agent on this host: starts an agent without slots, which joins by
/// the token and ends with the session.
void Session::State::join_by_token(std::string token, const std::string& source) {
  wire::Hello hello = introduce(source);
  boot::LocalClusterOptions wanted;
  wanted.without_slots = true;
  wanted.join = std::move(token);
  auto started = boot::LocalCluster::start(std::move(wanted));
  if (!started) cannot_join(source, started.error());
  cluster = std::move(*started);
  const boot::LocalNode node = cluster->nodes().front();
  auto visitor = os::knock(node.socket_name);
  if (!visitor) cannot_join(source, visitor.error());
  attach(std::move(visitor->socket), std::move(hello));
  log_line("joined cluster %s as %s, which runs nothing itself (%s)",
           cluster->id().str().substr(0, 8).c_str(), node.name.c_str(), source.c_str());
}

void Session::State::join(const std::string& address, const std::string& source) {
  const auto cannot = [&](const Error& error) { cannot_join(source, error); };
  auto file = os::read_cluster_file(address);
  if (!file) cannot(file.error());
  wire::Hello hello = introduce(source);
  auto visitor = os::knock(file->socket_name);
  if (!visitor && visitor.error().code() == Code::unavailable)
    cannot(Error(Code::unavailable,
                 "nobody answers for the cluster of " + address + " (" + visitor.error().message() +
                     "): it has ended, or its node on this host has; see 'troupe status'"));
  if (!visitor) cannot(visitor.error());
  attach(std::move(visitor->socket), std::move(hello));
  // The number of nodes in the file may be old: nodes have joined or ended since.
  const auto nodes = engine->nodes();
  const auto alive = std::count_if(nodes.begin(), nodes.end(),
                                   [](const detail::NodeInfo& node) { return node.alive; });
  log_line("joined cluster %s of %td node%s at %s (%s)", file->cluster.str().substr(0, 8).c_str(),
           alive, alive == 1 ? "" : "s", file->node_name.c_str(), source.c_str());
}

Session::Session(SessionOptions options) : state_(std::make_unique<State>()) {
  fill_standard_descriptors();
  if (!g_entered)
    throw InvalidArgument(
        Code::invalid_argument,
        "troupe::enter(argc, argv) must be the first line of main before a Session");
  if (client::ClientEngine::current() != nullptr && client::ClientEngine::current()->in_fork())
    raise(ProcessMark::error_in_fork());
  if (client::ClientEngine::current() != nullptr)
    throw InvalidArgument(Code::invalid_argument,
                          "this process has a Session already: one at a time");
  if (options.nodes != 0 && !options.address.empty())
    throw InvalidArgument(Code::invalid_argument,
                          "a Session either starts nodes or joins the cluster of an address");
  std::fflush(stdout);  // lines of workers stand after what the program has written so far
  const auto text_of_address = [](const std::string& address) {
    return net::is_join_token(address) ? std::string("a join token") : address;
  };
  const bool own_address = !options.address.empty();
  const bool described = describes_nodes(options);
  if (options.cpus == 0) options.cpus = g_flags.cpus;
  if (options.memory.count == 0) options.memory = g_flags.memory;
  if (options.gpus == 0) options.gpus = g_flags.gpus;
  if (options.resources.size() == 0) options.resources = g_flags.resources;
  if (options.labels.size() == 0) options.labels = g_flags.labels;
  std::string source = "the program's own address " + text_of_address(options.address);
  if (options.nodes == 0 && options.address.empty()) {
    options.nodes = g_flags.nodes;
    options.address = g_flags.address;
    source = "--troupe-address " + text_of_address(options.address);
  }
  if (options.nodes == 0 && options.address.empty()) {
    options.address = os::address_of_environment();
    source = "TROUPE_ADDRESS=" + text_of_address(options.address);
  }
  // Options in the code that describe nodes are ignored when a flag or the environment makes the
  // program join a cluster. Flags that describe nodes, or options beside an address in the code,
  // are an error then.
  if (!options.address.empty() && (describes_nodes(g_flags) || (described && own_address)))
    throw InvalidArgument(Code::invalid_argument,
                          "cpus, memory, gpus, resources and labels are those of nodes that a "
                          "program starts, and this one joins a cluster that runs (" +
                              source + "): give one or the other");
  os::raise_file_limit();
  if (net::is_join_token(options.address))
    state_->join_by_token(options.address, source);
  else if (!options.address.empty())
    state_->join(options.address, source);
  else if (options.nodes > 1)
    state_->start_cluster(options);
  else
    state_->start_node(options);
}

/// Leaves the state alone in a fork: the processes that it would end are the parent's.
Session::~Session() {
  if (!state_ || !state_->mark.in_fork()) return;
  [[maybe_unused]] const State* parents = state_.release();
}

Context Session::context() {
  return Context(*state_->front);
}

namespace {

/// Writes why the program ends. It waits only a while for the reader of the error output.
void say_why(int argc, char** argv, const std::string& why) {
  log_last_words((argc > 0 ? argv[0] : "troupe") + (": " + why + '\n'));
}

}  // namespace

namespace detail {

int run_body(int& argc, char** argv, int (*body)(void*, Context&), void* closure) {
  try {
    enter(argc, argv);
  } catch (const Error& error) {
    say_why(argc, argv, explain(error));
    return 2;
  }
  try {
    Session session;
    Context context = session.context();
    return body(closure, context);
  } catch (const Error& error) {
    say_why(argc, argv, explain(error));
  } catch (const std::exception& error) {
    say_why(argc, argv, readable_type(typeid(error).name()) + ": " + words_of_current_exception());
  } catch (const abi::__forced_unwind&) {
    throw;  // pthread_exit() ends this thread, not the program
  } catch (...) {
    say_why(argc, argv, words_of_current_exception() + " left the body of troupe::run");
  }
  return 1;
}

}  // namespace detail
}  // namespace troupe
