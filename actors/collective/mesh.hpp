/// Mesh: one rank's groups in a world that is divided in three: data, tensor and pipeline parallel.
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

/// Null where a group has one rank alone. An error in any of them ends all of them.
struct Mesh {
  std::unique_ptr<Communicator> world;
  /// Ranks that have the same weights and other samples. Its operations run on a thread of their
  /// own, beside the computation.
  std::unique_ptr<Communicator> dp;
  std::unique_ptr<Communicator> tp;    ///< ranks that share each tensor
  std::unique_ptr<Communicator> pp;    ///< the stages of a pipeline, in order
  std::unique_ptr<Communicator> tied;  ///< first and last stage of a pipeline; null on others
  MeshShape shape;
  int dp_rank = 0, tp_rank = 0, pp_rank = 0;

  int rank() const noexcept { return (pp_rank * shape.dp + dp_rank) * shape.tp + tp_rank; }

  /// For programs that a launcher has started, one process a rank, all on one host. Blocks until
  /// the ranks have met over TCP, where rank 0 listens, and share memory.
  ///
  /// It reads torchrun's variables (RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR,
  /// MASTER_PORT), or Slurm's where RANK is not set (SLURM_PROCID, SLURM_STEP_NUM_TASKS or
  /// SLURM_NTASKS, SLURM_STEP_NUM_NODES or SLURM_NNODES). Rank 0 listens at MASTER_ADDR, or at all
  /// addresses of its host where that is none of them. Where torchrun's agent listens at
  /// MASTER_PORT itself, rank 0 takes 10000 + MASTER_PORT % 20000; under Slurm 127.0.0.1 and a port
  /// that the job's number gives. TROUPE_MASTER_PORT says another port.
  ///
  /// `dp` of 0 stands for the ranks that tp and pp leave. Operations have the timeout of any group.
  ///
  /// Throws InvalidArgument, one sentence: a variable that is missing or wrong, by name; a shape
  /// that does not divide the ranks; ranks on several hosts; a rank that another process has, or
  /// that contradicts rank 0 (that process alone: the others go on). Throws Unavailable when ranks
  /// have not come within the timeout, naming them; when the port is in use; or when rank 0 can make
  /// no memory for them, which on rank 0 itself is NoSpace. Throws TimedOut or WorkerDied when a
  /// rank stops or dies after all have met, while they make the mesh.
  TROUPE_API static Mesh from_environment(const MeshShape& shape = {.dp = 0},
                                          Duration timeout = std::chrono::seconds(60));
  /// The same with groups for memory of this rank's device, which all ranks have of one kind:
  /// those of NCCL for a GPU (nccl/nccl.hpp says what they are and throw).
  TROUPE_API static Mesh from_environment(const kernels::Device& device,
                                          const MeshShape& shape = {.dp = 0},
                                          Duration timeout = std::chrono::seconds(60));
};

/// Splits the world, four times at most; every rank of it calls this, and it blocks until all have.
/// The world may be null for a mesh of one rank. Throws InvalidArgument, with nothing split, when
/// the product of the shape is not the size of the world; what Communicator::split() throws.
TROUPE_API Mesh make_mesh(std::unique_ptr<Communicator> world, const MeshShape& shape);

}  // namespace troupe::collective
