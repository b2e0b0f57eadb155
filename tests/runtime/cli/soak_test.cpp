// Tests a load of everything that holds bytes, on three nodes with less memory than it needs.
// When everything is released, memory, disk, refs and descriptors are as they were before.
#include "tests/paths.hpp"
#include "tests/runtime/cli/clusters.hpp"

#include <algorithm>
#include <thread>

namespace troupe::cli {
namespace {

class Soak : public Clusters {
 protected:
  static std::size_t descriptors(int pid) {
    const fs::directory_iterator all("/proc/" + std::to_string(pid) + "/fd");
    return static_cast<std::size_t>(std::distance(begin(all), end(all)));
  }
  static std::vector<json> nodes() { return ask({"memory"})["nodes"].get<std::vector<json>>(); }
  /// Returns a text of everything that is not as on a new node; empty when there is nothing.
  static std::string left_over() {
    std::string left;
    for (const json& node : nodes()) {
      const auto expect_none = [&](const char* what, const json& number) {
        if (number != 0)
          left += node["node"].get<std::string>() + ": " + number.dump() + " " + what + "\n";
      };
      expect_none("objects", node["objects"]);
      expect_none("bytes in objects", node["object_bytes"]);
      expect_none("objects that wait for their views", node["waiting_objects"]);
      expect_none("refs", node["refs"]);
      expect_none("asks", node["asks_waiting"]);
      expect_none("objects on disk", node["spilled"]["objects"]);
      expect_none("bytes on disk", node["spilled"]["disk_bytes"]);
    }
    return left;
  }
  static std::string left_after_a_while() {
    std::string left;
    eventually([&left] { return (left = left_over()).empty(); });
    return left;
  }
  /// Waits until the agents know no process but themselves.
  static bool alone_after_a_while() {
    return eventually([] {
      const std::vector<json> all = nodes();
      return std::all_of(all.begin(), all.end(),
                         [](const json& node) { return node["processes"].size() <= 1; });
    });
  }
  /// Returns the bytes of extents of processes that are gone, and of the agent's own objects. The
  /// agent keeps free extents for objects of other nodes until a process needs memory.
  static std::uint64_t bytes_in_use() {
    const auto number = [](const json& of) { return of.get<std::uint64_t>(); };
    std::uint64_t bytes = 0;
    for (const json& node : nodes())
      bytes += number(node["extent_bytes"]) - number(node["ready_bytes"]) -
               number(node["agent_extents"]["free_bytes"]);
    return bytes;
  }
  /// Returns what is left on each node, and its holders.
  static std::string details() {
    return ask({"memory"}).dump(1) + ask({"list", "objects", "--limit", "20"}).dump(1);
  }
  void soak(unsigned seed, double seconds) {
    Child program({paths::command(), "run", paths::cli_program(), "soak", std::to_string(seed),
                   std::to_string(seconds)});
    const std::string said =
        program.read_until("kills\n", std::chrono::seconds(60 + static_cast<int>(seconds)));
    EXPECT_TRUE(says(said, "idle after")) << said;
    EXPECT_EQ(left_after_a_while(), "") << "while the driver lives\n" << said << details();
    program.close_input();
    EXPECT_EQ(program.finish(0), 0);
    EXPECT_TRUE(alone_after_a_while()) << ask({"memory"});
    EXPECT_EQ(left_over(), "");
    std::cout << said;
  }
};

TEST_F(Soak, EndsWithAllBytesBack) {
  const char* minutes = std::getenv("TROUPE_SOAK_MINUTES");
  const double short_form = std::getenv("TROUPE_LONG_TESTS") != nullptr ? 120 : 1;
  const double seconds = minutes != nullptr ? 60 * std::atof(minutes) : short_form;
  const char* chosen = std::getenv("TROUPE_SOAK_SEED");
  const unsigned seed = chosen != nullptr ? static_cast<unsigned>(std::atoi(chosen)) : 1;
  const json cluster = start({"--nodes", "3", "--cpus", "1"}, "16MiB");
  soak(seed, 0.3);  // things that are made once exist afterwards
  const auto all_descriptors = [&cluster] {
    std::size_t count = 0;
    for (const json& node : cluster["nodes"]) count += descriptors(node["pid"]);
    return count;
  };
  const std::size_t before = all_descriptors();
  const std::uint64_t bytes = bytes_in_use();
  soak(seed + 1, seconds);
  // An agent keeps the extents that it has made, 16 at most, each with a descriptor.
  EXPECT_TRUE(eventually([&] { return all_descriptors() <= before + 3 * 16; }))
      << all_descriptors() << " descriptors, and " << before << " before";
  EXPECT_TRUE(eventually([&] { return bytes_in_use() <= bytes; }))
      << bytes_in_use() << " bytes in use, and " << bytes << " before\n"
      << details();
}

TEST_F(Soak, DriversThatAreKilledWhileTheyStartLeaveNothing) {
  const json cluster = start({"--cpus", "1"}, "16MiB");
  for (int i = 0; i < 60; ++i) {
    Child driver({paths::command(), "run", paths::cli_program(), "hold"});
    std::this_thread::sleep_for(i * 500us);  // some kills are before, during and after each step
    EXPECT_EQ(driver.finish(SIGKILL), 128 + SIGKILL);
  }
  EXPECT_TRUE(alone_after_a_while()) << ask({"memory"});
}

}  // namespace
}  // namespace troupe::cli
