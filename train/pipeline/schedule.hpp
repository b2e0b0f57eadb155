/// Pipeline schedules as data: the list of actions of each rank, in order.
///
///     const Schedule schedule = generate(ScheduleKind::one_forward_one_backward, /*p=*/4, /*m=*/8);
///     for (const Action& action : schedule[rank]) run(action);
///
/// p ranks have v stages each, and a step has m micro-batches. Stage s of the p * v stages lies
/// on rank s % p. Rules:
///  PIPE-1  Sends and receives of a rank without a computation between them are one group: they are
///          posted together, and the rank continues when all of them have ended (group_end()).
///  PIPE-2  Transfers are rendezvous: a send ends only once its receive has been posted. The n-th
///          send of a rank to another one belongs to the n-th receive there.
///  PIPE-3  Neighbouring stages on one rank (p = 1) pass their data on without a send.
///  PIPE-4  In all generated schedules a stage's backward passes run in ascending order of
///          micro-batches, so that sums of gradients have the bits of the plain run.
#pragma once

#include "troupe/runtime/base/assert.hpp"
#include "troupe/train/layout.hpp"

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace troupe::train {

struct Action {
  enum Op : std::uint8_t {
    F,      ///< forward
    B,      ///< I and W in one action
    I,      ///< backward: gradient of the stage's input
    W,      ///< backward: gradients of the stage's weights
    SendF,  ///< sends the stage's output to the next stage
    RecvF,  ///< receives the stage's input from the stage before
    SendB,  ///< sends the gradient of the stage's input to the stage before
    RecvB,  ///< receives the gradient of the stage's output from the next stage
  };
  Op op = F;
  int stage = 0;
  int micro = 0;
  friend bool operator==(const Action&, const Action&) = default;
};

/// One list of actions for each rank.
using Schedule = std::vector<std::vector<Action>>;

enum class ScheduleKind : std::uint8_t {
  gpipe,                     ///< all forward passes, then all backward passes (Huang et al. 2019)
  one_forward_one_backward,  ///< 1F1B (Narayanan et al. 2019): min(m, p - rank) live micro-batches
  interleaved,               ///< 1F1B over v stages on each rank (Narayanan et al. 2021, section
                             ///< 2.2)
};

constexpr bool is_transfer(Action::Op op) noexcept {
  return op >= Action::SendF;
}
constexpr bool is_send(Action::Op op) noexcept {
  return op == Action::SendF || op == Action::SendB;
}
constexpr int rank_of_stage(int stage, int p) noexcept {
  return stage % p;
}
/// Returns the stage at the other end of a transfer.
constexpr int peer_stage(const Action& transfer) noexcept {
  return transfer.op == Action::SendF || transfer.op == Action::RecvB ? transfer.stage + 1
                                                                      : transfer.stage - 1;
}
/// Returns the rank at the other end of a transfer.
constexpr int peer_rank(const Action& transfer, int p) noexcept {
  return rank_of_stage(peer_stage(transfer), p);
}
/// Returns the end of the group of transfers that begins at `at` (PIPE-1); `at` itself if a
/// computation is there.
TROUPE_API std::size_t group_end(const std::vector<Action>& actions, std::size_t at) noexcept;

/// Returns a schedule with its sends and receives. Interleaved with v = 1 is 1F1B. Throws
/// InvalidArgument, one sentence that says what to change: for sizes below 1, v > 1 without
/// interleaved, interleaved with m that is not a multiple of p, or more than 2^20 forward passes.
TROUPE_API Schedule generate(ScheduleKind kind, int p, int m, int v = 1);

/// Returns `computations` (F, B, I and W alone) with sends and receives between ranks. Each
/// transfer stands where its receiver begins to need it if F and B take the same time. In 1F1B a
/// rank then sends its output forward while it receives a gradient, in one group. The result
/// cannot deadlock, in whatever order its rendezvous happen. Throws InvalidArgument for a list
/// with transfers, and when computations wait for each other in a cycle or for a missing one.
TROUPE_API Schedule lower(const Schedule& computations);

}  // namespace troupe::train
