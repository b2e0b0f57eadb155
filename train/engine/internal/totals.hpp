/// What ranks tell each other around a step: numbers of their micro-batches before it, losses after
/// it.
#pragma once

#include "troupe/actors/collective/mesh.hpp"

#include <cstdint>
#include <span>
#include <string>

namespace troupe::train {
struct MicroBatch;
}

namespace troupe::train::internal {

/// What a rank brings to a call in which all ranks take part.
struct Counts {
  std::int64_t targets = 0;
  std::int64_t samples = 0;
  std::int64_t batches = 0;  ///< kRefused: it refuses its inputs, and no rank goes on
  std::uint64_t sizes = 0;   ///< equal on ranks whose micro-batches have equal sizes
  std::uint64_t values = 0;  ///< equal on ranks whose micro-batches are equal
  std::uint64_t common = 0;  ///< equal on ranks whose other arguments are equal: all must be
};
inline constexpr std::int64_t kRefused = -1;

/// Of all ranks, for one step. Ranks of one dp index have the same micro-batches, which count once.
struct Totals {
  std::int64_t targets = 0;
  std::int64_t samples = 0;
  std::int64_t batches = 0;       ///< of the rank that has the most
  std::int64_t first_sample = 0;  ///< of this rank, when samples are numbered by dp index
  int refused_by = -1;            ///< the first rank that refuses its inputs; -1: none
  int differs = -1;  ///< the first rank whose other arguments are not rank 0's; -1: none
  /// A sentence when ranks of one dp index have different micro-batches; else empty.
  std::string mismatch;
};

/// Pure. `all` has the counts of every rank of the mesh. The first stage says how many samples a dp
/// index has, the last one how many targets.
Totals tally(std::span<const Counts> all, const collective::MeshShape& shape, int dp_rank);

/// Every rank calls it with its own numbers. Throws errors of the group.
Totals exchange(const collective::Mesh& mesh, const Counts& mine);

/// Fills in Counts::sizes and Counts::values, where several ranks share a dp index. Of numbers other
/// than ids only the first and last 64 KiB are compared.
void fingerprint(std::span<const MicroBatch> micros, const collective::MeshShape& shape,
                 Counts& counts);

/// The group of all ranks; null for one rank alone.
collective::Communicator* world_of(const collective::Mesh& mesh) noexcept;

/// Begins to add a loss over dp, in ascending order, in place: every rank gets the same bits.
collective::Work sum_over_dp(const collective::Mesh& mesh, double& loss);
/// The sum that sum_over_dp() gave the last stage, on every rank of tp and pp. Every rank calls it.
double loss_of_model(const collective::Mesh& mesh, double sum);

}  // namespace troupe::train::internal
