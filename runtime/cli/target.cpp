/// Finds the cluster that a request means; the verb `troupe run`.
#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/cli/verbs.hpp"
#include "troupe/runtime/net/keys.hpp"
#include "troupe/runtime/os/local_listener.hpp"

#include <unistd.h>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <set>

namespace troupe::cli {
namespace {

/// Replaces this process by the program.
[[noreturn]] void become(const std::vector<std::string>& command, const std::string& address) {
  os::set_address_of_environment(address);
  std::vector<char*> argv;
  for (const auto& argument : command) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  throw Failure{Exit::not_started, Error(Code::invalid_argument, "cannot run '" + command.front() +
                                                                     "': " + std::strerror(errno))};
}

}  // namespace

Target find_cluster(const Request& request) {
  const std::string path = request.address.empty() ? os::address_of_environment() : request.address;
  if (net::is_join_token(path))
    throw InvalidArgument(
        Code::invalid_argument,
        "a join token lets a node or a program in; to look at a cluster, ask on a "
        "host where a node of it runs");
  if (!path.empty()) return {path, os::read_cluster_file(path).value()};
  auto running = os::running_clusters();
  if (running.empty())
    throw Unavailable(Code::unavailable,
                      "no cluster of yours runs on this host (none in " + os::cluster_folder() +
                          "): start one with 'troupe up --nodes 2', or give --address FILE");
  // A cluster may have several files here: each node that joined on this host has its own.
  std::set<ClusterId> clusters;
  for (const auto& found : running) clusters.insert(found.file.cluster);
  static std::atomic<bool> is_told = false;  // a verb may ask over several connections
  if (clusters.size() > 1 && !is_told.exchange(true))
    std::fprintf(stderr, "troupe: %zu clusters run here; this is the newest, %s\n", clusters.size(),
                 running.front().path.c_str());
  return {std::move(running.front().path), std::move(running.front().file)};
}

std::unique_ptr<Asked> ask_anew(const Target& target, Duration limit) {
  std::vector<std::string> paths{target.path};
  for (auto& found : os::running_clusters())
    if (found.file.cluster == target.file.cluster && found.path != target.path)
      paths.push_back(std::move(found.path));
  const Time until = steady_now() + limit;
  std::optional<Error> why;
  for (const std::string& path : paths) {
    if (why && steady_now() >= until) break;
    Request again;
    again.address = path;
    try {
      auto asked = std::make_unique<Asked>(again, paths.size() == 1 ? limit : Duration(limit / 3));
      if (asked->target.file.cluster == target.file.cluster) return asked;
      why.emplace(Code::unavailable,
                  "the cluster of " + path + " has ended, and the file names " + "another one now");
    } catch (const Error& error) {
      if (!why || error.code() == Code::timed_out) why = error;
    }
  }
  raise(*why);
}

Exit run_program(const Request& request, const std::vector<std::string>& command) {
  const std::string told = os::address_of_environment();
  if (request.address.empty() && net::is_join_token(told))
    become(command, told);  // the program's session starts a node without slots and joins by it
  const Target target = find_cluster(request);
  if (auto visitor = os::knock(target.file.socket_name); !visitor)
    throw Error(visitor.error().code(),
                "the cluster of " + target.path + " does not answer: " + visitor.error().message());
  become(command, target.path);
}

}  // namespace troupe::cli
