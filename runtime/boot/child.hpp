/// A child process as its launcher sees it: how it is started, how it shows that it serves, and how
/// it is told to end. LocalCluster has one for control and one for each agent.
///
///     Child child{.who = "control"};
///     auto started = child.start([&](Fd end) { return os::spawn(role, std::move(end), text); }, 10s);
///     poll(child.pidfd, child.socket);               // it has ended, or says something
///     if (auto how = child.reap()) report(child.who, *how);
///     child.tell_to_end();
///     child.end_within(5s);                          // by SIGKILL if it must
///
/// A child is reaped once: by the first of these functions that finds its end.
#pragma once

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/fd.hpp"
#include "troupe/runtime/base/result.hpp"

#include <sys/types.h>
#include <functional>
#include <optional>
#include <string>

namespace troupe::boot {

struct Child {
  enum class State { none, starting, serving, ended } state = State::none;
  std::string who;  ///< for people
  pid_t pid = 0;
  Fd pidfd, socket;
  Time deadline{};  ///< starting: when it must serve
  Time since{};     ///< when its state began

  bool is_alive() const noexcept { return state == State::starting || state == State::serving; }

  /// Starts the process with an empty signal mask. `spawn` gets the process's end of the socket.
  /// Errors: those of `spawn`; out_of_memory when no descriptor is left.
  Result<void> start(const std::function<Result<pid_t>(Fd)>& spawn, Duration within);
  void serves(Time now);
  /// Takes note of its end.
  void ended();

  /// Returns how it ended; nullopt while it runs. Never blocks.
  std::optional<std::string> reap() const;
  /// Waits for its end, and returns how it ended; nullopt when it still runs after `time`.
  std::optional<std::string> reap_within(Duration time) const;
  /// Kills it and waits for its end.
  void kill() const;
  /// Waits for its end, and kills it when it still runs after `time`.
  void end_within(Duration time);

  /// Ends its socket, which tells it to end. A close alone would not: a fork of this process may
  /// hold a copy.
  void tell_to_end();
  /// Tells a serving control to say to all nodes, also to those of other hosts, that the cluster
  /// ends.
  void announce_end() const;

 private:
  bool wait(Duration time) const;
};

}  // namespace troupe::boot
