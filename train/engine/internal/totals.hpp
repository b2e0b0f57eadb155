/// Numbers that ranks exchange around a step: the counts of their micro-batches before it, and
/// losses after it.
#pragma once

#include "troupe/actors/collective/mesh.hpp"

#include <cstdint>
#include <span>
#include <string>

namespace troupe::train {
struct MicroBatch;
}

namespace troupe::train::internal {

/// The counts and fingerprints of one rank's arguments in a collective call.
struct Counts {
  std::int64_t targets = 0;
  std::int64_t samples = 0;
  std::int64_t batches = 0;  ///< kRefused: this rank refuses its inputs, and no rank continues
  std::uint64_t sizes = 0;   ///< equal on ranks whose micro-batches have equal sizes
  std::uint64_t values = 0;  ///< equal on ranks whose micro-batches have equal values
  std::uint64_t common = 0;  ///< equal on ranks whose other arguments are equal; must be equal on
                             ///< all
};
inline constexpr std::int64_t kRefused = -1;

/// The counts over all ranks, for one step. Ranks of one dp index have the same micro-batches,
/// which count once.
struct Totals {
  std::int64_t targets = 0;
  std::int64_t samples = 0;
  std::int64_t batches = 0;       ///< of the rank that has the most
  std::int64_t first_sample = 0;  ///< of this rank, when samples are numbered by dp index
  int refused_by = -1;            ///< the first rank that refuses its inputs; -1: none
  int differs = -1;  ///< the first rank whose other arguments differ from rank 0's; -1: none
  /// A sentence when ranks of one dp index have different micro-batches; otherwise empty.
  std::string mismatch;
};

/// Adds up the counts; a pure function. `all` has the counts of every rank of the mesh. Each dp
/// index's samples are counted on its first stage and its targets on its last stage.
Totals tally(std::span<const Counts> all, const collective::MeshShape& shape, int dp_rank);

/// Gathers the counts of all ranks and returns their totals. Every rank calls it. Throws errors
/// of the group.
Totals exchange(const collective::Mesh& mesh, const Counts& mine);

/// Sets Counts::sizes and Counts::values if several ranks share a dp index. Hashes ids whole, and
/// only the first and the last 64 KiB of other values.
void fingerprint(std::span<const MicroBatch> micros, const collective::MeshShape& shape,
                 Counts& counts);

/// Returns the group of all ranks; null when there is one rank.
collective::Communicator* world_of(const collective::Mesh& mesh) noexcept;

/// Starts to sum the loss over dp in place, in ascending order of ranks, so that every rank gets
/// the same bits.
collective::Work sum_over_dp(const collective::Mesh& mesh, double& loss);
/// Sends the sum that sum_over_dp() gave the last stage to every rank of tp and pp, and returns
/// it. Every rank calls it.
double loss_of_model(const collective::Mesh& mesh, double sum);

}  // namespace troupe::train::internal
