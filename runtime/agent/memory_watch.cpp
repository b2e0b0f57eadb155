#include "troupe/runtime/agent/memory_watch.hpp"

#include "troupe/runtime/agent/machine_memory.hpp"
#include "troupe/runtime/base/machine.hpp"
#include "troupe/runtime/base/usable_cpus.hpp"
#include "troupe/runtime/os/role.hpp"

#include <algorithm>
#include <vector>

namespace troupe::agent {
namespace {

constexpr Duration kGuardInterval = std::chrono::milliseconds(250);

/// Returns the CPU time that all live processes and the other threads of this process have used.
/// The threads count since a transfer to another node keeps a thread of each agent busy, and no
/// program.
Duration cpu_time_beside_us(const Processes& processes) {
  Duration sum = cpu_time_of_other_threads();
  for (const auto& [index, process] : processes)
    sum += cpu_time_of(static_cast<pid_t>(process->told_pid));
  return sum;
}

/// Returns the resident bytes of the process that it does not share; the object store is shared.
std::uint64_t memory_of(const Process& process) {
  return unshared_memory_of(static_cast<pid_t>(process.told_pid)).count;
}

}  // namespace

// --- objects

void MemoryWatch::on_call_site(Process& from, const wire::CallSite& message) {
  if (message.number == from.sites.size() + 1 && message.number <= wire::kMaxCallSites)
    from.sites.push_back(accounting_.site(message.text));
}

void MemoryWatch::made(const wire::Adopt& message, const Process& from) {
  const wire::Location& at = message.location;
  const auto [entry, fresh] = made_.try_emplace(key_of(at));
  if (!fresh) return;
  Made& object = entry->second;
  object.bytes = at.length;
  object.job = from.job_number;
  object.site =
      message.site != 0 && message.site <= from.sites.size() ? from.sites[message.site - 1] : 0;
  accounting_.made(object.job, object.site, at.length, from.heard);
}

void MemoryWatch::freed(const wire::Location& location, Time now) {
  if (const auto known = made_.extract(key_of(location)))
    accounting_.freed(known.mapped().job, known.mapped().site, known.mapped().bytes, now);
}

const std::string* MemoryWatch::site_of(const wire::Location& location) const {
  const auto made = made_.find(key_of(location));
  return made == made_.end() ? nullptr : &accounting_.text_of(made->second.site);
}

// --- the loop

void MemoryWatch::guard(Time now) {
  if (now < next_guard_ || below_.leases.lease_count() == 0) return;
  next_guard_ = now + kGuardInterval;
  const std::uint64_t limit = below_.options.node_memory.count;
  MachineMemory machine = machine_memory();
  if (limit == 0 && !guard_.is_short(machine)) return;
  std::vector<WorkerMemory> uses;
  std::uint64_t sum = 0;
  for (const auto& lease : below_.leases.busy())
    if (const Process* worker = below_.processes.find(lease.worker);
        worker != nullptr && worker->pid > 0) {
      uses.push_back({worker->index, worker->told_pid, memory_of(*worker),
                      static_cast<std::uint64_t>(std::max<std::int64_t>(lease.memory, 0)),
                      lease.since, lease.dedicated, !worker->sentence.empty()});
      sum += uses.back().bytes;
    }
  if (limit != 0) machine = {limit, limit - std::min(limit, sum), "the node's limit"};
  if (!guard_.is_short(machine)) return;
  const auto victim = guard_.choose(machine, uses, now);
  if (!victim) return;
  if (Process* worker = below_.processes.find(victim->process)) {
    worker->sentence = os::describe_out_of_memory(victim->why + " (on " + below_.node + ")");
    below_.events.tell({EventKind::out_of_memory, Severity::warning, worker->sentence, worker->job,
                        below_.actors.actor_on(worker->index), worker->told_pid});
    below_.processes.kill(*worker);
  }
}

void MemoryWatch::touch_ahead(bool is_idle) {
  if (prefault_.next_deadline() == Time::max()) return;
  const Time now = steady_now();
  if (!is_idle) return prefault_.disturbed(now);
  if (!prefault_.due(now)) return;
  static const int cpus = static_cast<int>(usable_cpus());
  const Bytes piece = prefault_.look(now, cpu_time_beside_us(below_.processes), cpus);
  if (piece.count != 0) prefault_.prepared(below_.host.prefault(piece), steady_now());
}

Time MemoryWatch::next_deadline() const {
  const Time next = prefault_.next_deadline();
  return below_.leases.lease_count() != 0 ? std::min(next, next_guard_) : next;
}

}  // namespace troupe::agent
