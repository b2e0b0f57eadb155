/// Schedules of a pipeline as data: which rank computes what in which order, and what it sends.
///
///     const Schedule schedule = generate(ScheduleKind::one_forward_one_backward, /*p=*/4, /*m=*/8);
///     for (const Action& action : schedule[rank]) run(action);
///
/// p ranks have v stages each, and a step has m micro-batches. Stage s of the p * v lies on rank
/// s % p. Rules:
///  PIPE-1  sends and receives of a rank without a computation between them are one group: they are
///          asked for at once, and the rank goes on when all of them have ended (group_end());
///  PIPE-2  a send ends when its receive has been asked for, and not before: a rendezvous. The n-th
///          send of a rank to another one belongs to the n-th receive there;
///  PIPE-3  neighbouring stages on one rank (p = 1) hand over without a send;
///  PIPE-4  a stage's backward passes run in ascending order of micro-batches in all generated
///          schedules, so that sums of gradients have the bits of the plain run.
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
    B,      ///< I and W at once
    I,      ///< backward: the gradient of the stage's input
    W,      ///< backward: the gradients of its weights
    SendF,  ///< the stage's output to the next stage
    RecvF,  ///< the stage's input from the stage before
    SendB,  ///< the gradient of the stage's input to the stage before
    RecvB,  ///< the gradient of the stage's output from the next stage
  };
  Op op = F;
  int stage = 0;
  int micro = 0;
  friend bool operator==(const Action&, const Action&) = default;
};

/// One list for each rank.
using Schedule = std::vector<std::vector<Action>>;

enum class ScheduleKind : std::uint8_t {
  gpipe,                     ///< all forward passes, then all backward passes (Huang et al. 2019)
  one_forward_one_backward,  ///< 1F1B (Narayanan et al. 2019): min(m, p - rank) live micro-batches
  interleaved,               ///< 1F1B over v stages a rank (Narayanan et al. 2021, section 2.2)
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
/// The stage at the other end of a transfer.
constexpr int peer_stage(const Action& transfer) noexcept {
  return transfer.op == Action::SendF || transfer.op == Action::RecvB ? transfer.stage + 1
                                                                      : transfer.stage - 1;
}
/// The rank at the other end of a transfer.
constexpr int peer_rank(const Action& transfer, int p) noexcept {
  return rank_of_stage(peer_stage(transfer), p);
}
/// The end of the group of transfers that begins at `at` (PIPE-1); `at` where a computation stands.
TROUPE_API std::size_t group_end(const std::vector<Action>& actions, std::size_t at) noexcept;

/// A schedule with its sends and receives. Throws InvalidArgument, one sentence that says what to
/// change: sizes below 1, v > 1 without interleaved, interleaved with m that is no multiple of p,
/// more than 2^24 actions. Interleaved with v = 1 is 1F1B.
TROUPE_API Schedule generate(ScheduleKind kind, int p, int m, int v = 1);

/// `computations` (F, B, I, W alone) with sends and receives between ranks, each where its receiver
/// begins to need it when F and B take the same time: there 1F1B sends forward what it has while
/// the gradient comes back, in one group. No order of the result's rendezvous can deadlock. Throws
/// InvalidArgument for a list with transfers, and when the computations wait for each other in a
/// circle or for one that is missing.
TROUPE_API Schedule lower(const Schedule& computations);

}  // namespace troupe::train
