/// What a launcher tells a process of its place in the world, by variables of the environment.
#pragma once

#include "troupe/runtime/base/environment.hpp"

#include <cstdint>
#include <string>

namespace troupe::collective::internal {

struct Launch {
  int rank = 0, world = 1;
  std::string host;  ///< where rank 0 listens; empty when the world is one rank
  int port = 0;
  std::string port_variable;  ///< which a user changes when the port is in use
  std::uint64_t job = 0;      ///< equal on the ranks of one start of one job; others are strangers
};

/// Reads torchrun's variables when RANK is set, else Slurm's. Throws InvalidArgument, one sentence
/// that names the variable: missing, no number, out of range, ranks on several hosts.
///
/// Under torchrun the agent itself may listen at MASTER_PORT (TORCHELASTIC_USE_AGENT_STORE). Rank 0
/// then takes agent_port(MASTER_PORT). Slurm names no port: it is 61440 + job * 16 + step modulo
/// 4096, after JAX's rule, unless MASTER_PORT says one. TROUPE_MASTER_PORT overrides both.
Launch read_launch(const Environment& environment);

/// Differs from `port` and, for others within 20,000, from theirs. It lies in 10000 to 29999, from
/// where Linux takes no port for an outgoing connection.
constexpr int agent_port(int port) noexcept {
  return 10'000 + port % 20'000;
}

}  // namespace troupe::collective::internal
