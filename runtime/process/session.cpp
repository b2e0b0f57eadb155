#include "troupe/runtime/session.hpp"

#include "troupe/runtime/client/engine.hpp"
#include "troupe/runtime/client/worker.hpp"
#include "troupe/runtime/process/role.hpp"
#include "troupe/runtime/process/zygote.hpp"

#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>

namespace troupe {
namespace {

SessionOptions g_flags;
bool g_entered = false;

[[noreturn]] void bad_flag(const std::string& flag, const std::string& why) {
  throw InvalidArgument(Code::invalid_argument, "flag " + flag + ": " + why);
}

double number_of(const std::string& flag, const std::string& text) {
  double value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ec != std::errc{} || parsed.ptr != text.data() + text.size() || !(value > 0) ||
      value > 1e6)
    bad_flag(flag, "'" + text + "' is not a positive number");
  return value;
}

Bytes bytes_of(const std::string& flag, const std::string& text) {
  double value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string unit(parsed.ptr, text.data() + text.size());
  double factor = 0;
  if (unit.empty() || unit == "B") factor = 1;
  if (unit == "K" || unit == "KiB") factor = 1024.0;
  if (unit == "M" || unit == "MiB") factor = 1024.0 * 1024;
  if (unit == "G" || unit == "GiB") factor = 1024.0 * 1024 * 1024;
  if (parsed.ec != std::errc{} || factor == 0 || !(value > 0) || value * factor > 1e15)
    bad_flag(flag, "'" + text + "' is not a size like 512MiB or 2GiB");
  return Bytes{static_cast<std::uint64_t>(value * factor)};
}

/// Takes --troupe-x=v and --troupe-x v out of argv.
void take_flags(int& argc, char** argv) {
  int kept = argc > 0 ? 1 : 0;
  for (int i = 1; i < argc; ++i) {
    const std::string text = argv[i];
    if (text == "--") {  // everything behind is the program's own
      while (i < argc) argv[kept++] = argv[i++];
      break;
    }
    if (text.rfind("--troupe-", 0) != 0) {
      argv[kept++] = argv[i];
      continue;
    }
    const auto equals = text.find('=');
    const std::string flag = text.substr(0, equals);
    std::string value;
    if (equals != std::string::npos)
      value = text.substr(equals + 1);
    else if (i + 1 < argc)
      value = argv[++i];
    else
      bad_flag(flag, "needs a value");
    if (flag == "--troupe-cpus")
      g_flags.cpus = number_of(flag, value);
    else if (flag == "--troupe-memory")
      g_flags.memory = bytes_of(flag, value);
    else
      bad_flag(flag, "unknown; known are --troupe-cpus, --troupe-memory");
  }
  argc = kept;
  argv[argc] = nullptr;
}

}  // namespace

void enter(int& argc, char** argv) {
  process::Inherited& inherited = process::inherited();
  if (inherited.role == process::Role::zygote) {
    process::die_with_parent(static_cast<pid_t>(std::strtol(inherited.text.c_str(), nullptr, 10)));
    process::Forked forked = process::run_zygote(std::move(inherited.socket));
    client::run_worker(std::move(forked.socket), forked.token);
  }
  if (inherited.role == process::Role::worker) {
    char* end = nullptr;
    process::die_with_parent(static_cast<pid_t>(std::strtol(inherited.text.c_str(), &end, 10)));
    client::run_worker(std::move(inherited.socket),
                       *end == ',' ? std::strtoull(end + 1, nullptr, 10) : 0);
  }
  take_flags(argc, argv);
  g_entered = true;
}

struct Session::State {
  pid_t agent = 0;
  Fd agent_pidfd;
  std::unique_ptr<client::ClientEngine> engine;

  ~State() {
    if (engine) engine->stop();
    engine.reset();  // closes the socket: a private agent takes its node down and ends
    if (agent == 0) return;
    int status = 0;
    pollfd entry{agent_pidfd.get(), POLLIN, 0};
    if (!agent_pidfd || poll(&entry, 1, 5000) <= 0) ::kill(agent, SIGKILL);
    waitpid(agent, &status, 0);
  }
};

Session::Session(SessionOptions options) : state_(std::make_unique<State>()) {
  if (!g_entered)
    throw InvalidArgument(
        Code::invalid_argument,
        "troupe::enter(argc, argv) must be the first line of main before a Session");
  if (client::ClientEngine::current() != nullptr)
    throw InvalidArgument(Code::invalid_argument,
                          "this process has a Session already: one at a time");
  if (options.cpus == 0) options.cpus = g_flags.cpus;
  if (options.memory.count == 0) options.memory = g_flags.memory;
  process::raise_file_limit();
  auto ends = process::LocalSocket::pair().value();
  const std::string text =
      std::to_string(options.cpus) + "," + std::to_string(options.memory.count);
  state_->agent = process::spawn(process::Role::agent, std::move(ends.second), text).value();
  state_->agent_pidfd = Fd(static_cast<int>(syscall(SYS_pidfd_open, state_->agent, 0)));
  state_->engine = std::make_unique<client::ClientEngine>(
      client::ClientEngine::Start{std::move(ends.first), wire::ProcessKind::driver, 0});
}

Session::~Session() = default;

Context Session::context() {
  return Context(*state_->engine);
}

namespace detail {

int run_body(int& argc, char** argv, int (*body)(void*, Context&), void* closure) {
  try {
    enter(argc, argv);
  } catch (const Error& error) {
    std::fprintf(stderr, "%s: %s\n", argc > 0 ? argv[0] : "troupe", explain(error).c_str());
    return 2;
  }
  try {
    Session session;
    Context context = session.context();
    return body(closure, context);
  } catch (const Error& error) {
    std::fprintf(stderr, "%s: %s\n", argc > 0 ? argv[0] : "troupe", explain(error).c_str());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s: %s\n", argc > 0 ? argv[0] : "troupe",
                 readable_type(typeid(error).name()).c_str(), error.what());
  }
  return 1;
}

}  // namespace detail
}  // namespace troupe
