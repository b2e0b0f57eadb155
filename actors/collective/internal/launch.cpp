#include "troupe/actors/collective/internal/launch.hpp"

#include "troupe/actors/collective/internal/arena.hpp"
#include "troupe/runtime/base/error.hpp"

#include <charconv>
#include <string_view>

namespace troupe::collective::internal {
namespace {

constexpr int kMaxPort = 65'535;

[[noreturn]] void reject(const std::string& why) {
  throw InvalidArgument(Code::invalid_argument, why);
}

/// Adds a text to a hash: FNV-1a, with a zero byte after each text.
void mix(std::uint64_t& hash, std::string_view part) noexcept {
  for (const char c : part) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  hash *= 1099511628211u;
}

class Reader {
 public:
  explicit Reader(const Environment& environment) : environment_(environment) {}

  bool has(const char* name) const { return environment_.text(name).has_value(); }
  std::string text(const char* name) const { return environment_.text(name).value_or(""); }
  std::string needed(const char* name) const {
    const std::string value = text(name);
    if (value.empty())
      reject(std::string(name) +
             " is not set: start every rank by torchrun or srun, or set RANK, "
             "WORLD_SIZE, MASTER_ADDR and MASTER_PORT");
    return value;
  }
  int number(const char* name, int least, int greatest) const {
    const std::string value = needed(name);
    int n = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), n);
    if (error != std::errc() || end != value.data() + value.size() || n < least || n > greatest)
      reject(std::string(name) + " is '" + value + "' and must be a number from " +
             std::to_string(least) + " to " + std::to_string(greatest));
    return n;
  }
  /// Returns the number in the first variable that is set. If none is set, the error names the last
  /// one.
  int number_of_any(std::initializer_list<const char*> names, int least, int greatest) const {
    for (const char* name : names)
      if (has(name)) return number(name, least, greatest);
    return number(*(names.end() - 1), least, greatest);
  }

 private:
  const Environment& environment_;
};

void read_ranks(const Reader& read, Launch& launch) {
  launch.world = read.number("WORLD_SIZE", 1, kMaxSize);
  launch.rank = read.number("RANK", 0, launch.world - 1);
  int local_world = launch.world;
  if (read.has("LOCAL_WORLD_SIZE")) local_world = read.number("LOCAL_WORLD_SIZE", 1, launch.world);
  if (read.has("LOCAL_RANK")) (void)read.number("LOCAL_RANK", 0, local_world - 1);
  if (local_world != launch.world)
    reject("LOCAL_WORLD_SIZE is " + std::to_string(local_world) + " and WORLD_SIZE " +
           std::to_string(launch.world) +
           ": all ranks must be on one host, so start torchrun with --nnodes=1");
}

bool agent_listens(const Reader& read) {
  const std::string value = read.text("TORCHELASTIC_USE_AGENT_STORE");
  return value == "True" || value == "true" || value == "1";
}

Launch of_torchrun(const Reader& read) {
  Launch launch;
  read_ranks(read, launch);
  mix(launch.job, read.text("TORCHELASTIC_RUN_ID"));
  mix(launch.job, read.text("TORCHELASTIC_RESTART_COUNT"));
  if (launch.world == 1) return launch;
  launch.host = read.needed("MASTER_ADDR");
  const int port = read.number("MASTER_PORT", 1, kMaxPort);
  launch.port = agent_listens(read) ? agent_port(port) : port;
  launch.port_variable = agent_listens(read) ? "TROUPE_MASTER_PORT" : "MASTER_PORT";
  return launch;
}

Launch of_slurm(const Reader& read) {
  Launch launch;
  launch.world = read.number_of_any({"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}, 1, kMaxSize);
  launch.rank = read.number("SLURM_PROCID", 0, launch.world - 1);
  const char* nodes = read.has("SLURM_STEP_NUM_NODES") ? "SLURM_STEP_NUM_NODES" : "SLURM_NNODES";
  if (read.has(nodes) && read.number(nodes, 1, 1 << 20) != 1)
    reject(std::string(nodes) + " is " + read.text(nodes) +
           ": all ranks must be on one host, so start srun with --nodes=1");
  mix(launch.job, read.text("SLURM_JOB_ID"));
  mix(launch.job, read.text("SLURM_STEP_ID"));
  if (launch.world == 1) return launch;
  launch.host = read.has("MASTER_ADDR") ? read.needed("MASTER_ADDR") : "127.0.0.1";
  launch.port_variable = "MASTER_PORT";
  if (read.has("MASTER_PORT")) {
    launch.port = read.number("MASTER_PORT", 1, kMaxPort);
  } else {
    const auto job = static_cast<unsigned>(read.number("SLURM_JOB_ID", 0, 2'147'483'647));
    unsigned step = 0;
    if (read.has("SLURM_STEP_ID"))
      step = static_cast<unsigned>(read.number("SLURM_STEP_ID", 0, 2'147'483'647));
    launch.port = static_cast<int>(61'440 + (job * 16 + step) % 4096);
  }
  return launch;
}

}  // namespace

Launch read_launch(const Environment& environment) {
  const Reader read(environment);
  const bool slurm = !read.has("RANK") && read.has("SLURM_PROCID");
  Launch launch = slurm ? of_slurm(read) : (read.needed("RANK"), of_torchrun(read));
  if (read.has("TROUPE_MASTER_PORT") && launch.world > 1) {
    launch.port = read.number("TROUPE_MASTER_PORT", 1, kMaxPort);
    launch.port_variable = "TROUPE_MASTER_PORT";
  }
  return launch;
}

}  // namespace troupe::collective::internal
