/// What a gang's supervisor and its ranks tell each other.
///
/// Each rank is a LoopActor: its events come when they happen, and nobody asks twice. A loop begins
/// when the supervisor says so: then every rank has its place.
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
  bool verdicts = false;   ///< reports wait for reply()
  std::string metric;      ///< beside the loss, what ranks other than 0 report
  std::string rendezvous;  ///< abstract socket where rank 0 hands the shared memory out
  std::uint64_t generation = 1;
  std::int64_t timeout_ns = 30'000'000'000;
  Layout layout;
  double cpus = 0, gpus = 0;  ///< that are reserved for this rank
  SavedModel start;
};

/// How far a rank's loop has come. Both numbers only rise, and are equal on all ranks at equal
/// places of the loop.
struct Position {
  long step = 0;
  std::uint64_t operations = 0;  ///< collective ones that it has begun
  friend bool operator==(const Position&, const Position&) = default;
};
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
  std::vector<ToldError> error;  ///< ended: what the loop let out; empty when it returned
  bool missed_others = false;    ///< ended: a collective operation ended since others did
  int missed_rank = -1;          ///< the rank that had left by then, before the operation
};

/// What the loop is told while it waits: first to begin, then the verdict on each report in turn.
struct WorkerOrder {
  enum class Kind : std::uint8_t { begin, verdict, gone };
  Kind kind = Kind::begin;
  bool go_on = false;    ///< the verdict
  int missed_rank = -1;  ///< gone: no verdict comes any more, since that rank has returned
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
