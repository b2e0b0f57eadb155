/// The verb `troupe up`: starts a cluster and stays until a signal or the cluster's end.
#include "troupe/runtime/base/deadline.hpp"
#include "troupe/runtime/base/environment.hpp"
#include "troupe/runtime/base/json.hpp"
#include "troupe/runtime/base/log.hpp"
#include "troupe/runtime/base/size_text.hpp"
#include "troupe/runtime/base/version.hpp"
#include "troupe/runtime/boot/local_cluster.hpp"
#include "troupe/runtime/cli/verbs.hpp"
#include "troupe/runtime/os/listen_address.hpp"
#include "troupe/runtime/os/state_folder.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <string_view>

namespace troupe::cli {
namespace {

/// Blocks SIGINT, SIGTERM and, unless it is ignored (nohup), SIGHUP, and returns a descriptor that
/// is readable when one arrives.
Fd end_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  struct sigaction hangup{};
  sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler != SIG_IGN) sigaddset(&set, SIGHUP);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  return Fd(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
}

double amount_in(const std::string& flag, const std::string& name, const std::string& text) {
  const auto amount = parse_amount(text);
  if (!amount)
    throw InvalidArgument(Code::invalid_argument,
                          flag + ": '" + text + "' is no amount of " + name);
  return *amount;
}

/// Reads a line of stdin: a join token that must not stand in an argument list.
std::string line_of_stdin() {
  std::string line;
  line.reserve(4096);  // so that growth leaves no copy of the secret
  for (char c = 0; line.size() < 4096 && read(STDIN_FILENO, &c, 1) == 1 && c != '\n';)
    line.push_back(c);
  if (line.empty()) throw InvalidArgument(Code::invalid_argument, "no join token came on stdin");
  return line;
}

/// Reads "ADDRESS" or "ADDRESS:PORT". The port is control's; agents take any free port, which
/// control tells to others.
void listen_at(const std::string& text, boot::LocalClusterOptions& options) {
  // An IPv6 address has several colons, or stands in brackets.
  const bool is_ipv6 = std::count(text.begin(), text.end(), ':') > 1 || text.starts_with('[');
  const auto colon = is_ipv6 ? std::string::npos : text.find(':');
  const std::string address = text.substr(0, colon);
  const std::string port = colon == std::string::npos ? "" : text.substr(colon + 1);
  unsigned number = 0;
  const auto parsed = std::from_chars(port.data(), port.data() + port.size(), number);
  const bool good_port = colon == std::string::npos ||
                         (parsed.ec == std::errc{} && parsed.ptr == port.data() + port.size() &&
                          number >= 1 && number <= 65535);
  if (address.empty() || address.find_first_of("*/ ") != std::string::npos || !good_port)
    throw InvalidArgument(
        Code::invalid_argument,
        "--listen: '" + text +
            "' is no address or name of this machine like 10.0.0.1 or, with a port "
            "for control, 10.0.0.1:6500; it has no scheme and no wildcard");
  const auto resolved = os::resolve_listen(address);
  if (!resolved)
    throw InvalidArgument(Code::invalid_argument, "--listen: " + resolved.error().message());
  options.listen = "tcp://" + *resolved + ":*";
  if (!port.empty()) options.control_listen = "tcp://" + *resolved + ":" + port;
}

/// Throws if `path` exists and is no folder. Control makes a folder that is missing.
void check_folder(const std::string& path) {
  struct stat info{};
  if (path.empty() || stat(path.c_str(), &info) != 0 || S_ISDIR(info.st_mode)) return;
  throw InvalidArgument(Code::invalid_argument,
                        "--data-folder: " + path +
                            " is there and is no folder; name a folder for "
                            "control's records, which is made if it is missing");
}

boot::LocalClusterOptions options_of(const UpRequest& request) {
  boot::LocalClusterOptions options;
  options.nodes = request.nodes;
  options.cpus = request.cpus;
  options.gpus = request.gpus;
  if (!request.memory.empty()) options.memory = Bytes{bytes_of("--memory", request.memory)};
  check_folder(request.data_folder);
  options.data_folder = request.data_folder;
  options.join_tokens = request.join_tokens;
  options.join = request.join == "-" ? line_of_stdin() : request.join;
  if (!request.listen.empty()) listen_at(request.listen, options);
  for (const auto& text : request.labels) options.labels.push_back(pair_of("--label", text));
  for (const auto& text : request.resources) {
    const auto [name, value] = pair_of("--resource", text);
    options.resources.emplace_back(name, amount_in("--resource", name, value));
  }
  std::sort(options.labels.begin(), options.labels.end());
  std::sort(options.resources.begin(), options.resources.end());
  return options;
}

os::ClusterFile file_of(const boot::LocalCluster& cluster) {
  const auto nodes = cluster.nodes();
  os::ClusterFile file;
  file.cluster = cluster.id();
  file.version = TROUPE_VERSION_TEXT;
  file.protocol = kProtocolVersion;
  file.node = nodes.front().id;
  file.node_name = nodes.front().name;
  file.socket_name = nodes.front().socket_name;
  for (std::size_t i = 1; i < nodes.size(); ++i) file.other_doors.push_back(nodes[i].socket_name);
  file.control_door = cluster.control().door;
  file.nodes = static_cast<std::uint32_t>(nodes.size());
  file.launcher = getpid();
  file.launched = os::start_of(getpid());
  return file;
}

Json document_of(const boot::LocalCluster& cluster, const std::string& path) {
  Json nodes = Json::array();
  for (const auto& node : cluster.nodes())
    nodes.push_back(
        {{"id", node.id.str()}, {"name", node.name}, {"pid", node.pid}, {"address", node.door}});
  return {{"cluster", cluster.id().str()},
          {"file", path},
          {"launcher", getpid()},
          {"control", {{"address", cluster.control().door}, {"pid", cluster.control_pid()}}},
          {"nodes", std::move(nodes)}};
}

/// Returns the default path of the cluster file. A node that joined has its own beside the head's.
std::string default_file(const UpRequest& request, const boot::LocalCluster& cluster) {
  return os::default_cluster_file(cluster.id(),
                                  request.join.empty() ? "" : cluster.nodes().front().name);
}

/// Writes all of the text, without a buffer in which a secret would stay.
void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;  // the reader is gone
    text.remove_prefix(static_cast<std::size_t>(n));
  }
}

/// Writes the document, and as its last member the join tokens, which no other text ever holds. The
/// tokens are wiped before the document ends, so who has read it all finds them nowhere else.
void write_document(int fd, const Json& document, boot::LocalCluster& cluster, bool for_people) {
  std::string text = document.dump(for_people ? 2 : -1);
  text.pop_back();  // without the last brace
  if (for_people) text.pop_back();
  write_all(fd, text + (for_people ? ",\n  \"join_tokens\": [" : ",\"join_tokens\":["));
  const std::vector<std::string>& tokens = cluster.join_tokens();
  for (const std::string& token : tokens) {
    write_all(fd, &token == tokens.data() ? "\"" : ",\"");
    write_all(fd, token);
    write_all(fd, "\"");
  }
  cluster.wipe_join_tokens();
  write_all(fd, for_people ? "]\n}\n" : "]}\n");
}

/// Tells people, a program or `troupe start` of the cluster, and then wipes its join tokens.
void announce(const UpRequest& request, boot::LocalCluster& cluster, const std::string& path) {
  if (request.json || request.tell >= 0) {
    write_document(request.tell >= 0 ? request.tell : STDOUT_FILENO, document_of(cluster, path),
                   cluster, request.tell < 0);
    if (request.tell >= 0) close(request.tell);
  } else {
    write_all(STDOUT_FILENO, up_text(cluster.id().str().substr(0, 8), request.nodes, path));
    for (const std::string& token : cluster.join_tokens()) {
      write_all(STDOUT_FILENO, kTokenBefore);
      write_all(STDOUT_FILENO, token);
      write_all(STDOUT_FILENO, kTokenAfter);
    }
    cluster.wipe_join_tokens();
    write_all(STDOUT_FILENO, "  end it                 Ctrl-C, or troupe stop\n");
  }
}

/// Writes the cluster's file and removes it when the cluster ends.
class Posted {
 public:
  Posted(std::string path, const os::ClusterFile& file) : path_(std::move(path)) {
    os::write_cluster_file(path_, file).value();
  }
  ~Posted() {
    unlink(path_.c_str());
    rmdir(os::cluster_folder().c_str());  // fails unless it is empty
  }
  Posted(const Posted&) = delete;
  Posted& operator=(const Posted&) = delete;

 private:
  const std::string path_;
};

/// Passes events from LocalCluster's watching thread to this one.
struct Watch {
  Fd lost{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  std::atomic<std::uint32_t> alive{0};
  std::atomic<bool> in_good_order{true};

  void on_event(const boot::ClusterEvent& event) {
    log_line("%s", event.text.c_str());
    const bool died = event.kind == boot::ClusterEvent::Kind::agent_died;
    if (!died && event.kind != boot::ClusterEvent::Kind::agent_left) return;
    if (died) in_good_order = false;
    if (--alive != 0) return;
    const std::uint64_t one = 1;
    (void)!write(lost.get(), &one, sizeof one);
  }
};

/// Waits for a signal or the end of all nodes. Returns whether a signal came.
bool await_end(const Fd& signals, const Watch& watch, Time until) {
  for (;;) {
    const Duration left = time_left(until, steady_now());
    const auto wait = std::chrono::ceil<std::chrono::milliseconds>(
        std::min<Duration>(left, std::chrono::hours(1)));
    pollfd entries[2] = {{signals.get(), POLLIN, 0}, {watch.lost.get(), POLLIN, 0}};
    const int ready = poll(entries, 2, static_cast<int>(wait.count()));
    if (ready > 0) return entries[0].revents != 0;
    if (ready == 0 && steady_now() >= until) return false;
  }
}

/// Stays until the cluster's nodes here are to end. With --grace, the first SIGTERM drains the node,
/// and another signal ends it at once. Returns whether a signal came.
bool stay(const UpRequest& request, boot::LocalCluster& cluster, const Fd& signals,
          const Watch& watch) {
  if (!await_end(signals, watch, Time::max())) return false;
  signalfd_siginfo signal{};
  if (request.grace.empty() || read(signals.get(), &signal, sizeof signal) != sizeof signal ||
      signal.ssi_signo != SIGTERM)
    return true;
  const Duration grace = duration_of("--grace", request.grace);
  const boot::LocalNode node = cluster.nodes().front();
  auto observer = Observer::connect(node.socket_name);
  const Result<void> drains =
      observer ? observer->drain(node.id, grace) : Result<void>(observer.error());
  if (!drains) {
    log_line("SIGTERM: the node cannot be drained and ends at once: %s",
             drains.error().message().c_str());
    return true;
  }
  log_line("SIGTERM: %s drains; it leaves in %s at the latest", node.name.c_str(),
           request.grace.c_str());
  constexpr std::chrono::seconds kLeaves{5};  // longer than the node needs after its deadline
  static_cast<void>(await_end(signals, watch, deadline_after(steady_now(), grace + kLeaves)));
  return true;
}

}  // namespace

std::string up_text(const std::string& id, std::uint32_t nodes, const std::string& path) {
  return "troupe: cluster " + id + " is up with " + std::to_string(nodes) +
         (nodes == 1 ? " node here\n" : " nodes here\n") +
         "  run a program on it    troupe run PROGRAM ARGUMENTS\n"
         "                         (or TROUPE_ADDRESS=" +
         path +
         " PROGRAM ARGUMENTS)\n"
         "  look at it             troupe status\n";
}

Exit up(const UpRequest& request) {
  if (request.tell >= 0) fcntl(request.tell, F_SETFD, FD_CLOEXEC);
  // The memory of this process has the key of control, with which it starts control again.
  prctl(PR_SET_DUMPABLE, 0);
  std::signal(SIGPIPE, SIG_IGN);  // the reader of stderr may be gone
  const Fd signals = end_signals();
  if (!request.grace.empty()) duration_of("--grace", request.grace);  // before anything starts
  auto options = options_of(request);
  auto state = os::open_state_folder(request.state_folder, Environment());
  if (!state) throw Failure{Exit::refused, state.error()};
  if (request.file.empty())
    if (auto folder = os::make_cluster_folder(); !folder)
      throw Failure{Exit::refused, folder.error()};
  options.state_folder = *state;
  if (!request.log_bytes.empty())
    options.log_bytes = Bytes{bytes_of("--log-bytes", request.log_bytes)};
  Watch watch;
  watch.alive = request.nodes;
  options.on_event = [&](const boot::ClusterEvent& event) { watch.on_event(event); };
  auto cluster = boot::LocalCluster::start(std::move(options)).value();
  const std::string path = request.file.empty() ? default_file(request, *cluster) : request.file;
  const Posted posted(path, file_of(*cluster));
  announce(request, *cluster, path);
  const bool told = stay(request, *cluster, signals, watch);
  const bool ended = told || watch.in_good_order;
  if (!ended) log_line("every node is gone; the cluster ends");
  cluster.reset();
  if (ended && !request.log.empty()) unlink(request.log.c_str());
  return ended ? Exit::ok : Exit::failed;
}

}  // namespace troupe::cli
