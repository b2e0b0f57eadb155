// Tests LocalCluster: how it starts, watches and ends control and agents, which stand-ins play
// here. Covers processes that do not start, die or hang.
#include "troupe/runtime/boot/local_cluster.hpp"

#include "troupe/runtime/base/clock.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <condition_variable>
#include <csignal>
#include <mutex>

namespace troupe::boot {
namespace {

using namespace std::chrono_literals;

/// How the stand-ins for control and agents behave.
struct Play {
  int control_fails_from = 1000;  ///< the start from which control ends at once
  std::string broken;             ///< the agent that reports that it cannot serve
  std::string silent, dying;      ///< the agent that never answers; the agent that dies of a signal
  bool deaf = false;              ///< agents stay when their launcher's socket closes
};

/// Runs until the launcher's end of the socket is closed.
[[noreturn]] void serve(int socket, bool deaf) {
  char byte;
  while (deaf || recv(socket, &byte, 1, 0) > 0)
    if (deaf) pause();
  _exit(0);
}

[[noreturn]] void stand_in(os::Role role, int socket, int start, const Play& play) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // A fork keeps descriptors that an exec would close: the launcher's ends of its siblings'
  // sockets.
  for (int fd = 3; fd < 1024; ++fd)
    if (fd != socket) ::close(fd);
  if (role == os::Role::control) {
    if (start >= play.control_fails_from) _exit(9);
    auto config = os::receive_control_config(socket, 5s);
    if (!config || config->keys.secret_key == net::SecretKey()) _exit(3);
    const bool again = config->listen != "tcp://127.0.0.1:*";
    (void)os::send_ready(socket, {again ? config->listen : "tcp://127.0.0.1:77", ""});
    serve(socket, false);
  }
  auto config = os::receive_agent_config(socket, 5s);
  if (!config || config->control.door != "tcp://127.0.0.1:77") _exit(3);
  if (config->name == play.dying) ::raise(SIGKILL);
  if (config->name == play.silent) serve(socket, true);
  if (config->name == play.broken) {
    (void)os::send_ready(socket, {"", "no shared memory is left"});
    _exit(1);
  }
  (void)os::send_ready(socket, {"tcp://127.0.0.1:88", ""});
  serve(socket, play.deaf);
}

/// Options whose children are forks of this process.
struct Stage {
  Play play;
  LocalClusterOptions options;
  int controls = 0;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<ClusterEvent> events;
  std::vector<pid_t> children;

  explicit Stage(Play what) : play(std::move(what)) {
    options.cpus = 1;
    options.memory = Bytes{1u << 20};
    options.starter = [this](os::Role role, Fd socket, const os::Program&) -> Result<pid_t> {
      const int start = role == os::Role::control ? ++controls : 0;
      const pid_t pid = fork();
      if (pid == 0) stand_in(role, socket.get(), start, play);
      const std::lock_guard lock(mutex);
      children.push_back(pid);
      return pid;
    };
    options.on_event = [this](const ClusterEvent& event) {
      const std::lock_guard lock(mutex);
      events.push_back(event);
      changed.notify_all();
    };
  }
  bool wait_for_events(std::size_t count) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, 10s, [&] { return events.size() >= count; });
  }
  /// Expects that none of the children exists any more, not even as a zombie.
  void expect_nothing_left() {
    for (const pid_t pid : children) EXPECT_EQ(kill(pid, 0), -1) << pid;
  }
};

TEST(LocalCluster, ComesUpNamedAndGoesDownWhole) {
  Stage stage({});
  stage.options.nodes = 3;
  {
    auto cluster = LocalCluster::start(stage.options).value();
    const auto nodes = cluster->nodes();
    ASSERT_EQ(nodes.size(), 3u);
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      EXPECT_EQ(nodes[i].name, "node-" + std::to_string(i));
      EXPECT_EQ(nodes[i].door, "tcp://127.0.0.1:88");
      EXPECT_TRUE(nodes[i].alive);
      EXPECT_EQ(kill(nodes[i].pid, 0), 0);
      EXPECT_NE(nodes[i].socket_name.find(cluster->id().str()), std::string::npos);
    }
    EXPECT_NE(nodes[0].id, nodes[1].id);
    EXPECT_EQ(cluster->control().door, "tcp://127.0.0.1:77");
    EXPECT_EQ(kill(cluster->control_pid(), 0), 0);
  }
  EXPECT_EQ(stage.children.size(), 4u);
  stage.expect_nothing_left();
}

TEST(LocalCluster, ADeadControlComesBackAsItselfAtTheSameDoor) {
  Stage stage({});
  auto cluster = LocalCluster::start(stage.options).value();
  const os::ControlEndpoint before = cluster->control();
  for (std::size_t round = 1; round <= 3; ++round) {
    kill(cluster->control_pid(), SIGKILL);
    ASSERT_TRUE(stage.wait_for_events(round));
    EXPECT_EQ(stage.events.back().kind, ClusterEvent::Kind::control_restarted);
    EXPECT_NE(stage.events.back().text.find("killed by signal 9"), std::string::npos);
  }
  EXPECT_EQ(cluster->control().node, before.node);
  EXPECT_EQ(cluster->control().key, before.key);
  EXPECT_EQ(cluster->control().door, before.door);
  EXPECT_TRUE(cluster->nodes()[0].alive);
  cluster.reset();
  stage.expect_nothing_left();
}

TEST(LocalCluster, AControlThatCannotStayIsGivenUp) {
  Play play;
  play.control_fails_from = 2;
  Stage stage(play);
  auto cluster = LocalCluster::start(stage.options).value();
  kill(cluster->control_pid(), SIGKILL);
  ASSERT_TRUE(stage.wait_for_events(1));
  EXPECT_EQ(stage.events[0].kind, ClusterEvent::Kind::control_lost);
  EXPECT_NE(stage.events[0].text.find("exited with code 9"), std::string::npos)
      << stage.events[0].text;
  EXPECT_EQ(stage.controls, 6) << "the first and five more";
  cluster.reset();
  stage.expect_nothing_left();
}

TEST(LocalCluster, ADeadAgentIsToldAndStaysDead) {
  Stage stage({});
  stage.options.nodes = 2;
  auto cluster = LocalCluster::start(stage.options).value();
  const auto nodes = cluster->nodes();
  kill(nodes[1].pid, SIGKILL);
  ASSERT_TRUE(stage.wait_for_events(1));
  EXPECT_EQ(stage.events[0].kind, ClusterEvent::Kind::agent_died);
  EXPECT_EQ(stage.events[0].node, nodes[1].id);
  EXPECT_NE(stage.events[0].text.find("node-1"), std::string::npos);
  EXPECT_FALSE(cluster->nodes()[1].alive);
  EXPECT_TRUE(cluster->nodes()[0].alive);
  cluster.reset();
  stage.expect_nothing_left();
}

/// Returns the error of a cluster that cannot start, and expects that nothing of it is left.
Error failure(Stage& stage) {
  auto cluster = LocalCluster::start(stage.options);
  EXPECT_FALSE(cluster.ok());
  stage.expect_nothing_left();
  return cluster.ok() ? Error(Code::internal, "") : cluster.error();
}

TEST(LocalCluster, WhoCannotServeIsNamedWithItsReason) {
  Play play;
  play.broken = "node-2";
  Stage stage(play);
  stage.options.nodes = 3;
  const Error error = failure(stage);
  EXPECT_EQ(error.code(), Code::unavailable);
  EXPECT_NE(error.message().find("node-2"), std::string::npos) << error.message();
  EXPECT_NE(error.message().find("no shared memory is left"), std::string::npos);
}

TEST(LocalCluster, ALoopbackInterfaceThatIsDownIsNamedAtOnce) {
  const pid_t child = fork();
  if (child == 0) {
    if (unshare(CLONE_NEWNET) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) _exit(77);
    Stage stage({});
    const auto cluster = LocalCluster::start(stage.options);
    const bool named =
        !cluster.ok() && cluster.error().message().find("loopback") != std::string::npos;
    _exit(named && stage.children.empty() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
    GTEST_SKIP() << "this process may not make a network namespace";
  EXPECT_EQ(status, 0);
}

TEST(LocalCluster, WhoDiesWhileStartingIsNamedWithItsEnd) {
  Play play;
  play.dying = "node-1";
  Stage stage(play);
  stage.options.nodes = 2;
  const Error error = failure(stage);
  EXPECT_EQ(error.code(), Code::unavailable);
  EXPECT_NE(error.message().find("node-1"), std::string::npos) << error.message();
  EXPECT_NE(error.message().find("killed by signal 9"), std::string::npos) << error.message();
}

TEST(LocalCluster, WhoDoesNotAnswerIsNamedWithinItsTime) {
  Play play;
  play.silent = "node-0";
  Stage stage(play);
  stage.options.start_within = 100ms;
  const Time begun = steady_now();
  const Error error = failure(stage);
  EXPECT_EQ(error.code(), Code::timed_out);
  EXPECT_NE(error.message().find("node-0"), std::string::npos) << error.message();
  EXPECT_NE(error.message().find("100 ms"), std::string::npos) << error.message();
  EXPECT_LT(steady_now() - begun, 3s);
}

TEST(LocalCluster, AControlThatEndsAtOnceIsNamed) {
  Play play;
  play.control_fails_from = 1;
  Stage stage(play);
  const Error error = failure(stage);
  EXPECT_NE(error.message().find("control"), std::string::npos);
  EXPECT_NE(error.message().find("exited with code 9"), std::string::npos) << error.message();
}

TEST(LocalCluster, AgentsThatDoNotEndAreKilledInTime) {
  Play play;
  play.deaf = true;
  Stage stage(play);
  stage.options.nodes = 2;
  stage.options.stop_within = 50ms;
  auto cluster = LocalCluster::start(stage.options).value();
  const Time begun = steady_now();
  cluster.reset();
  EXPECT_LT(steady_now() - begun, 2s);
  stage.expect_nothing_left();
}

TEST(LocalCluster, BadNumbersOfNodesAreRefused) {
  for (const std::uint32_t nodes : {0u, 201u}) {
    Stage stage({});
    stage.options.nodes = nodes;
    EXPECT_EQ(failure(stage).code(), Code::invalid_argument);
  }
}

TEST(LocalCluster, WhatCannotBeStartedIsNamed) {
  Stage stage({});
  stage.options.starter = [](os::Role, Fd, const os::Program&) -> Result<pid_t> {
    return Error(Code::out_of_memory, "no more processes");
  };
  const Error error = failure(stage);
  EXPECT_EQ(error.code(), Code::out_of_memory);
  EXPECT_NE(error.message().find("no more processes"), std::string::npos);
}

}  // namespace
}  // namespace troupe::boot
