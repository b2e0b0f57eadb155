/// Programs beside this one, and a cluster of one node for them.
///
///     const OneNode cluster(4);                               // `troupe start`
///     Command peer({beside("troupe"), "run", beside("operate_peer"), "waiting"});
///     peer.line();  peer.say("go");
///
/// Each wait ends after kBound, with a std::runtime_error that names the program.
#pragma once

#include "tools.hpp"

#include <sys/types.h>
#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

namespace troupe::bench {

/// Returns the path of a program in this program's folder.
std::string beside(const std::string& name);

/// A child whose stdin and stdout this process holds. It is killed with this object.
class Command {
 public:
  /// `out`: the file that gets its stdout; empty: line() reads it.
  explicit Command(std::vector<std::string> words, const std::filesystem::path& out = {});
  ~Command();
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;
  void say(const std::string& line);
  /// Returns the next line with its newline. Throws when the output ends.
  std::string line();
  /// Waits for its end, which must be a success. Closes its stdin first.
  void finish();

 private:
  using Deadline = std::chrono::steady_clock::time_point;
  bool read_more(Deadline until, const char* what);
  void close_ends();

  std::string name_;
  pid_t pid_ = -1;
  int to_ = -1, from_ = -1;
  std::string read_;  ///< of its stdout, behind the last line()
};

/// A cluster of the command `troupe` with one node. Programs of `troupe run` find it.
class OneNode {
 public:
  /// When the start fails, what has started of it is stopped.
  explicit OneNode(int cpus);
  /// Ends the cluster. A failure is told on stderr.
  ~OneNode();
  OneNode(const OneNode&) = delete;
  OneNode& operator=(const OneNode&) = delete;
  /// Where its logs are.
  std::filesystem::path state() const { return folder_.path() / "state"; }

 private:
  OneNode();
  ScratchFolder folder_;
};

}  // namespace troupe::bench
