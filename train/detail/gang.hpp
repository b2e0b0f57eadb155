/// Messages between the supervisor of a gang (fit.cpp) and its ranks.
///
/// Each rank is a LoopActor. It sends each WorkerEvent when it happens, without being polled. A
/// loop begins when the supervisor sends WorkerOrder::begin, after every rank has got its place.
/// In a gang over nodes each rank has a door for the others; the order `key` comes first then.
#pragma once

#include "troupe/actors/loop_actor/output_place.hpp"
#include "troupe/runtime/options.hpp"
#include "troupe/runtime/ref.hpp"
#include "troupe/train/checkpoint.hpp"
#include "troupe/train/detail/run_setup.hpp"
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
  std::string devices;        ///< the GPUs to use, of those that another process holds; empty: own
  SavedModel start;
  RunSetup run;
  std::string listen;     ///< the host at which the rank's door listens; empty: one node, no door
  bool may_move = false;  ///< the supervisor may want a checkpoint at any time
  loops::OutputPlace output;  ///< for what the rank prints
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
  enum class Kind : std::uint8_t { ready, reported, passed, saved, restored, folder, ended };
  Kind kind = Kind::ended;
  Position at;
  Metrics metrics;
  SavedModel saved;
  std::uint64_t hash = 0;
  FolderEvent folder;
  std::vector<ToldError> error;  ///< ended: the loop's error; empty when it returned
  bool missed_others = false;    ///< ended: a collective operation failed because other ranks had
                                 ///< ended
  int missed_rank = -1;          ///< the rank that had left before that operation; -1: none
  int pid = 0;                   ///< ready: the rank's process
  std::string door;              ///< ready: where other ranks reach this one, as "ip:port"
};

/// Where a rank is, for the other ranks.
struct GangMember {
  std::string node;  ///< ranks of equal text share memory
  std::string door;
};

/// Orders to a waiting loop: over nodes `key`, then `begin`, then one `verdict` for each report.
struct WorkerOrder {
  enum class Kind : std::uint8_t { begin, verdict, gone, key };
  Kind kind = Kind::begin;
  bool go_on = false;          ///< verdict: whether the gang continues
  int missed_rank = -1;        ///< gone: no verdict comes any more, because this rank has returned
  std::vector<std::byte> key;  ///< key: the gang's secret, kGangKeyBytes
  std::vector<GangMember> members;  ///< begin: the ranks of a gang over nodes, else empty
};
inline constexpr std::size_t kGangKeyBytes = 32;

struct WorkerHandle {
  std::function<Ref<std::vector<WorkerEvent>>()> take;
  std::function<void(const WorkerOrder&)> tell;
  std::function<void(Position)> watch;
  std::function<void()> want_save;
  std::function<void()> kill;
};
using SpawnWorker = std::function<WorkerHandle(const WorkerSetup&, const ActorOptions&)>;

class Supervisor;

}  // namespace troupe::train::internal
