/// What the memory of this node is used for, and what follows when it runs short: the worker that
/// ends, memory that is touched ahead of its use, and the job and call site of each object.
///
///     memory.guard(now);                       // each pass; sooner at next_deadline()
///     memory.touch_ahead(/*is_idle=*/ready == 0);
///     memory.made(adopt, from);  memory.freed(location, now);
///
/// Invariants: WATCH-1 A worker ends for memory only while leases are out and less than the guard's
/// least is left, of the machine or of the node's own limit. Its sentence says so. WATCH-2 The
/// processes are looked at every 250 ms at most. WATCH-3 Memory is touched ahead only in a pass
/// without events. WATCH-4 An object counts once, for its first maker, until it is freed.
#pragma once

#include "troupe/objectstore/host.hpp"
#include "troupe/runtime/agent/memory_guard.hpp"
#include "troupe/runtime/agent/object_accounting.hpp"
#include "troupe/runtime/agent/options.hpp"
#include "troupe/runtime/agent/prefault_policy.hpp"
#include "troupe/runtime/agent/processes.hpp"
#include "troupe/runtime/scheduling/lease_table.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <tuple>

namespace troupe::agent {

class MemoryWatch {
 public:
  /// The parts below this one. `node`: its name, for texts.
  struct Below {
    const std::string& node;
    NodeEvents& events;
    const AgentOptions& options;
    objectstore::Host& host;
    const scheduling::LeaseTable& leases;
    const ActorHost& actors;
    Processes& processes;
  };
  explicit MemoryWatch(const Below& below) : below_(below) {}

  ObjectAccounting& accounting() noexcept { return accounting_; }
  PrefaultPolicy& prefault() noexcept { return prefault_; }

  // --- objects
  /// Notes a call site of the process. The process numbers its sites from 1 on, in order.
  void on_call_site(Process& from, const wire::CallSite& message);
  /// The object is in the store now.
  void made(const wire::Adopt& message, const Process& from);
  void freed(const wire::Location& location, Time now);
  /// Returns the call site that made the object; null: it is not known.
  const std::string* site_of(const wire::Location& location) const;

  // --- the loop
  /// Ends a worker when memory runs out, before the kernel's OOM killer chooses a process.
  void guard(Time now);
  /// Touches some memory for later use, if PrefaultPolicy says so. This thread does it: the time of
  /// a nice thread would be taken from the programs too, and a `SCHED_IDLE` thread may keep its
  /// process from ending.
  void touch_ahead(bool is_idle);
  Time next_deadline() const;

 private:
  /// What was added for an object and is subtracted when it is freed.
  struct Made {
    JobNumber job;
    std::uint32_t site = 0;
    std::uint64_t bytes = 0;
  };
  using Key = std::tuple<std::uint32_t, std::uint32_t, std::uint64_t>;
  static Key key_of(const wire::Location& at) { return {at.segment, at.slot, at.generation}; }

  const Below below_;
  MemoryGuard guard_;
  Time next_guard_{};
  PrefaultPolicy prefault_;
  ObjectAccounting accounting_;
  std::map<Key, Made> made_;
};

}  // namespace troupe::agent
