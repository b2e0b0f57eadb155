/// Control, the nodes and the driver of a simulated cluster: the product's own, as processes of the
/// machines of a Network.
#include "tests/simulation/machine/network.hpp"
#include "tests/simulation/machine/program.hpp"
#include "troupe/runtime/agent/node.hpp"
#include "troupe/runtime/base/version.hpp"
#include "troupe/runtime/client/engine.hpp"
#include "troupe/runtime/control/server.hpp"
#include "troupe/runtime/os/launch.hpp"
#include "troupe/runtime/os/local_listener.hpp"

#include <fcntl.h>
#include <unistd.h>
#include <optional>

namespace troupe::sim::machine {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kControl = 0;

net::CurveKeys keys_of(std::size_t machine) {
  net::CurveKeys keys;
  keys.public_key = cluster::key_of(Network::id_of(machine));
  return keys;
}
std::string door_of(std::uint64_t seed, std::size_t node) {
  return "troupe-sim-" + std::to_string(getpid()) + "-" + std::to_string(seed) + "-" +
         std::to_string(node);
}

/// Starts a process of a machine, with a socket to its launcher. Returns the launcher's end.
Fd launch(Baton& baton, std::size_t machine, const char* role,
          std::function<void(Process&, Fd)> body) {
  auto ends = os::LocalSocket::pair().value();
  Process& process = baton.process(role);
  process.node = machine;
  const auto mine = std::make_shared<Fd>(std::move(ends.second));
  baton.start(process, "main", [&process, mine, body = std::move(body)] {
    body(process, std::move(*mine));
    Baton::current()->kill(process, 0);
  });
  return std::move(ends.first);
}

void run_control(std::size_t nodes, const Fd& launcher) {
  control::ServerOptions options;
  options.node = Network::id_of(kControl);
  options.keys = keys_of(kControl);
  options.build_id = TROUPE_VERSION_TEXT;
  for (std::size_t node = 1; node <= nodes; ++node)
    options.admitted.push_back({.node = Network::id_of(node),
                                .key = cluster::key_of(Network::id_of(node)),
                                .door = {},
                                .role = net::Role::node});
  std::unique_ptr<control::Server> server;
  {
    const cluster::WireScope scope(Network::current()->wire(kControl));
    server = control::Server::open(std::move(options)).value();
  }
  if (const auto ended = server->run(launcher.get()); !ended)
    Baton::current()->fail("control ended: " + ended.error().message());
}

void run_agent(std::size_t self, std::size_t nodes, std::uint64_t seed, agent::NodeOptions options,
               Fd launcher) {
  os::AgentConfig config;
  config.node = Network::id_of(self);
  config.name = options.name;
  config.keys = keys_of(self);
  config.control = {Network::id_of(kControl), keys_of(kControl).public_key, "tcp://sim:0"};
  config.listen = "tcp://127.0.0.1:*";
  config.socket_name = door_of(seed, self);
  config.together = static_cast<std::uint32_t>(nodes);
  config.embedded = true;
  std::optional<agent::Node> node;
  {
    const cluster::WireScope scope(Network::current()->wire(self));
    node.emplace(std::move(options), std::move(config));
  }
  const std::string why = node->serve_cluster(std::move(launcher));
  if (!why.empty()) Baton::current()->fail("a node ended by itself: " + why);
}

/// Waits until the nodes serve, runs the program's driver, and ends the nodes.
void run_driver(Process& self, std::vector<Fd> launched, std::uint64_t seed, Did& did) {
  Baton& baton = *Baton::current();
  try {
    for (std::size_t node = 1; node < launched.size(); ++node) {
      pollfd entry{launched[node].get(), POLLIN, 0};
      baton.wait({&entry, 1}, baton.now() + 30s, "the nodes to serve");
      (void)os::receive_ready(launched[node].get(), 0s, "a node").value();
    }
    auto visitor = os::knock(door_of(seed, Plan::kDriversNode)).value();
    self.socket = Fd(fcntl(visitor.socket.get(), F_DUPFD_CLOEXEC, 0));
    client::ClientEngine engine(
        {std::move(visitor.socket), wire::ProcessKind::driver, 0, {}, nullptr});
    baton.arm();
    drive(Context(engine), baton, seed, did);
    engine.finish(false);
  } catch (const std::exception& error) {
    if (!baton.node_is_gone()) baton.fail(std::string("the driver got an error: ") + error.what());
  }
}

}  // namespace

void start_nodes(Baton& baton, std::uint64_t seed, std::size_t nodes, Did& did) {
  new Network(baton, seed, nodes);  // lives as long as the child of the harness
  baton.disarm();
  Random random(seed ^ 0x6e6f646573ULL);
  std::vector<Fd> launched;
  launched.push_back(launch(baton, kControl, "control",
                            [nodes](Process&, Fd launcher) { run_control(nodes, launcher); }));
  for (std::size_t node = 1; node <= nodes; ++node) {
    agent::NodeOptions options;
    options.name = "node-" + std::to_string(node);
    options.cpus = static_cast<double>(1 + random.below(3));
    options.memory = Bytes{random.chance(0.2) ? 4u << 20 : 16u << 20};
    launched.push_back(
        launch(baton, node, "agent", [node, nodes, seed, options](Process&, Fd launcher) {
          run_agent(node, nodes, seed, options, std::move(launcher));
        }));
  }
  Process& driver = baton.process("driver");
  driver.node = Plan::kDriversNode;
  baton.start(driver, "main",
              [&driver, mine = std::make_shared<std::vector<Fd>>(std::move(launched)), seed, &did] {
                run_driver(driver, std::move(*mine), seed, did);
                Baton::current()->kill(driver, 0);
              });
}

}  // namespace troupe::sim::machine
