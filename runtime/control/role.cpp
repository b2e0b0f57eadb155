// Control's main function: it reads its configuration from the launcher and runs Server.
#include "troupe/runtime/base/log.hpp"
#include "troupe/runtime/base/wall_clock.hpp"
#include "troupe/runtime/control/file_store.hpp"
#include "troupe/runtime/control/server.hpp"
#include "troupe/runtime/os/launch.hpp"

#include <sys/prctl.h>
#include <unistd.h>
#include <csignal>
#include <cstdio>

namespace troupe::control {
namespace {

using namespace std::chrono_literals;

/// Precondition: the store stays open until the server has opened it.
ServerOptions options_of(os::ControlConfig config, const Fd& store) {
  ServerOptions options;
  options.cluster = config.cluster;
  options.node = config.node;
  options.keys = std::move(config.keys);
  options.listen = config.listen;
  options.data_folder = config.data_folder;
  if (options.data_folder.empty() && store)
    options.data_folder = "/proc/self/fd/" + std::to_string(store.get());
  for (const os::Admitted& node : config.admitted) {
    options.admitted.push_back({.node = node.node, .key = node.key, .door = {}});
    options.service.expected.push_back(node.node);
  }
  options.join_keys = std::move(config.join_keys);
  // A cluster that ends with its launcher has all its nodes from the start: no later node can make
  // an actor feasible.
  if (options.join_keys.empty() &&
      (options.data_folder.empty() || is_store_file(options.data_folder)))
    options.service.infeasible_timeout = 0s;
  options.service.wall_clock = unix_nanoseconds;
  return options;
}

/// Server::open(), whose threads may be refused by the system.
Result<std::unique_ptr<Server>> open_server(ServerOptions options) {
  try {
    return Server::open(std::move(options));
  } catch (const Error& error) {
    return error;
  }
}

[[noreturn]] void fail(int launcher, const Error& error) {
  (void)os::send_ready(launcher, {.door = {}, .error = error.message()});
  _exit(1);
}

}  // namespace

void run_control(Fd launcher, const std::string&) {
  prctl(PR_SET_NAME, "troupe-control");
  prctl(PR_SET_DUMPABLE, 0);
  os::raise_file_limit();  // some five for each node
  std::signal(SIGPIPE, SIG_IGN);
  auto config = os::receive_control_config(launcher.get(), 10s);
  if (!config) fail(launcher.get(), config.error());
  const Fd store = std::move(config->store);
  auto server = open_server(options_of(std::move(*config), store));
  if (!server) fail(launcher.get(), server.error());
  const os::Ready ready{.door = (*server)->door(), .error = {}};
  if (!os::send_ready(launcher.get(), ready)) _exit(1);
  const Result<void> end = (*server)->run(launcher.get());
  if (!end) log_line("control ends: %s", end.error().message().c_str());
  server->reset();  // _exit runs no destructors
  flush_log();
  _exit(end ? 0 : 1);
}

}  // namespace troupe::control
