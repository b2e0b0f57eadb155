/// Reads from the environment what torchrun or Slurm tells a process about its rank and its world.
#pragma once

#include "troupe/runtime/base/environment.hpp"

#include <cstdint>
#include <string>

namespace troupe::collective::internal {

struct Launch {
  int rank = 0, world = 1;
  std::string host;  ///< where rank 0 listens; empty when the world is one rank
  int port = 0;
  std::string port_variable;  ///< the variable to change when the port is in use
  std::uint64_t job = 0;      ///< a number that is equal on the ranks of one start of one job only
};

/// Reads torchrun's variables when RANK is set, else Slurm's. Throws InvalidArgument, one sentence
/// that names the variable: missing, no number, out of range, ranks on several hosts.
///
/// Under torchrun the agent itself may listen at MASTER_PORT (TORCHELASTIC_USE_AGENT_STORE). Rank 0
/// then takes agent_port(MASTER_PORT). Slurm names no port. Unless MASTER_PORT is set, the port is
/// 61440 + (job * 16 + step) modulo 4096, after JAX's rule. TROUPE_MASTER_PORT overrides both.
Launch read_launch(const Environment& environment);

/// Returns a port for rank 0 that differs from the agent's `port`. Ports that differ by less than
/// 20,000 give different results. The result lies in 10000 to 29999, below the range from which
/// Linux takes ports for outgoing connections.
constexpr int agent_port(int port) noexcept {
  return 10'000 + port % 20'000;
}

}  // namespace troupe::collective::internal
