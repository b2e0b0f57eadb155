// Tests the command and programs on real clusters: they start, join, query and end, and nothing
// is left.
#include "tests/leeway.hpp"
#include "tests/paths.hpp"
#include "tests/runtime/cli/clusters.hpp"

#include "troupe/runtime/os/cluster_file.hpp"
#include "troupe/runtime/os/local_listener.hpp"
#include "troupe/runtime/os/local_socket.hpp"
#include "troupe/runtime/version.hpp"
#include "troupe/runtime/wire/messages.hpp"

#include <netinet/in.h>
#include <sys/socket.h>
#include <map>
#include <set>
#include <thread>

namespace troupe::cli {
namespace {

/// Returns a port of the loopback address that was free a moment ago.
int free_port() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
  close(fd);
  return ntohs(address.sin_port);
}

TEST_F(Clusters, UpServesUntilCtrlC) {
  Child up({paths::command(), "up", "--nodes", "3", "--cpus", "1", "--memory", "64MiB", "--json"});
  const json cluster = json::parse(up.read_until("\n}\n"), nullptr, false);
  ASSERT_EQ(cluster["nodes"].size(), 3u);
  const Outcome sum = troupe_command({"run", paths::cli_program(), "sum", "200"});
  EXPECT_EQ(sum.code, 0) << sum.err;
  EXPECT_EQ(sum.out, "2646700\n");
  EXPECT_TRUE(says(sum.err, "joined cluster " + cluster["cluster"].get<std::string>().substr(0, 8)))
      << sum.err;
  const Outcome spread = troupe_command({"run", paths::cli_program(), "nodes"});
  EXPECT_EQ(spread.code, 0) << spread.err;
  EXPECT_EQ(spread.out, "3\n") << "work goes to every node";
  EXPECT_EQ(up.finish(SIGINT), 0);
  expect_ended(cluster);
}

TEST_F(Clusters, ABackgroundClusterIsShownAndStopped) {
  const json cluster = start({"--nodes", "2", "--cpus", "1"});
  const json nodes = rows("nodes");
  ASSERT_EQ(nodes.size(), 2u) << nodes;
  EXPECT_EQ(nodes[0]["state"], "alive");
  EXPECT_EQ(nodes[0]["cpus"], 1.0);
  const json status = ask({"status"});
  EXPECT_EQ(status["cluster"], cluster["cluster"]);
  EXPECT_EQ(status["nodes"].size(), 2u);
  const Outcome text = troupe_command({"status", "-v"});
  EXPECT_TRUE(says(text.out, "node-0") && says(text.out, "node-1")) << text.out;
  EXPECT_TRUE(fs::exists(cluster["file"].get<std::string>()));
  const Outcome stopped = troupe_command({"stop"});
  EXPECT_EQ(stopped.code, 0) << stopped.err;
  expect_ended(cluster);
  EXPECT_EQ(troupe_command({"status"}).code, 3);
}

// The agent has no ring to an observer, so it must send it nothing that needs one.
TEST_F(Clusters, AnObserverThatDoesNotOnlyInquireIsCutOffAlone) {
  const json cluster = start({"--nodes", "1", "--cpus", "1"});
  const auto file = os::read_cluster_file(cluster["file"].get<std::string>());
  ASSERT_TRUE(file) << file.error().message();
  wire::RequestLease lease;
  lease.backlog = 1;
  for (const wire::NodeMessage& request :
       std::vector<wire::NodeMessage>{lease, wire::WatchActor{}}) {
    auto visitor = os::knock(file->socket_name);
    ASSERT_TRUE(visitor) << visitor.error().message();
    os::LocalSocket socket(std::move(visitor->socket));
    wire::Hello hello;
    hello.protocol = kProtocolVersion;
    hello.kind = wire::ProcessKind::observer;
    wire::FrameWriter writer;
    ASSERT_TRUE(socket.send(writer.encode(wire::NodeMessage(hello)), {}));
    ASSERT_TRUE(socket.send(writer.encode(request), {}));
    std::vector<std::byte> packet(os::kMaxPacket);
    EXPECT_TRUE(
        eventually([&] { return socket.receive(packet).kind == os::Received::Kind::closed; }));
  }
  EXPECT_EQ(troupe_command({"run", paths::cli_program(), "sum", "200"}).out, "2646700\n");
}

TEST_F(Clusters, JobsAndActorsAreListedWhileTheyLiveAndTheProgramsCodeIsOurs) {
  const json cluster = start({"--nodes", "2", "--cpus", "2"});
  {
    Child program({paths::command(), "run", paths::cli_program(), "hold"});
    EXPECT_TRUE(says(program.read_until("7\n"), "7\n"));
    const json actors = rows("actors");
    ASSERT_EQ(actors.size(), 1u) << actors;
    EXPECT_EQ(actors[0]["name"], "keeper");
    EXPECT_EQ(actors[0]["state"], "alive");
    const json jobs = rows("jobs");
    ASSERT_EQ(jobs.size(), 1u) << jobs;
    EXPECT_EQ(jobs[0]["state"], "running");
    program.close_input();
    EXPECT_EQ(program.finish(0), 0);
  }
  EXPECT_TRUE(eventually([&] { return rows("jobs")[0]["state"] == "finished"; }));
  EXPECT_TRUE(eventually([&] { return ask({"status"})["actors"].empty(); }))
      << "an actor of a job ends with it";
  EXPECT_EQ(troupe_command({"run", paths::cli_program(), "exit", "9"}).code, 9);
  EXPECT_EQ(troupe_command({"run", paths::cli_program(), "nonsense"}).code, 1);
  EXPECT_TRUE(eventually([&] {
    int failed = 0;
    for (const json& job : rows("jobs")) failed += job["state"] == "failed" ? 1 : 0;
    return failed == 1;
  })) << "an error that leaves the body fails the job, an exit code does not";
  EXPECT_EQ(troupe_command({"run", "/nowhere/program"}).code, 5);
}

TEST_F(Clusters, StatusSaysWhyAnActorDoesNotLive) {
  const json cluster = start({"--nodes", "2", "--cpus", "1"});
  Child program({paths::command(), "run", paths::cli_program(), "crash"});
  ASSERT_TRUE(says(program.read_until("spawned\n"), "spawned\n"));
  const std::string why = "life, which ended in its constructor with: exited with code 3, process ";
  EXPECT_TRUE(eventually([&] { return says(troupe_command({"status"}).out, why); }));
  EXPECT_TRUE(eventually([&] { return says(rows("actors")[0]["why"], why); }));
  program.close_input();
  EXPECT_EQ(program.finish(0), 0);
}

TEST_F(Clusters, MemoryAndObjectsAreShownWithWhoHoldsThem) {
  const json cluster = start({"--nodes", "2", "--cpus", "1"});
  Child program({paths::command(), "run", paths::cli_program(), "keep"});
  ASSERT_TRUE(says(program.read_until("80\n"), "80\n"));
  const json memory = ask({"memory", "--leak-after", "0"});
  ASSERT_EQ(memory["nodes"].size(), 2u) << memory;
  EXPECT_TRUE(memory["unreachable"].empty()) << memory;
  std::uint64_t spilled = 0, in_memory = 0, drivers = 0, suspects = 0, of_job = 0, of_site = 0;
  for (const json& node : memory["nodes"]) {
    EXPECT_EQ(node["arena_bytes"], 64u << 20);
    spilled += node["spilled"]["objects"].get<std::uint64_t>();
    in_memory += node["objects"].get<std::uint64_t>();
    suspects += node["suspects"].size();
    EXPECT_EQ(node["shared_copies"]["used"], false);
    for (const json& job : node["jobs"]) of_job += job["object_bytes"].get<std::uint64_t>();
    for (const json& site : node["sites"])
      of_site += says(site["made_at"].get<std::string>(), "program.cpp:")
                     ? site["object_bytes"].get<std::uint64_t>()
                     : 0;
    for (const json& process : node["processes"]) {
      if (process["kind"] != "driver") continue;
      ++drivers;
      EXPECT_EQ(process["pid"], program.pid());
      EXPECT_GT(process["extent_bytes"], 16u << 20);
    }
  }
  EXPECT_EQ(drivers, 1u);
  EXPECT_GE(spilled, 16u) << memory;
  EXPECT_GE(in_memory, 16u) << memory;
  EXPECT_GE(suspects, 32u) << "only the driver holds them";
  EXPECT_GE(of_job, 32u << 20) << "in memory and on disk";
  EXPECT_EQ(of_site, of_job) << memory;

  const json objects = rows("objects", {"--where", "state != private", "--limit", "5"});
  ASSERT_EQ(objects.size(), 5u) << objects;
  std::uint64_t last = ~std::uint64_t{0};
  for (const json& object : objects) {
    EXPECT_LE(object["bytes"], last) << "the largest first";
    last = object["bytes"];
    EXPECT_GE(last, 1u << 20);
    EXPECT_TRUE(object["state"] == "memory" || object["state"] == "disk") << object;
    EXPECT_EQ(object["maker"], "node-0/" + std::to_string(program.pid()));
    EXPECT_EQ(object["held"], 1);
    EXPECT_EQ(object["holders"], "driver " + std::to_string(program.pid()));
    EXPECT_EQ(object["pins"], 0);
    EXPECT_GT(object["since_ns"], 0u);
    EXPECT_TRUE(object["suspicion"].is_null()) << "not yet";
  }
  const Outcome text = troupe_command({"memory"});
  EXPECT_TRUE(says(text.out, "on disk") && says(text.out, "no object looks like a leak"))
      << text.out;
  EXPECT_TRUE(says(troupe_command({"list", "objects"}).out, "driver")) << text.out;
  program.close_input();
  EXPECT_EQ(program.finish(0), 0);
  EXPECT_TRUE(eventually([&] { return rows("objects").empty(); })) << "a job's objects go with it";
}

TEST_F(Clusters, AnObjectIsListedWhereverItsBytesAreUntilNobodyHoldsIt) {
  start({"--nodes", "3", "--cpus", "1"});
  Child program({paths::command(), "run", paths::cli_program(), "spread"});
  ASSERT_TRUE(says(program.read_until("everywhere\n"), "everywhere\n"));
  std::map<std::string, std::set<std::string>> nodes_of;
  for (const json& object : rows("objects")) {
    nodes_of[object["id"].get<std::string>()].insert(object["node"].get<std::string>());
    EXPECT_EQ(object["owner"], "node-0") << object;
  }
  ASSERT_EQ(nodes_of.size(), 1u) << rows("objects");
  EXPECT_EQ(nodes_of.begin()->second, (std::set<std::string>{"node-0", "node-1", "node-2"}));
  program.say("\n");
  ASSERT_TRUE(says(program.read_until("let go\n"), "let go\n"));
  EXPECT_TRUE(eventually([&] { return rows("objects").empty(); })) << rows("objects");
  program.close_input();
  EXPECT_EQ(program.finish(0), 0);
}

TEST_F(Clusters, ADeadControlAndADeadNodeDoNotEndTheCluster) {
  Child up({paths::command(), "up", "--nodes", "3", "--cpus", "1", "--memory", "64MiB", "--json"});
  const json cluster = json::parse(up.read_until("\n}\n"), nullptr, false);
  ASSERT_EQ(cluster["nodes"].size(), 3u);
  ::kill(cluster["control"]["pid"], SIGKILL);
  ::kill(cluster["nodes"][2]["pid"], SIGKILL);
  EXPECT_TRUE(eventually([&] {
    const Outcome nodes = troupe_command({"list", "nodes", "--where", "state = alive", "--json"});
    return nodes.code == 0 && json::parse(nodes.out)["rows"].size() == 2;
  })) << "control comes back and declares the node dead";
  const Outcome sum = troupe_command({"run", paths::cli_program(), "sum", "50"});
  EXPECT_EQ(sum.out, "40425\n") << sum.err;
  EXPECT_EQ(up.finish(SIGTERM), 0);
  expect_ended(cluster);
}

TEST_F(Clusters, AKilledLauncherTakesItsClusterAlong) {
  const json cluster = start({"--nodes", "2", "--cpus", "1"});
  ::kill(cluster["launcher"], SIGKILL);
  expect_ended(cluster);
  EXPECT_EQ(troupe_command({"status"}).code, 3);
  EXPECT_FALSE(fs::exists(cluster["file"].get<std::string>())) << "a dead cluster's file goes";
  for (const auto& entry : fs::directory_iterator(folder / "troupe"))
    fs::remove(entry.path());  // the log of a killed process is kept
  fs::remove(folder / "troupe");
}

TEST_F(Clusters, ADriverOnAHostWithoutANodeBringsADoorThatRunsNothing) {
  const json head = start({"--nodes", "2", "--cpus", "1"});
  const std::string token = head["join_tokens"][0];
  const Outcome nodes = command({paths::cli_program(), "nodes"},
                                {{"TROUPE_ADDRESS", token}, {"XDG_RUNTIME_DIR", ""}});
  EXPECT_EQ(nodes.out, "2\n") << "the tasks run on the two nodes, not on the door\n" << nodes.err;
  EXPECT_FALSE(says(nodes.err, token)) << "a secret is not printed";
  EXPECT_TRUE(eventually([&] { return living_nodes().size() == 2; })) << "the door goes";
  const Outcome again = command({paths::cli_program(), "sum", "5"}, {{"TROUPE_ADDRESS", token}});
  EXPECT_EQ(again.code, 1) << "each token is worth one node";
  EXPECT_FALSE(says(again.err, token)) << again.err;
  EXPECT_EQ(troupe_command({"stop"}).code, 0);
  expect_ended(head);
}

TEST_F(Clusters, ADriverOnAHostWithoutANodeTrainsWhereTheCpusAre) {
  const json head = start({"--nodes", "2", "--cpus", "1"});
  const std::string token = head["join_tokens"][0];
  const Outcome fit =
      command({paths::cli_program(), "fit"}, {{"TROUPE_ADDRESS", token}, {"XDG_RUNTIME_DIR", ""}});
  EXPECT_EQ(fit.out, "3 steps\n3 steps\n") << fit.err;
  EXPECT_EQ(troupe_command({"stop"}).code, 0);
  expect_ended(head);
}

TEST_F(Clusters, ABusyPortIsNamedAtOnceAndItsOwnerServesOn) {
  const json first = start(
      {"--nodes", "1", "--cpus", "1", "--listen", "127.0.0.1:" + std::to_string(free_port())});
  const std::string door = first["control"]["address"];
  const auto begin = std::chrono::steady_clock::now();
  const Outcome second = troupe_command({"start", "--head", "--memory", "64MiB", "--listen",
                                         door.substr(std::string("tcp://").size())});
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s);
  EXPECT_EQ(second.code, 5) << second.err;
  EXPECT_TRUE(says(second.err, door)) << second.err;
  EXPECT_TRUE(says(second.err, "in use")) << second.err;
  EXPECT_EQ(living_nodes().size(), 1u);
  EXPECT_EQ(troupe_command({"stop"}).code, 0);
  expect_ended(first);
}

/// Of two starts on one data folder one serves, and the other names the folder. The test makes
/// 200 pairs with TROUPE_LONG_TESTS, else two.
TEST_F(Clusters, OfTwoStartsOnOneDataFolderExactlyOneServes) {
  const std::string data = (folder / "data").string();
  const int pairs = std::getenv("TROUPE_LONG_TESTS") != nullptr ? 200 : 2;
  for (int pair = 0; pair < pairs; ++pair) {
    const std::vector<std::string> arguments{
        "start", "--head", "--json", "--memory", "64MiB", "--cpus", "1", "--data-folder", data};
    Outcome outcomes[2];
    {
      std::jthread other([&] { outcomes[1] = troupe_command(arguments); });
      outcomes[0] = troupe_command(arguments);
    }
    const int winner = outcomes[0].code == 0 ? 0 : 1;
    const Outcome& lost = outcomes[1 - winner];
    ASSERT_EQ(outcomes[winner].code, 0) << outcomes[0].err << outcomes[1].err;
    ASSERT_NE(lost.code, 0) << "pair " << pair << ": both serve";
    EXPECT_TRUE(says(lost.err, data)) << lost.err;
    const json cluster = json::parse(outcomes[winner].out, nullptr, false);
    EXPECT_EQ(living_nodes().size(), 1u);
    EXPECT_EQ(troupe_command({"stop"}).code, 0);
    expect_ended(cluster);
  }
  fs::remove_all(data);
}

TEST_F(Clusters, ATokenAdmitsOneNodeOnce) {
  const json head = start({"--nodes", "1", "--cpus", "1"});
  const std::string token = head["join_tokens"][0];
  const Outcome joined =
      troupe_command({"start", "--address", token, "--cpus", "1", "--memory", "64MiB", "--json"});
  ASSERT_EQ(joined.code, 0) << joined.err;
  const json node = json::parse(joined.out);
  EXPECT_EQ(node["cluster"], head["cluster"]);
  EXPECT_TRUE(eventually([&] { return living_nodes().size() == 2; }));
  const Outcome again = troupe_command({"start", "--address", token, "--memory", "64MiB"});
  EXPECT_EQ(again.code, 5) << again.err;
  EXPECT_FALSE(says(again.err, token)) << "no secret in an error";
  EXPECT_EQ(troupe_command({"start", "--address", "rubbish"}).code, 2);
  EXPECT_EQ(troupe_command({"stop", "--all"}).code, 0);
  expect_ended(head);
  expect_ended(node);
}

/// A node and a driver that joined by token hear of `troupe stop` at the head at once. Without that
/// they go on for 60 s, in which control may come back.
TEST_F(Clusters, WhatJoinedByTokenEndsWhenTheHeadEndsTheCluster) {
  const json head = start({"--nodes", "1", "--cpus", "1", "--join-tokens", "2"});
  ASSERT_EQ(head["join_tokens"].size(), 2u);
  Child node({paths::command(), "up", "--join", head["join_tokens"][0].get<std::string>(), "--cpus",
              "1", "--memory", "64MiB", "--json"});
  ASSERT_TRUE(says(node.read_until("\n}\n"), "nodes"));
  Outcome driver;
  std::jthread joined([&] {
    driver = command(
        {paths::cli_program(), "wait"},
        {{"TROUPE_ADDRESS", head["join_tokens"][1].get<std::string>()}, {"XDG_RUNTIME_DIR", ""}});
  });
  ASSERT_TRUE(eventually([&] {
    const json actors = rows("actors");
    return !actors.empty() && actors[0]["state"] == "alive";
  }));
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(troupe_command({"stop", "--address", head["file"].get<std::string>()}).code, 0);
  EXPECT_EQ(node.finish(0), 0);
  joined.join();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 20s);  // a machine may be busy
  EXPECT_EQ(driver.code, 1) << driver.out << driver.err;
  EXPECT_TRUE(says(driver.err, "the cluster was ended")) << driver.err;
  expect_ended(head);
}

/// With TROUPE_LONG_TESTS there are ten thousand detached actors, fifty of them alive; otherwise
/// a tenth of that.
TEST_F(Clusters, AControlOfManyActorsServesAgainSoonAfterItsDeath) {
  const bool all = std::getenv("TROUPE_LONG_TESTS") != nullptr;
  const int count = all ? 10'000 : 1'000, live = all ? 50 : 5;
  const std::string data = (folder / "data").string();
  const json head = start({"--nodes", "2", "--cpus", "4", "--resource",
                           "seat=" + std::to_string(live / 2 + live % 2), "--data-folder", data},
                          "256MiB");
  Child program({paths::command(), "run", paths::cli_program(), "crowd", std::to_string(count),
                 std::to_string(live)});
  ASSERT_EQ(program.line(), "spawned");
  ::kill(head["control"]["pid"], SIGKILL);
  program.say("\n");
  const std::string line = program.line();
  int answered = 0, written = 0, slowest = 0, known = 0;
  ASSERT_TRUE(std::istringstream(line) >> answered >> written >> slowest >> known) << line;
  std::printf(
      "%d actors: control answered after %d ms and had written after %d ms; slowest call "
      "meanwhile %d ms\n",
      count, answered, written, slowest);
  EXPECT_EQ(known, count) << "what it had acknowledged";
  EXPECT_LE(written, kLeeway * 2000);
  EXPECT_LE(slowest, kLeeway * 1000) << "calls do not wait for control";
  program.close_input();
  EXPECT_EQ(program.finish(0), 0);
  EXPECT_EQ(troupe_command({"stop"}).code, 0);
  expect_ended(head);
  fs::remove_all(data);
}

TEST_F(Clusters, NodesThatEndedWellAreNotWaitedForAfterARestart) {
  const std::string data = (folder / "data").string();
  for (int life = 0; life < 2; ++life) {
    const json head = start({"--nodes", "2", "--cpus", "1", "--data-folder", data});
    EXPECT_EQ(living_nodes().size(), 2u) << "those of before have said that they leave";
    EXPECT_EQ(troupe_command({"stop"}).code, 0);
    expect_ended(head);
  }
  fs::remove_all(data);
}

TEST_F(Clusters, ATokenOutlivesControlWhereItsUseIsWrittenDown) {
  const std::string data = (folder / "data").string();
  const json head =
      start({"--nodes", "1", "--cpus", "1", "--join-tokens", "2", "--data-folder", data});
  const auto join = [&](int token) {
    return troupe_command({"start", "--address", head["join_tokens"][token].get<std::string>(),
                           "--cpus", "1", "--memory", "64MiB"})
        .code;
  };
  EXPECT_EQ(join(0), 0);
  ::kill(head["control"]["pid"], SIGKILL);
  int second = -1;
  EXPECT_TRUE(eventually([&] { return (second = join(1)) == 0; })) << second;
  EXPECT_EQ(join(0), 5) << "it was used in control's first life";
  EXPECT_EQ(troupe_command({"stop", "--all"}).code, 0);
  fs::remove_all(data);
}

}  // namespace
}  // namespace troupe::cli
