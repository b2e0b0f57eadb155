/// The agent's part of the hot paths (hot_paths.cpp): leases, counts of refs, and frames that are
/// carried between nodes. Each counted function does kAgentChunk rounds.
#pragma once

namespace troupe::guard {

inline constexpr int kAgentChunk = 64;
inline constexpr char kAgentPaths[] = "hot_lease hot_hold hot_carry";

/// Runs each path so often that the median of its instructions is steady.
void run_agent_paths(int times);

}  // namespace troupe::guard
