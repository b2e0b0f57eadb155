/// The verbs `troupe start` and `troupe stop`: clusters in the background.
#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/environment.hpp"
#include "troupe/runtime/base/fd.hpp"
#include "troupe/runtime/base/json.hpp"
#include "troupe/runtime/base/process_limits.hpp"
#include "troupe/runtime/cli/verbs.hpp"
#include "troupe/runtime/os/state_folder.hpp"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

extern char** environ;

namespace troupe::cli {
namespace {

using namespace std::chrono_literals;

constexpr Duration kStarts = 30s;  // LocalCluster's own limit is shorter
constexpr Duration kStops = 20s;

std::vector<std::string> up_arguments(const UpRequest& request, int tell) {
  std::vector<std::string> arguments{"troupe",  "up",
                                     "--nodes", std::to_string(request.nodes),
                                     "--tell",  std::to_string(tell),
                                     "--log",   request.log};
  const auto give = [&](const char* flag, const std::string& value) {
    if (value.empty()) return;
    arguments.emplace_back(flag);
    arguments.push_back(value);
  };
  const auto number = [](double value) {
    char text[40];
    std::snprintf(text, sizeof text, "%.17g", value);
    return std::string(text);
  };
  if (request.cpus > 0) give("--cpus", number(request.cpus));
  if (request.gpus > 0) give("--gpus", number(request.gpus));
  give("--memory", request.memory);
  give("--data-folder", request.data_folder);
  for (const auto& text : request.labels) give("--label", text);
  for (const auto& text : request.resources) give("--resource", text);
  give("--file", request.file);
  give("--state-folder", request.state_folder);
  give("--log-bytes", request.log_bytes);
  give("--listen", request.listen);
  give("--grace", request.grace);
  if (request.join_tokens > 0) give("--join-tokens", std::to_string(request.join_tokens));
  if (!request.join.empty()) give("--join", "-");
  return arguments;
}

/// Starts `troupe up` as the leader of a session of its own, without a terminal.
pid_t spawn_up(const UpRequest& request, int tell, int input) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, request.log.c_str(),
                                   O_WRONLY | O_APPEND | O_NOFOLLOW, 0);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  posix_spawn_file_actions_adddup2(&actions, tell, tell);  // same number: clears CLOEXEC
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
  auto arguments = up_arguments(request, tell);
  std::vector<char*> argv;
  for (auto& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  pid_t pid = 0;
  const int failed =
      posix_spawn(&pid, "/proc/self/exe", &actions, &attributes, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (failed != 0)
    throw Failure{
        Exit::not_started,
        Error(Code::out_of_memory, "cannot start a background process: " + why_no_process(failed))};
  return pid;
}

/// Returns the background process's stdin. A join token comes through a pipe, since other users can
/// read argument lists. Without a token there is nothing to read.
Fd stdin_of(const UpRequest& request) {
  if (request.join.empty() || request.join == "-")
    return Fd(request.join.empty() ? open("/dev/null", O_RDONLY | O_CLOEXEC)
                                   : fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3));
  int ends[2];
  if (request.join.size() > 4000 || pipe2(ends, O_CLOEXEC) != 0)
    throw Failure{Exit::usage, Error(Code::invalid_argument, "that is no join token")};
  Fd ours(ends[0]);
  const Fd theirs(ends[1]);
  (void)!write(theirs.get(), request.join.data(), request.join.size());
  return ours;
}

/// Reads until the writer closes. Returns an empty text when that takes too long.
std::string read_all(int fd, Time until) {
  std::string text;
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(
        std::max<Duration>(until - steady_now(), Duration(0)));
    pollfd entry{fd, POLLIN, 0};
    if (poll(&entry, 1, static_cast<int>(left.count())) <= 0) return "";
    char buffer[4096];
    const ssize_t n = read(fd, buffer, sizeof buffer);
    if (n <= 0 || text.size() > (1u << 20)) return text;
    text.append(buffer, static_cast<std::size_t>(n));
  }
}

/// Returns the text of a field; empty when there is none.
std::string text_in(const Json& document, const char* name) {
  const Json* field = document.find(name);
  const std::string* text = field != nullptr ? field->as_text() : nullptr;
  return text != nullptr ? *text : "";
}

/// Returns the texts of the list in a field; none when there is no list.
std::vector<std::string> texts_in(const Json& document, const char* name) {
  std::vector<std::string> texts;
  const Json* field = document.find(name);
  if (const auto* list = field != nullptr ? field->as_array() : nullptr)
    for (const Json& element : *list)
      if (const std::string* text = element.as_text()) texts.push_back(*text);
  return texts;
}

/// Prints the log of a background process that failed.
void show_log(const std::string& path) {
  const Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  char buffer[4096];
  const ssize_t n = fd ? read(fd.get(), buffer, sizeof buffer) : 0;
  if (n > 0) std::fprintf(stderr, "%.*s", static_cast<int>(n), buffer);
}

void make_log(const std::string& path) {
  unlink(path.c_str());
  const Fd log(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!log)
    throw Failure{
        Exit::not_started,
        Error(Code::out_of_disk, "the log " + path + " cannot be made: " + std::strerror(errno))};
}

/// Ends the launcher, at once also when SIGTERM would drain its node, and waits for it. All that it started ends with it.
void end_launcher(const Target& target) {
  const auto failed = [&](Code code, const std::string& why) {
    throw Failure{Exit::failed, Error(code, "the cluster of " + target.path + " " + why)};
  };
  const Fd launcher(static_cast<int>(syscall(SYS_pidfd_open, target.file.launcher, 0)));
  // The pid may belong to another process by now. The pidfd pins it, so this check holds until the
  // signal.
  if (!launcher || !os::is_launched(target.file)) {
    unlink(target.path.c_str());
    throw Failure{Exit::unreachable,
                  Error(Code::unavailable, "the cluster of " + target.path + " has ended already")};
  }
  if (syscall(SYS_pidfd_send_signal, launcher.get(), SIGINT, nullptr, 0) != 0)
    failed(Code::unavailable, std::string("cannot be ended: ") + std::strerror(errno));
  pollfd entry{launcher.get(), POLLIN, 0};
  const auto limit = std::chrono::duration_cast<std::chrono::milliseconds>(kStops).count();
  if (poll(&entry, 1, static_cast<int>(limit)) != 1)
    failed(Code::timed_out, "did not end within 20 s; its launcher is process " +
                                std::to_string(target.file.launcher));
}

std::string text_of(const Json& document, const UpRequest& request) {
  std::string text =
      up_text(text_in(document, "cluster").substr(0, 8), request.nodes, text_in(document, "file"));
  for (const std::string& token : texts_in(document, "join_tokens"))
    text += kTokenBefore + token + kTokenAfter;
  return text;
}

}  // namespace

Exit start(const UpRequest& wanted) {
  prctl(PR_SET_DUMPABLE, 0);  // a join token passes through it
  UpRequest request = wanted;
  auto state = os::open_state_folder(request.state_folder, Environment());
  if (!state) throw Failure{Exit::refused, state.error()};
  if (auto folder = os::make_cluster_folder(); !folder)
    throw Failure{Exit::refused, folder.error()};
  request.state_folder = *state;
  request.log = *state + "/launcher-" + std::to_string(getpid()) + ".log";
  make_log(request.log);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    throw Failure{Exit::not_started, Error(Code::out_of_memory, "no descriptors are left")};
  Fd ours(ends[0]), theirs(ends[1]);
  const Fd input = stdin_of(request);
  const pid_t pid = spawn_up(request, theirs.get(), input.get());
  theirs.reset();
  const std::string text = read_all(ours.get(), steady_now() + kStarts);
  const auto answer = Json::parse(text);
  const Json document = answer ? *answer : Json();
  if (document.find("cluster") != nullptr) {
    if (request.json)
      std::printf("%s\n", document.dump(2).c_str());
    else
      std::printf("%s  end it                 troupe stop\n  its log                %s\n",
                  text_of(document, request).c_str(), request.log.c_str());
    return Exit::ok;
  }
  ::kill(pid, SIGKILL);
  int status = 0;
  waitpid(pid, &status, 0);
  if (!document.is_object()) show_log(request.log);
  unlink(request.log.c_str());
  const Json* error = document.find("error");
  const std::string why =
      error != nullptr ? text_in(*error, "message") : "its launcher ended without a word";
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
  throw Failure{code == 2   ? Exit::usage
                : code == 4 ? Exit::refused
                            : Exit::not_started,
                Error(Code::unavailable, why)};
}

Exit stop(const Request& request, bool all) {
  std::vector<Target> targets;
  if (all)
    for (auto& found : os::running_clusters())
      targets.push_back({std::move(found.path), std::move(found.file)});
  else
    targets.push_back(find_cluster(request));
  Json ended = Json::array();
  for (const Target& target : targets) {
    end_launcher(target);
    if (!request.json)
      std::printf("troupe: cluster %s has ended\n", target.file.cluster.str().substr(0, 8).c_str());
    ended.push_back(target.file.cluster.str());
  }
  if (request.json) std::printf("%s\n", Json{{"ended", ended}}.dump(2).c_str());
  if (!request.json && targets.empty()) std::printf("troupe: no cluster of yours runs here\n");
  return Exit::ok;
}

}  // namespace troupe::cli
