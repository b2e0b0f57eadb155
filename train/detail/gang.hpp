/// Messages between the supervisor of a gang (fit.cpp) and its ranks.
///
/// Each rank is a LoopActor. It sends each WorkerEvent when it happens, without being polled. A
/// loop begins when the supervisor sends WorkerOrder::begin, after every rank has got its place.
#pragma once

#include "troupe/runtime/options.hpp"
#include "troupe/runtime/ref.hpp"
#include "troupe/train/checkpoint.hpp"
#include "troupe/train/detail/told_error.hpp"
#include "troupe/train/layout.hpp"
#include "troupe/train/metrics.hpp"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace troupe::train::internal {

struct WorkerSetup {
  int rank = 0;
  int world = 1;
  int incarnation = 0;
  bool verdicts = false;   ///< report() waits for a WorkerOrder::verdict
  std::string metric;      ///< the metric that ranks other than 0 report, beside the loss
  std::string rendezvous;  ///< abstract socket over which rank 0 hands out the shared memory
  std::uint64_t generation = 1;
  std::int64_t timeout_ns = 30'000'000'000;
  Layout layout;
  double cpus = 0, gpus = 0;  ///< reserved for this rank
  SavedModel start;
};

/// Progress of a rank's loop. Both numbers only grow, and they are equal on all ranks at equal
/// places of the loop.
struct Position {
  long step = 0;
  std::uint64_t operations = 0;  ///< collective operations that the loop has begun
  friend bool operator==(const Position&, const Position&) = default;
};
/// Returns whether `a` is an earlier place of the loop than `b`.
inline bool before(Position a, Position b) noexcept {
  return a.step < b.step || a.operations < b.operations;
}

struct WorkerEvent {
  enum class Kind : std::uint8_t { ready, reported, passed, saved, restored, ended };
  Kind kind = Kind::ended;
  Position at;
  Metrics metrics;
  SavedModel saved;
  std::uint64_t hash = 0;
  std::vector<ToldError> error;  ///< ended: the loop's error; empty when it returned
  bool missed_others = false;    ///< ended: a collective operation failed because other ranks had
                                 ///< ended
  int missed_rank = -1;          ///< the rank that had left before that operation; -1: none
};

/// Orders to a waiting loop: first `begin`, then one `verdict` for each report.
struct WorkerOrder {
  enum class Kind : std::uint8_t { begin, verdict, gone };
  Kind kind = Kind::begin;
  bool go_on = false;    ///< verdict: whether the gang continues
  int missed_rank = -1;  ///< gone: no verdict comes any more, because this rank has returned
};

struct WorkerHandle {
  std::function<Ref<std::vector<WorkerEvent>>()> take;
  std::function<void(const WorkerOrder&)> tell;
  std::function<void(Position)> watch;
  std::function<void()> kill;
};
using SpawnWorker = std::function<WorkerHandle(const WorkerSetup&, const ActorOptions&)>;

class Supervisor;

}  // namespace troupe::train::internal
