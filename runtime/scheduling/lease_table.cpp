#include "troupe/runtime/scheduling/lease_table.hpp"

#include "troupe/runtime/base/assert.hpp"
#include "troupe/runtime/base/buggify.hpp"
#include "troupe/runtime/scheduling/internal/choose.hpp"

#include <algorithm>
#include <tuple>

namespace troupe::scheduling {
namespace {

constexpr std::size_t kCpu = 0;
constexpr std::size_t kMemory = 1;
constexpr std::size_t kFixed = 2;
constexpr std::uint32_t kSmallPerPlace = 15;

/// Overwrites the amounts in `into`, whose custom names must already be those of the table.
void write_amounts(const std::vector<std::int64_t>& amounts, std::size_t gpu_base,
                   Resources& into) {
  into.cpus = amounts[kCpu];
  into.memory = amounts[kMemory];
  for (std::size_t i = 0; i < into.custom.size(); ++i) into.custom[i].second = amounts[kFixed + i];
  into.gpus = 0;
  for (std::size_t i = gpu_base; i < amounts.size(); ++i) into.gpus += amounts[i];
}

/// Whether this node was chosen already, by another agent or by control: no other node is
/// considered.
bool is_for_here(const RequestKind& kind) {
  return kind.spilled || kind.dedicated;
}

/// Returns the policy's decision with its reason: about the cluster, or about this node alone.
Decision explained(const ClusterView& view, const NodeView& self, const ResourceDemand& demand,
                   const RequestKind& kind) {
  if (!is_for_here(kind)) return place(view, demand);
  ClusterView here;
  here.self = self.id;
  here.nodes.push_back(self);
  ResourceDemand anywhere = demand;
  anywhere.placement = Placement::any;
  return place(here, anywhere);
}

}  // namespace

LeaseTable::LeaseTable(LeaseOptions options, NodeId self)
    : options_(std::move(options)), self_(self) {
  normalize(options_.total);
  total_ = {options_.total.cpus, options_.total.memory};
  for (const auto& [name, amount] : options_.total.custom) {
    custom_names_.push_back(name);
    total_.push_back(amount);
  }
  gpu_base_ = total_.size();
  for (Amount left = options_.total.gpus; left >= kUnit; left -= kUnit) total_.push_back(kUnit);
  free_ = total_;
  view_.self = self_;
  NodeView row;
  row.id = self_;
  row.name = options_.name;
  row.labels = options_.labels;
  row.total = row.free = resources_of(total_);
  view_.update(std::move(row));
  refresh_view();
}

// --- amounts -----------------------------------------------------------------------------------

std::optional<LeaseTable::Amounts> LeaseTable::amounts_for(const Resources& need,
                                                           const Amounts& free) const {
  Amounts amounts(total_.size(), 0);
  amounts[kCpu] = need.cpus;
  amounts[kMemory] = need.memory;
  for (const auto& [name, amount] : need.custom) {
    if (amount == 0) continue;
    const auto at = std::lower_bound(custom_names_.begin(), custom_names_.end(), name);
    if (at == custom_names_.end() || *at != name) return std::nullopt;
    amounts[kFixed + static_cast<std::size_t>(at - custom_names_.begin())] += amount;
  }
  if (need.gpus > 0) {
    const std::vector<Amount> devices(free.begin() + static_cast<std::ptrdiff_t>(gpu_base_),
                                      free.end());
    const auto chosen = choose_gpus(devices, need.gpus);
    if (chosen.empty()) return std::nullopt;
    for (const std::int32_t device : chosen)
      amounts[gpu_base_ + static_cast<std::size_t>(device)] = std::min(need.gpus, kUnit);
  }
  for (std::size_t i = 0; i < amounts.size(); ++i)
    if (amounts[i] < 0 || amounts[i] > free[i]) return std::nullopt;
  return amounts;
}

std::vector<std::int32_t> LeaseTable::gpus_of(const Amounts& need) const {
  std::vector<std::int32_t> devices;
  for (std::size_t i = gpu_base_; i < need.size(); ++i)
    if (need[i] > 0) devices.push_back(static_cast<std::int32_t>(i - gpu_base_));
  return devices;
}

Resources LeaseTable::resources_of(const Amounts& amounts) const {
  Resources resources;
  resources.cpus = amounts[kCpu];
  resources.memory = amounts[kMemory];
  for (std::size_t i = 0; i < custom_names_.size(); ++i)
    resources.custom.emplace_back(custom_names_[i], amounts[kFixed + i]);
  for (std::size_t i = gpu_base_; i < amounts.size(); ++i) resources.gpus += amounts[i];
  return resources;
}

bool LeaseTable::in_debt() const {
  return std::any_of(leases_.begin(), leases_.end(), [](const auto& entry) {
    return !entry.second.blocked && entry.second.taken != entry.second.need;
  });
}

/// Gives free resources to the leases that run without all of theirs, oldest first.
void LeaseTable::settle_debts() {
  for (auto& [id, lease] : leases_) {
    if (lease.blocked) continue;
    for (std::size_t i = 0; i < free_.size(); ++i) {
      const std::int64_t got = std::min(free_[i], lease.need[i] - lease.taken[i]);
      lease.taken[i] += got;
      free_[i] -= got;
    }
  }
}

void LeaseTable::release(Lease& lease) {
  for (std::size_t i = 0; i < free_.size(); ++i) free_[i] += std::exchange(lease.taken[i], 0);
}

void LeaseTable::refresh_view() {
  NodeView& row = *view_.find(self_);
  write_amounts(free_, gpu_base_, row.free);
  row.gpu_free.assign(free_.begin() + static_cast<std::ptrdiff_t>(gpu_base_), free_.end());
  row.accepts = !draining_ && !in_debt();
  row.slow = slow_;
  row.waiting = static_cast<std::uint32_t>(waiting());
}

// --- owners ------------------------------------------------------------------------------------

void LeaseTable::request(OwnerId owner, LeaseKey key, const ResourceDemand& demand,
                         std::uint32_t backlog, Time now, RequestKind kind) {
  const RequestKey name{owner, key};
  if (backlog == 0) {
    requests_.erase(name);
  } else {
    const auto [at, is_new] = requests_.try_emplace(name);
    Request& request = at->second;
    if (is_new) {
      request.turn = next_turn_++;
      request.since = now;
    }
    request.demand = demand;
    normalize(request.demand.need);
    request.count = backlog;
    request.kind = kind;
    spilled_here_ += kind.spilled ? 1 : 0;
  }
  pump(now);
}

void LeaseTable::request_more(OwnerId owner, LeaseKey key, const ResourceDemand& demand,
                              std::uint32_t count, Time now, RequestKind kind) {
  const std::uint32_t had = wanted(owner, key);
  request(owner, key, demand, had + std::min(count, ~std::uint32_t{0} - had), now, kind);
}

void LeaseTable::spill_failed(OwnerId owner, LeaseKey key, const ResourceDemand& demand,
                              std::uint32_t count, Time now, RequestKind kind, NodeId node) {
  if (NodeView* row = node == self_ ? nullptr : view_.find(node); row != nullptr) {
    // Without an entry the node's row is a report that needs no correction.
    const auto unheard = unheard_.find(node);
    for (std::uint32_t i = 0; i < count && unheard != unheard_.end(); ++i) {
      if (!forget_unheard(unheard->second, demand)) break;
      give_back(*row, demand.need);
    }
    if (std::exchange(row->accepts, false)) avoided_[node] = now + options_.avoid;
  }
  if (count != 0) request_more(owner, key, demand, count, now, kind);
}

/// The node's row counts the lease: since it was spilled, or since the node reported it. When the
/// node has reported the lease's end already, the correction is one too many until its next
/// report.
void LeaseTable::returned_there(NodeId node, const ResourceDemand& demand, Time now) {
  NodeView* row = node == self_ ? nullptr : view_.find(node);
  if (row == nullptr) return;
  if (const auto unheard = unheard_.find(node); unheard != unheard_.end())
    forget_unheard(unheard->second, demand);
  give_back(*row, demand.need);
  pump(now);
}

bool LeaseTable::forget_unheard(std::deque<Unheard>& all, const ResourceDemand& demand) {
  const auto one = std::find_if(all.begin(), all.end(),
                                [&](const Unheard& u) { return u.taken == demand.need; });
  if (one == all.end()) return false;
  all.erase(one);
  return true;
}

std::optional<OwnerId> LeaseTable::holder_of(LeaseId lease) const {
  const auto at = leases_.find(lease);
  if (at == leases_.end()) return std::nullopt;
  return at->second.owner;
}

void LeaseTable::returned(LeaseId id, Time now) {
  const auto at = leases_.find(id);
  if (at == leases_.end() || at->second.ending) return;
  end_lease(id);
  pump(now);
}

/// Ends a lease. Its worker becomes idle, or is stopped if it was for an actor or its job is
/// over.
void LeaseTable::end_lease(LeaseId id) {
  const auto at = leases_.find(id);
  release(at->second);
  const auto worker = workers_.find(at->second.worker);
  if (worker != workers_.end()) {
    worker->second.lease = 0;
    if (worker->second.dedicated)
      stop(worker->first, worker->second, "its actor has ended");
    else if (worker->second.job_over)
      stop(worker->first, worker->second, "its job is over");
  }
  leases_.erase(at);
}

void LeaseTable::owner_died(OwnerId owner, Time now) {
  requests_.erase(requests_.lower_bound({owner, LeaseKey{}}),
                  requests_.upper_bound({owner, LeaseKey::of(~std::uint64_t{0})}));
  for (auto& [id, lease] : leases_) {
    if (lease.owner != owner || lease.ending) continue;
    lease.ending = true;  // its resources stay taken until the worker is dead
    stop(lease.worker, workers_.at(lease.worker), "the process it worked for has died");
  }
  pump(now);
}

// --- workers -----------------------------------------------------------------------------------

void LeaseTable::stop(WorkerId id, Worker& worker, std::string why) {
  if (!std::exchange(worker.stopping, true)) emit(StopWorker{id, std::move(why)});
}

void LeaseTable::worker_started(WorkerId id, Time now, bool dedicated, JobNumber job) {
  TROUPE_ASSERT(workers_.find(id) == workers_.end(), "a worker number was used twice");
  Worker worker;
  worker.dedicated = dedicated;
  worker.job = job;
  Worker& added = workers_.emplace(id, worker).first->second;
  shortage_.over();
  if (start_answered(dedicated, job) && !(dedicated && has_request(job, true)))
    stop(id, added, "its job is over");
  pump(now);
}

void LeaseTable::worker_start_failed(Time now, bool dedicated, JobNumber job) {
  start_answered(dedicated, job);
  no_start_before_ = now + options_.restart_delay;
  pump(now);
}

void LeaseTable::worker_start_refused(Time now, bool dedicated, JobNumber job, std::string why) {
  shortage_.met(now, std::move(why));
  worker_start_failed(now, dedicated, job);
}

/// Counts one answered start of the job. Returns whether the job has ended meanwhile.
bool LeaseTable::start_answered(bool dedicated, JobNumber job) {
  const auto at = starting_.find(job);
  if (at == starting_.end()) return false;
  Starting& starting = at->second;
  auto& count = dedicated ? starting.dedicated : starting.pool;
  if (count > 0) --count;
  const bool ended = starting.ended;
  if (starting.pool + starting.dedicated == 0) starting_.erase(at);
  return ended;
}

void LeaseTable::job_ended(JobNumber job, Time now) {
  std::erase_if(requests_, [job](const auto& entry) {
    return entry.second.kind.job == job && !entry.second.kind.dedicated;
  });
  if (const auto at = starting_.find(job); at != starting_.end()) at->second.ended = true;
  for (auto& [id, worker] : workers_) {
    if (worker.job != job || (worker.dedicated && has_request(job, true))) continue;
    if (worker.lease == 0) stop(id, worker, "its job is over");
    worker.job_over = true;
  }
  pump(now);
}

void LeaseTable::worker_died(WorkerId id, Time now) {
  const auto at = workers_.find(id);
  if (at == workers_.end()) return;
  const LeaseId held = at->second.lease;
  workers_.erase(at);
  shortage_.moved(now);
  if (held != 0) {
    const Lease& lease = leases_.at(held);
    if (!lease.ending) emit(LeaseLost{lease.owner, held, id});
    end_lease(held);
  }
  pump(now);
}

void LeaseTable::blocked(WorkerId id, Time now) {
  const auto worker = workers_.find(id);
  if (worker == workers_.end() || worker->second.lease == 0) return;
  Lease& lease = leases_.at(worker->second.lease);
  if (lease.blocked) return;
  lease.blocked = true;
  if (!TROUPE_MUTANT("leases.blocked_keeps_resources")) release(lease);
  pump(now);
}

void LeaseTable::unblocked(WorkerId id, Time now) {
  const auto worker = workers_.find(id);
  if (worker == workers_.end() || worker->second.lease == 0) return;
  Lease& lease = leases_.at(worker->second.lease);
  if (!lease.blocked) return;
  lease.blocked = false;
  pump(now);
}

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
    small += lease.need[kCpu] < kUnit ? 1u : 0u;
  }
  // Workers for less than a CPU take no place. The bound is for demands that take nothing at all.
  return job ? count : count - std::min(small, kSmallPerPlace * options_.max_workers);
}

bool LeaseTable::has_request(JobNumber job, bool dedicated) const {
  return std::any_of(requests_.begin(), requests_.end(), [job, dedicated](const auto& entry) {
    return entry.second.kind.job == job && entry.second.kind.dedicated == dedicated;
  });
}

// --- places among jobs -------------------------------------------------------------------------

bool LeaseTable::may_displace(const Request& request, JobNumber held, Time now) {
  const JobNumber job = request.kind.job;
  if (held == job) return false;
  if (!has_request(held)) return true;
  const std::uint32_t mine = running_pool_workers(job);
  if (running_pool_workers(held) > mine + 1) return true;
  if (mine > 0) return false;
  if (now >= request.since + options_.patience) return true;
  wake_at(request.since + options_.patience);
  return false;
}

void LeaseTable::make_place(const Request& request, Time now) {
  if (request.kind.dedicated || starting_pool(request.kind.job) >= request.count) return;
  if (running_pool_workers() < options_.max_workers) return;
  for (auto& [id, worker] : workers_) {
    if (worker.lease != 0 || worker.stopping || worker.dedicated) continue;
    if (!may_displace(request, worker.job, now)) continue;
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

// --- cluster -----------------------------------------------------------------------------------

void LeaseTable::update_node(const NodeView& node, Time now) {
  if (node.id == self_) return;
  view_.update(node);
  avoided_.erase(node.id);
  unheard_.erase(node.id);
  pump(now);
}

void LeaseTable::node_gone(NodeId node, Time now) {
  if (node == self_) return;
  view_.erase(node);
  avoided_.erase(node);
  unheard_.erase(node);
  pump(now);
}

/// Lifts the marks of refusals and of spilled leases whose time is over. A node that refused may
/// have reported its free resources before the refusal arrived, and have nothing new to report. A
/// node that got a lease back before it reported it has nothing new to report either.
void LeaseTable::trust_again(Time now) {
  for (auto at = avoided_.begin(); at != avoided_.end();) {
    if (now < at->second) {
      wake_at(at->second);
      ++at;
      continue;
    }
    if (NodeView* row = view_.find(at->first)) row->accepts = true;
    at = avoided_.erase(at);
  }
  for (auto at = unheard_.begin(); at != unheard_.end();) {
    std::deque<Unheard>& all = at->second;
    NodeView* row = view_.find(at->first);
    for (; !all.empty() && now >= all.front().until; all.pop_front())
      if (row != nullptr) give_back(*row, all.front().taken);
    if (all.empty()) {
      at = unheard_.erase(at);
      continue;
    }
    if (!requests_.empty()) wake_at(all.front().until);
    ++at;
  }
}

void LeaseTable::spill(const RequestKey& key, const Request& request, NodeId node, Time now) {
  emit(Spilled{key.first, key.second, node, request.demand});
  take(*view_.find(node), request.demand.need);
  std::deque<Unheard>& all = unheard_[node];
  all.push_back({request.demand.need, now + options_.unheard});
  wake_at(all.front().until);
}

/// Returns whether a waiting request from another agent is better placed anew, because another
/// node now has free what it needs.
bool LeaseTable::belongs_elsewhere(const Request& request, Time now) {
  if (now < request.since + options_.spill_wait) {
    wake_at(request.since + options_.spill_wait);
    return false;
  }
  return choose(view_, request.demand).kind == Decision::Kind::place;
}

void LeaseTable::set_draining(bool draining, Time now) {
  draining_ = draining;
  pump(now);
}

/// Returns whether this node is slow and another one could take the request when empty.
bool LeaseTable::waits_for_faster(const Request& request) const {
  return slow_ && avoids_slow(view_, request.demand);
}

void LeaseTable::set_slow(bool slow, Time now) {
  if (slow == slow_) return;
  slow_ = slow;
  if (slow)
    for (auto& [id, lease] : leases_) {
      if (lease.reclaiming || lease.ending || lease.dedicated) continue;
      lease.reclaiming = true;
      emit(ReclaimLease{lease.owner, id});
    }
  pump(now);
}

void LeaseTable::on_timer(Time now) {
  pump(now);
}

std::optional<Time> LeaseTable::next_deadline() const {
  return deadline_;
}

void LeaseTable::wake_at(Time time) {
  if (!deadline_ || time < *deadline_) deadline_ = time;
}

// --- the one place where things are granted ----------------------------------------------------

std::vector<LeaseTable::RequestEntry*> LeaseTable::queue() {
  std::vector<RequestEntry*> queue;
  queue.reserve(requests_.size());
  for (RequestEntry& entry : requests_) queue.push_back(&entry);
  std::sort(queue.begin(), queue.end(), [](const RequestEntry* a, const RequestEntry* b) {
    return a->second.turn < b->second.turn;
  });
  return queue;
}

/// Runs after every input. It pays debts and grants what can be granted, in turn. For the
/// requests that still wait it starts workers and reclaims leases; then it refuses hopeless ones
/// and stops workers that are not needed.
void LeaseTable::pump(Time now) {
  deadline_.reset();
  trust_again(now);
  settle_debts();
  refresh_view();
  while (pump_one(now)) {
  }
  std::vector<Waiting> waiting;  // start_workers() and reclaim_for_waiting() change no decision
  for (const RequestEntry* entry : queue())
    waiting.push_back({entry->first, entry->second, decide(entry->second)});
  start_workers(waiting, now);
  reclaim_for_waiting(waiting, now);
  while (const auto key = hopeless(now)) {
    emit(Refused{key->first, key->second, shortage_.why(), requests_.at(*key).count});
    requests_.erase(*key);
  }
  trim_idle();
  refresh_view();
  check();
}

/// Serves the first request in turn that can be served. Returns whether it served one.
bool LeaseTable::pump_one(Time now) {
  for (RequestEntry* entry : queue()) {
    const RequestKey key = entry->first;
    Request& request = entry->second;
    const Served served = serve(key, request, now);
    if (served == Served::yes) return true;
    if (served == Served::needs_worker) make_place(request, now);
    if (served == Served::waits && reserves(request, now)) return false;
  }
  return false;
}

/// Returns whether a waiting request keeps younger ones from taking resources now. A request that
/// has waited long does so in every second period of `patience`. So a large demand is served once
/// tasks are shorter than that, and a demand that waits for long tasks does not idle the node for
/// ever.
bool LeaseTable::reserves(const Request& request, Time now) {
  if (!could_fit(self_view(), request.demand) || waits_for_faster(request) ||
      decide(request).kind != Decision::Kind::busy)
    return false;
  const auto periods = (now - request.since) / options_.patience;
  if (requests_.size() > 1) wake_at(request.since + (periods + 1) * options_.patience);
  return periods % 2 == 1;
}

Decision LeaseTable::decide(const Request& request) const {
  if (request.kind.spilled && waits_for_faster(request))
    return {Decision::Kind::busy, self_, "the node is slow, and faster ones could take it"};
  return is_for_here(request.kind) ? choose_here(self_view(), request.demand)
                                   : choose(view_, request.demand);
}

LeaseTable::Served LeaseTable::serve(const RequestKey& key, Request& request, Time now) {
  const Decision decision = decide(request);
  switch (decision.kind) {
    case Decision::Kind::place:
      if (decision.node == self_) return grant_here(key, request, now);
      spill(key, request, decision.node, now);
      count_down(key, now);
      return Served::yes;
    case Decision::Kind::busy:
      if (request.kind.spilled &&
          (draining_ || waits_for_faster(request) || belongs_elsewhere(request, now)))
        break;
      return Served::waits;
    case Decision::Kind::infeasible: {
      const Duration limit = options_.infeasible_timeout;
      if (request.kind.spilled || request.kind.dedicated) break;
      if (limit < Duration::zero()) return Served::waits;
      if (now < request.since + limit) {
        wake_at(request.since + limit);
        return Served::waits;
      }
      break;
    }
  }
  const std::string why = decision.why.empty()
                              ? explained(view_, self_view(), request.demand, request.kind).why
                              : decision.why;
  emit(Refused{key.first, key.second, why, request.count});
  requests_.erase(key);
  return Served::yes;
}

LeaseTable::Served LeaseTable::grant_here(const RequestKey& key, Request& request, Time now) {
  const auto worker = idle_worker(request.kind.dedicated, request.kind.job);
  if (!worker) return Served::needs_worker;
  const auto amounts = amounts_for(request.demand.need, free_);
  TROUPE_ASSERT(amounts.has_value(), "the policy granted what is not free");
  Lease lease;
  lease.owner = key.first;
  lease.key = key.second;
  lease.worker = *worker;
  lease.need = lease.taken = *amounts;
  lease.dedicated = request.kind.dedicated;
  lease.since = now;
  for (std::size_t i = 0; i < free_.size(); ++i) free_[i] -= (*amounts)[i];
  const LeaseId id = next_lease_++;
  workers_.at(*worker).lease = id;
  emit(Granted{key.first, key.second, id, *worker, gpus_of(*amounts), request.demand});
  leases_.emplace(id, std::move(lease));
  count_down(key, now);
  refresh_view();
  return Served::yes;
}

void LeaseTable::count_down(const RequestKey& key, Time now) {
  Request& request = requests_.at(key);
  request.turn = next_turn_++;
  request.since = now;
  if (--request.count == 0) requests_.erase(key);
}

/// Starts workers for the requests whose resources are free but that lack a worker: one for each
/// request in turn, then the rest.
void LeaseTable::start_workers(const std::vector<Waiting>& waiting, Time now) {
  if (draining_ || in_debt()) return;
  Amounts left = free_;
  std::vector<JobNumber> pool, more;
  std::map<JobNumber, std::uint32_t> dedicated;
  std::size_t all = 0;
  for (const auto& [key, request, decision] : waiting) {
    if (!is_for_here(request.kind) && !fits_now(self_view(), request.demand)) continue;
    if (decision.kind != Decision::Kind::place || decision.node != self_) continue;
    for (std::uint32_t i = 0; i < request.count && all < 1024; ++i) {
      const auto amounts = amounts_for(request.demand.need, left);
      if (!amounts) break;
      for (std::size_t k = 0; k < left.size(); ++k) left[k] -= (*amounts)[k];
      ++all;
      if (request.kind.dedicated)
        ++dedicated[request.kind.job];
      else
        (i == 0 ? pool : more).push_back(request.kind.job);
    }
  }
  if (all == 0) return;
  if (now < no_start_before_) return wake_at(no_start_before_);
  for (const auto& [job, needed] : dedicated) {
    const auto starting = starting_.find(job);
    std::uint32_t count = starting == starting_.end() ? 0 : starting->second.dedicated;
    for (; count < needed && may_start_another(now); ++count) {
      ++starting_[job].dedicated;
      emit(StartWorker{true, job});
    }
  }
  pool.insert(pool.end(), more.begin(), more.end());
  start_pool_workers(pool, now);
}

/// Starts pool workers for these jobs, in order. Blocked workers and those of small demands do
/// not count against max_workers. Once there are that many processes, further ones start at a
/// limited rate: a deep chain of blocked tasks grows steadily instead of at once.
void LeaseTable::start_pool_workers(const std::vector<JobNumber>& needed, Time now) {
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

/// Returns whether one more process may start. Notes a shortage when max_processes is reached.
bool LeaseTable::may_start_another(Time now) {
  std::size_t processes = workers_.size();
  for (const auto& [job, starting] : starting_) processes += starting.pool + starting.dedicated;
  if (processes < options_.max_processes) return true;
  shortage_.met(now, "the node runs " + std::to_string(processes) +
                         " workers and actors, and has room for no more: " +
                         options_.process_limit + "; let go of actors, or use more nodes");
  return false;
}

/// Returns a request that waits in vain for a process: no process has come or gone for
/// process_patience, and no worker of its job runs that could serve it.
std::optional<LeaseTable::RequestKey> LeaseTable::hopeless(Time now) {
  if (!shortage_) return std::nullopt;
  for (const auto& [key, request] : requests_) {
    if (!request.kind.dedicated && running_pool_workers(request.kind.job) > 0) continue;
    const Decision decision = decide(request);
    if (decision.kind != Decision::Kind::place || decision.node != self_) continue;
    const Time until = *shortage_.patience_ends(request.since);
    if (until <= now) return key;
    wake_at(until);
  }
  return std::nullopt;
}

/// Reclaims as many leases as there are waiting requests, oldest leases first. Never leases of
/// the request's own key, and only when the request waits for something that a lease holds.
void LeaseTable::reclaim_for_waiting(const std::vector<Waiting>& waiting, Time now) {
  const auto may_be_asked_for = [](const Lease& lease) {
    return !lease.reclaiming && !lease.ending && !lease.dedicated && !lease.blocked;
  };
  if (std::none_of(leases_.begin(), leases_.end(),
                   [&](const auto& entry) { return may_be_asked_for(entry.second); }))
    return;
  std::size_t asked = 0;
  for (const auto& [id, lease] : leases_) asked += lease.reclaiming ? 1u : 0u;
  std::size_t wanted = 0;
  for (const auto& [key, request, decision] : waiting) {
    if (request.kind.dedicated) continue;
    if (decision.kind == Decision::Kind::infeasible) continue;
    if (decision.kind == Decision::Kind::busy &&
        (waits_for_faster(request) || !could_fit(self_view(), request.demand)))
      continue;
    if (decision.kind == Decision::Kind::place && starting_pool(request.kind.job) > 0) continue;
    wanted += request.count;
    for (auto& [id, lease] : leases_) {
      if (asked >= wanted) break;
      if (!may_be_asked_for(lease)) continue;
      if (RequestKey{lease.owner, lease.key} == key) continue;
      if (!may_start_or_displace(request, workers_.at(lease.worker).job, now)) continue;
      if (now < lease.since + options_.min_hold) {
        wake_at(lease.since + options_.min_hold);
        continue;
      }
      lease.reclaiming = true;
      ++asked;
      emit(ReclaimLease{lease.owner, id});
    }
  }
}

/// Stops idle workers beyond max_workers, which blocked chains leave behind. Also stops idle
/// dedicated workers whose actors ended before they began; the job's end may have come while they
/// waited.
void LeaseTable::trim_idle() {
  std::uint32_t running = running_pool_workers();
  std::optional<std::map<JobNumber, std::uint32_t>> awaited;  // number of actors that wait, by job
  for (auto& [id, worker] : workers_) {
    if (worker.lease != 0 || worker.stopping) continue;
    if (!worker.dedicated) {
      if (running <= options_.max_workers) continue;
      --running;
      stop(id, worker, "more workers than the node needs");
      continue;
    }
    if (!awaited) {
      awaited.emplace();
      for (const auto& [key, request] : requests_)
        if (request.kind.dedicated) (*awaited)[request.kind.job] += request.count;
    }
    if (std::uint32_t& left = (*awaited)[worker.job]; left > 0)
      --left;
    else
      stop(id, worker, "no actor waits for it any more");
  }
}

// --- observe -----------------------------------------------------------------------------------

std::vector<LeaseTable::Busy> LeaseTable::busy() const {
  std::vector<Busy> busy;
  for (const auto& [id, lease] : leases_)
    busy.push_back({lease.worker, resources_of(lease.need).memory, lease.since, lease.dedicated});
  return busy;
}

std::size_t LeaseTable::waiting() const {
  std::size_t count = 0;
  for (const auto& [key, request] : requests_) count += request.count;
  return count;
}

std::vector<LeaseKey> LeaseTable::keys_of(OwnerId owner) const {
  std::vector<LeaseKey> keys;
  for (auto at = requests_.lower_bound({owner, LeaseKey{}});
       at != requests_.end() && at->first.first == owner; ++at)
    keys.push_back(at->first.second);
  return keys;
}

std::uint32_t LeaseTable::wanted(OwnerId owner, LeaseKey key) const {
  const auto at = requests_.find({owner, key});
  return at == requests_.end() ? 0 : at->second.count;
}

std::string LeaseTable::explain(OwnerId owner, LeaseKey key) const {
  const auto at = requests_.find({owner, key});
  if (at == requests_.end()) return {};
  const Request& request = at->second;
  Decision decision = decide(request);
  if (decision.why.empty()) decision = explained(view_, self_view(), request.demand, request.kind);
  if (decision.kind != Decision::Kind::place) {
    if (decision.kind == Decision::Kind::busy && in_debt())
      return decision.why + "; tasks that were blocked run again and come first";
    return decision.why;
  }
  if (shortage_) return "waits for a process: " + shortage_.why();
  if (const auto starting = starting_.find(request.kind.job);
      starting != starting_.end() && starting->second.pool + starting->second.dedicated > 0)
    return "waits for a worker that is being started";
  return "waits for one of the " + std::to_string(options_.max_workers) +
         " workers, all of which are in use";
}

std::optional<std::string> LeaseTable::broken_invariant() const {
  Amounts sum = free_;
  for (const auto& [id, lease] : leases_) {
    for (std::size_t i = 0; i < sum.size(); ++i) {
      sum[i] += lease.taken[i];
      if (lease.taken[i] < 0 || lease.taken[i] > lease.need[i])
        return "lease " + id.str() + " holds more than it needs or less than nothing";
    }
    const auto worker = workers_.find(lease.worker);
    if (worker == workers_.end() || worker->second.lease != id)
      return "lease " + id.str() + " and its worker do not name each other";
  }
  for (std::size_t i = 0; i < sum.size(); ++i)
    if (free_[i] < 0 || sum[i] != total_[i])
      return "taken + free is not total for resource " + std::to_string(i);
  for (const auto& [id, worker] : workers_)
    if (worker.lease != 0 && leases_.find(worker.lease) == leases_.end())
      return "worker " + id.str() + " has a lease that is not there";
  return std::nullopt;
}

void LeaseTable::check() const {
  const auto broken = broken_invariant();
  TROUPE_ASSERT(!broken, "leases, workers and resources disagree");
}

}  // namespace troupe::scheduling
