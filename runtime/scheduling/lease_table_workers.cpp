/// The workers of LeaseTable: how many there are, which ones start, and which idle ones stop.
#include "troupe/runtime/scheduling/lease_table.hpp"

#include <algorithm>
#include <utility>

namespace troupe::scheduling {
namespace {

/// Workers that take no place start that much faster than other extra ones.
constexpr int kSmallStartsFaster = 5;

}  // namespace

std::optional<WorkerId> LeaseTable::idle_worker(bool dedicated, JobNumber job) const {
  for (const auto& [id, worker] : workers_)
    if (worker.lease == 0 && !worker.stopping && worker.dedicated == dedicated && worker.job == job)
      return id;
  return std::nullopt;
}

std::uint32_t LeaseTable::starting_pool(JobNumber job) const {
  const auto at = starting_.find(job);
  return at == starting_.end() ? 0 : at->second.pool;
}

std::uint32_t LeaseTable::starting_pool() const {
  std::uint32_t count = 0;
  for (const auto& [job, starting] : starting_) count += starting.pool;
  return count;
}

std::uint32_t LeaseTable::unblocked_pool_workers() const {
  std::uint32_t count = starting_pool();
  for (const auto& [id, worker] : workers_)
    if (!worker.dedicated && !worker.stopping)
      count += worker.lease == 0 || !leases_.at(worker.lease).blocked ? 1u : 0u;
  return count;
}

std::uint32_t LeaseTable::running_pool_workers(std::optional<JobNumber> job) const {
  std::uint32_t count = 0, small = 0;
  for (const auto& [number, starting] : starting_)
    if (!job || number == *job) count += starting.pool;
  for (const auto& [id, worker] : workers_) {
    if (worker.dedicated || worker.stopping || (job && worker.job != *job)) continue;
    if (worker.lease == 0) {
      ++count;
      continue;
    }
    const Lease& lease = leases_.at(worker.lease);
    if (lease.blocked) continue;
    ++count;
    small += lease.need.front() < kUnit ? 1u : 0u;
  }
  // Workers for less than a CPU take no place. The bound is for demands that take nothing at all.
  return job ? count : count - std::min(small, kSmallPerPlace * options_.max_workers);
}

/// Starts pool workers for these jobs, in order. Blocked workers and those of small demands do
/// not count against max_workers. Once there are that many processes, further ones start at a
/// limited rate: a deep chain of blocked tasks grows steadily instead of at once.
void LeaseTable::start_pool_workers(const std::vector<JobNumber>& needed, Time now) {
  if (needed.empty()) return;
  std::uint32_t running = running_pool_workers();
  auto processes = static_cast<std::uint32_t>(std::count_if(
      workers_.begin(), workers_.end(), [](const auto& entry) { return !entry.second.dedicated; }));
  std::map<JobNumber, std::uint32_t> on_their_way;
  for (const auto& [job, starting] : starting_) {
    processes += starting.pool;
    on_their_way[job] = starting.pool;
  }
  for (const JobNumber job : needed) {
    if (std::uint32_t& coming = on_their_way[job]; coming > 0) {
      --coming;
      continue;
    }
    if (running >= options_.max_workers || !may_start_another(now)) return;
    if (processes >= options_.max_workers) {
      if (now < next_extra_start_) return wake_at(next_extra_start_);
      next_extra_start_ = now + options_.extra_worker_interval;
    }
    ++starting_[job].pool;
    ++running;
    ++processes;
    emit(StartWorker{false, job});
  }
}

/// Starts a worker for a demand of less than a CPU although all places are taken: one at a time.
void LeaseTable::start_small_worker(Time now) {
  if (starting_pool() != 0 || running_pool_workers() < options_.max_workers) return;
  if (unblocked_pool_workers() >= (kSmallPerPlace + 1) * options_.max_workers) return;
  Need small = need_of(self_view().free);
  small.cpus = std::min(small.cpus, kUnit - 1);
  const Request* next = next_here(small, 0, true, false);
  for (int looks = kLooks; next != nullptr; next = next_here(small, next->turn + 1, true, false)) {
    if (is_placed_here(*next) && !is_held(*next)) break;
    if (--looks == 0) return;
  }
  if (next == nullptr) return;
  if (now < no_start_before_) return wake_at(no_start_before_);
  if (now < next_extra_start_) return wake_at(next_extra_start_);
  if (!may_start_another(now)) return;
  next_extra_start_ = now + options_.extra_worker_interval / kSmallStartsFaster;
  ++starting_[next->kind.job].pool;
  emit(StartWorker{false, next->kind.job});
}

std::uint32_t LeaseTable::processes(bool dedicated) const {
  auto count = static_cast<std::uint32_t>(std::count_if(
      workers_.begin(), workers_.end(),
      [dedicated](const auto& entry) { return entry.second.dedicated == dedicated; }));
  for (const auto& [job, starting] : starting_)
    count += dedicated ? starting.dedicated : starting.pool;
  return count;
}

/// Returns the number of actors for which this node has processes. Other workers may have taken
/// more than those that are kept for them.
std::uint32_t LeaseTable::most_actors() const {
  const std::uint32_t others = std::max(options_.kept_processes, processes(false));
  return options_.max_processes - std::min(options_.max_processes, others);
}

/// Returns whether one more process may start that is no actor's. Notes a shortage when
/// max_processes is reached.
bool LeaseTable::may_start_another(Time now) {
  const std::uint32_t count = processes(false) + processes(true);
  if (count < options_.max_processes) return true;
  shortage_.met(now, "the node runs " + std::to_string(count) +
                         " workers and actors, and has room for no more: " +
                         options_.process_limit + "; let go of actors, or use more nodes");
  return false;
}

/// The same for the process of an actor.
bool LeaseTable::may_start_actor(Time now) {
  const std::uint32_t actors = processes(true), others = processes(false);
  const bool room = actors < most_actors();
  full_house_.look(now, !room && !is_one_ending());
  if (room) return true;
  const std::string beside =
      options_.kept_processes > others
          ? " actors, keeps room for " + std::to_string(options_.kept_processes) + " tasks"
          : " actors and " + std::to_string(others) + " other workers";
  shortage_for_actors_.met(now, "the node runs " + std::to_string(actors) + beside +
                                    ", and has room for no more actors: " + options_.process_limit +
                                    "; let go of actors, or use more nodes");
  return false;
}

/// Returns whether a worker is about to end.
bool LeaseTable::is_one_ending() const {
  return std::any_of(workers_.begin(), workers_.end(), [this](const auto& entry) {
    const Worker& worker = entry.second;
    return worker.stopping || (worker.lease != 0 && leases_.at(worker.lease).ending);
  });
}

// --- places among jobs -------------------------------------------------------------------------

bool LeaseTable::may_displace(const Request& request, JobNumber held, Time now) {
  const JobNumber job = request.kind.job;
  if (held == job) return false;
  if (waiting_.wanted(held, false) == 0) return true;
  const std::uint32_t mine = running_pool_workers(job);
  if (running_pool_workers(held) > mine + 1) return true;
  if (mine > 0) return false;
  if (now >= request.since + options_.patience) return true;
  wake_at(request.since + options_.patience);
  return false;
}

void LeaseTable::make_place(const Request& request, Time now) {
  const JobNumber job = request.kind.job;
  if (request.kind.dedicated || starting_pool(job) >= waiting_.wanted(job, false)) return;
  if (running_pool_workers() < options_.max_workers) return;
  for (const bool submitted : {false, true})  // one with threads that have asked goes last
    for (auto& [id, worker] : workers_) {
      if (worker.lease != 0 || worker.stopping || worker.dedicated) continue;
      if (worker.asked.has_value() != submitted || !may_displace(request, worker.job, now))
        continue;
      if (now < request.since + options_.patience && submits(id, worker, now)) continue;
      return stop(id, worker, "another job needs its place");
    }
}

/// Returns whether the request can use a place or a worker after a lease of a worker of job
/// `held` has been returned.
bool LeaseTable::may_start_or_displace(const Request& request, JobNumber held, Time now) {
  const JobNumber job = request.kind.job;
  return held == job || starting_pool(job) > 0 || idle_worker(false, job) ||
         running_pool_workers() < options_.max_workers || may_displace(request, held, now);
}

// --- idle workers

bool LeaseTable::has_request(OwnerId owner) const {
  const auto first = waiting_.all().lower_bound({owner, LeaseKey{}});
  return first != waiting_.all().end() && first->first.first == owner;
}

/// Returns whether threads that a task has left in an idle worker submit tasks: it has a request or
/// a lease of its own, or had one within `patience`.
bool LeaseTable::submits(WorkerId id, Worker& worker, Time now) {
  if (has_request(id) ||
      std::ranges::any_of(leases_, [id](const auto& entry) { return entry.second.owner == id; }))
    worker.asked = now;
  if (!worker.asked || now >= *worker.asked + options_.patience) return false;
  wake_at(*worker.asked + options_.patience);
  return true;
}

/// Stops idle workers beyond max_workers, which blocked chains leave behind. Those in which tasks may
/// have left threads stop last. Also stops idle dedicated workers whose actors ended before they
/// began; the job's end may have come while they waited.
void LeaseTable::trim_idle(Time now) {
  if (workers_.size() == leases_.size()) return;  // none is idle
  const bool may_be_more = workers_.size() + starting_pool() > options_.max_workers;
  std::uint32_t running = may_be_more ? running_pool_workers() : 0;
  for (const bool asked : {false, true})
    for (auto& [id, worker] : workers_) {
      if (running <= options_.max_workers) break;
      if (worker.lease != 0 || worker.stopping || worker.dedicated) continue;
      if (worker.asked.has_value() != asked || submits(id, worker, now)) continue;
      --running;
      stop(id, worker, "more workers than the node needs");
    }
  std::map<JobNumber, std::uint64_t> awaited;  // number of actors that wait, by job
  for (auto& [id, worker] : workers_) {
    if (worker.lease != 0 || worker.stopping || !worker.dedicated) continue;
    std::uint64_t& left =
        awaited.try_emplace(worker.job, waiting_.wanted(worker.job, true)).first->second;
    if (left > 0)
      --left;
    else
      stop(id, worker, "no actor waits for it any more");
  }
}

}  // namespace troupe::scheduling
