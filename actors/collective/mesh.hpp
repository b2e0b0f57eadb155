/// Mesh: one rank's groups in a world that is divided along three axes: data, tensor and pipeline
/// parallel.
///
///     Mesh mesh = make_mesh(join_shm_group(memory, rank, 1), {.dp = 2, .tp = 2});
///     mesh.dp->all_reduce(gradients).wait();
///
/// rank = (pp * DP + dp) * TP + tp: tensor-parallel ranks are neighbours.
#pragma once

#include "troupe/actors/collective/communicator.hpp"

#include <chrono>
#include <memory>

namespace troupe::collective {

struct MeshShape {
  int dp = 1, tp = 1, pp = 1;
  int ranks() const noexcept { return dp * tp * pp; }
};

/// The groups of one rank. A pointer is null where the group has only one rank. An error in any
/// group ends all of them.
struct Mesh {
  std::unique_ptr<Communicator> world;
  /// Ranks that have the same weights and different samples. Its operations run on a thread of the
  /// communicator, beside the computation.
  std::unique_ptr<Communicator> dp;
  std::unique_ptr<Communicator> tp;    ///< ranks that share each tensor
  std::unique_ptr<Communicator> pp;    ///< the stages of a pipeline, in order
  std::unique_ptr<Communicator> tied;  ///< first and last stage of a pipeline; null on others
  MeshShape shape;
  int dp_rank = 0, tp_rank = 0, pp_rank = 0;

  int rank() const noexcept { return (pp_rank * shape.dp + dp_rank) * shape.tp + tp_rank; }

  /// Makes the mesh of a program that a launcher has started, one process per rank, all on one
  /// host. Blocks until the ranks have met over TCP, where rank 0 listens, and share memory.
  ///
  /// It reads torchrun's variables (RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR,
  /// MASTER_PORT), or Slurm's where RANK is not set (SLURM_PROCID, SLURM_STEP_NUM_TASKS or
  /// SLURM_NTASKS, SLURM_STEP_NUM_NODES or SLURM_NNODES). Rank 0 listens at MASTER_ADDR, or at all
  /// addresses of its host if MASTER_ADDR is none of them. Where torchrun's agent listens at
  /// MASTER_PORT itself, rank 0 takes 10000 + MASTER_PORT % 20000. Under Slurm it takes 127.0.0.1
  /// and a port computed from the job's number. TROUPE_MASTER_PORT sets another port.
  ///
  /// `dp` of 0 means as many as tp and pp leave. `timeout` limits the rendezvous; operations have
  /// the default timeout of a group.
  ///
  /// Errors: InvalidArgument, which names the variable, for one that is missing or wrong; for a
  /// shape that does not divide the ranks; for ranks on several hosts; and on a process whose rank
  /// another process has, or that contradicts rank 0 (the other ranks go on). Unavailable, which
  /// names the ranks, if some have not come within the timeout; if the port is in use; or if rank 0
  /// cannot make the memory, which is NoSpace on rank 0 itself. TimedOut or WorkerDied if a rank
  /// stops or dies after all have met, while they make the mesh.
  TROUPE_API static Mesh from_environment(const MeshShape& shape = {.dp = 0},
                                          Duration timeout = std::chrono::seconds(60));
  /// Makes the same mesh with groups for the memory of this rank's device. All ranks have devices
  /// of one kind. For a GPU they are groups of NCCL, with the errors of nccl/nccl.hpp.
  TROUPE_API static Mesh from_environment(const kernels::Device& device,
                                          const MeshShape& shape = {.dp = 0},
                                          Duration timeout = std::chrono::seconds(60));
};

/// Splits the world into the groups of a mesh, with at most four splits. Every rank of the world
/// calls it, and it blocks until all have. The world may be null for a mesh of one rank.
/// Errors: throws InvalidArgument, with nothing split, when the product of the shape is not the
/// size of the world. Throws also as Communicator::split().
TROUPE_API Mesh make_mesh(std::unique_ptr<Communicator> world, const MeshShape& shape);

}  // namespace troupe::collective
