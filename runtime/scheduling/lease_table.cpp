#include "troupe/runtime/scheduling/lease_table.hpp"

#include "troupe/runtime/base/assert.hpp"
#include "troupe/runtime/base/buggify.hpp"
#include "troupe/runtime/scheduling/internal/choose.hpp"

#include <algorithm>
#include <span>
#include <tuple>

namespace troupe::scheduling {
namespace {

constexpr std::size_t kCpu = 0;
constexpr std::size_t kMemory = 1;
constexpr std::size_t kFixed = 2;

/// Overwrites the amounts in `into`, whose custom names must already be those of the table.
void write_amounts(std::span<const std::int64_t> amounts, std::size_t gpu_base, Resources& into) {
  into.cpus = amounts[kCpu];
  into.memory = amounts[kMemory];
  for (std::size_t i = 0; i < into.custom.size(); ++i) into.custom[i].second = amounts[kFixed + i];
  into.gpus = 0;
  for (std::size_t i = gpu_base; i < amounts.size(); ++i) into.gpus += amounts[i];
}

}  // namespace

LeaseTable::LeaseTable(LeaseOptions options, NodeId self)
    : options_(std::move(options)), self_(self) {
  normalize(options_.total);
  total_.push_back(options_.total.cpus);
  total_.push_back(options_.total.memory);
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
  refresh_free();
  refresh_view();
}

// --- amounts -----------------------------------------------------------------------------------

std::optional<LeaseTable::Amounts> LeaseTable::amounts_for(const Resources& need,
                                                           const Amounts& free) const {
  Amounts amounts;
  amounts.resize(total_.size());
  amounts[kCpu] = need.cpus;
  amounts[kMemory] = need.memory;
  for (const auto& [name, amount] : need.custom) {
    if (amount == 0) continue;
    const auto at = std::lower_bound(custom_names_.begin(), custom_names_.end(), name);
    if (at == custom_names_.end() || *at != name) return std::nullopt;
    amounts[kFixed + static_cast<std::size_t>(at - custom_names_.begin())] += amount;
  }
  if (need.gpus > 0) {
    const std::vector<Amount> devices(free.begin() + gpu_base_, free.end());
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
    const Lease& lease = entry.second;
    return !lease.blocked && !std::ranges::equal(lease.taken, lease.need);
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

/// Brings what a grant changes in this node's row up to date.
void LeaseTable::refresh_free() {
  NodeView& row = *view_.find(self_);
  write_amounts(free_, gpu_base_, row.free);
  row.gpu_free.assign(free_.begin() + gpu_base_, free_.end());
}

/// Does so for the rest of the row.
void LeaseTable::refresh_view() {
  NodeView& row = *view_.find(self_);
  row.accepts = !draining_ && !in_debt();
  row.slow = slow_;
  row.most_actors = most_actors();
  row.waiting = static_cast<std::uint32_t>(std::min<std::size_t>(waiting(), ~std::uint32_t{0}));
}

// --- owners ------------------------------------------------------------------------------------

void LeaseTable::request(OwnerId owner, LeaseKey key, const ResourceDemand& demand,
                         std::uint32_t backlog, Time now, RequestKind kind) {
  const RequestKey name{owner, key};
  if (backlog == 0) {
    waiting_.erase(name);
    return pump(now);
  }
  ResourceDemand normal = demand;
  normalize(normal.need);
  const Reach reach = reach_of(normal, kind);
  waiting_.put(name, std::move(normal), backlog, kind, reach, now);
  if (const auto worker = workers_.find(owner); worker != workers_.end())
    if (worker->second.lease == 0) worker->second.asked = now;
  spilled_here_ += kind.spilled ? 1 : 0;
  pump(now, &name);
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
    if (!refusals_.has(kind.job, node) && std::exchange(row->accepts, false))
      avoided_[node] = now + options_.avoid;
  }
  if (count != 0) request_more(owner, key, demand, count, now, kind);
}

void LeaseTable::job_refused(JobNumber job, NodeId node, std::string why, Time now) {
  if (node == self_ || view_.find(node) == nullptr) return;
  if (!refusals_.add(job, node, std::move(why))) return;
  waiting_.sort([this](const Request& one) { return reach_of(one.demand, one.kind); });
  look_at_all_ = true;
  pump(now);
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
  const Lease& lease = at->second;
  if (const auto worker = workers_.find(lease.owner); worker != workers_.end())
    if (worker->second.asked) worker->second.asked = now;
  // A lease of its own, and a request that outlives its call, come from threads that a task has left.
  if (const auto worker = workers_.find(lease.worker); worker != workers_.end())
    if (lease.owner == lease.worker || has_request(lease.worker)) worker->second.asked = now;
  if (!lease.dedicated)
    run_times_.add({lease.owner, lease.key},
                   now - (lease.reclaiming ? lease.asked_back : lease.since));
  end_lease(id);
  pump(now);
}

bool LeaseTable::is_under(WorkerId worker, LeaseId lease) const {
  const auto at = leases_.find(lease);
  return at != leases_.end() && at->second.worker == worker;
}

bool LeaseTable::not_in_use(WorkerId worker, LeaseId id, Time now) {
  if (!is_under(worker, id)) return false;
  const Lease& lease = leases_.at(id);
  if (!lease.is_late || lease.ending) return false;
  const OwnerId owner = lease.owner;
  end_lease(id);
  for (const LeaseKey key : keys_of(owner)) {
    const Request& request = *waiting_.find({owner, key});
    if (request.kind.spilled)
      refuse(request, "the process that asks is silent");
    else
      waiting_.erase({owner, key});
  }
  pump(now);
  return true;
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
  for (const LeaseKey key : keys_of(owner)) waiting_.erase({owner, key});
  run_times_.forget(owner);
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
  shortage_for_actors_.over();
  if (start_answered(dedicated, job) && !(dedicated && waiting_.wanted(job, true) != 0))
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
  std::vector<RequestKey> over;
  for (const auto& [key, request] : waiting_.all())
    if (request.kind.job == job && !request.kind.dedicated) over.push_back(key);
  for (const RequestKey& key : over) waiting_.erase(key);
  refusals_.forget(job);
  if (const auto at = starting_.find(job); at != starting_.end()) at->second.ended = true;
  for (auto& [id, worker] : workers_) {
    if (worker.job != job || (worker.dedicated && waiting_.wanted(job, true) != 0)) continue;
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
  shortage_for_actors_.moved(now);
  full_house_.over();
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

// --- cluster -----------------------------------------------------------------------------------

void LeaseTable::update_node(const NodeView& node, Time now) {
  if (node.id == self_) return;
  const NodeView* before = view_.find(node.id);
  const bool is_other =
      before == nullptr || before->total != node.total || before->labels != node.labels;
  view_.update(node);
  avoided_.erase(node.id);
  unheard_.erase(node.id);
  if (is_other)
    waiting_.sort([this](const Request& one) { return reach_of(one.demand, one.kind); });
  look_at_all_ = slow_ || (is_other && !refusals_.empty());
  pump(now);
}

void LeaseTable::node_gone(NodeId node, Time now) {
  if (node == self_) return;
  view_.erase(node);
  avoided_.erase(node);
  unheard_.erase(node);
  waiting_.sort([this](const Request& one) { return reach_of(one.demand, one.kind); });
  refusals_.forget(node);
  look_at_all_ = look_at_all_ || !refusals_.empty();
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
    if (!waiting_.empty()) wake_at(all.front().until);
    ++at;
  }
}

void LeaseTable::spill(const Request& request, NodeId node, Time now) {
  NodeView& row = *view_.find(node);
  // A slow node is chosen where no faster one is left, which only this node may know.
  const bool no_faster = row.slow && refusals_.has(request.kind.job);
  emit(Spilled{request.key.first, request.key.second, node, request.demand, no_faster});
  reservation_.met(request.key, now);
  take(row, request.demand.need);
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
  return choose(view_, request.demand, refusals_.of(request.kind.job)).kind ==
         Decision::Kind::place;
}

void LeaseTable::set_draining(bool draining, Time now) {
  draining_ = draining;
  look_at_all_ = true;
  pump(now);
}

/// Returns whether this node is slow and another one could take the request when empty.
bool LeaseTable::waits_for_faster(const Request& request) const {
  return slow_ && !request.kind.no_faster &&
         avoids_slow(view_, request.demand, refusals_.of(request.kind.job));
}

void LeaseTable::set_slow(bool slow, Time now) {
  if (slow == slow_) return;
  slow_ = slow;
  if (slow)
    for (auto& [id, lease] : leases_) {
      if (lease.reclaiming || lease.ending || lease.dedicated) continue;
      reclaim(id, lease, now);
    }
  look_at_all_ = true;
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

Decision LeaseTable::why_waits(const Request& request) const {
  if (!request.kind.is_for_here()) {
    // Of a demand for one node the sentence is about that node, also if it refuses the job.
    const bool for_one = request.demand.placement == Placement::node && !request.demand.soft;
    if (for_one || !refusals_.has(request.kind.job)) return place(view_, request.demand);
    return place(refusals_.without(view_, request.kind.job), request.demand);
  }
  ClusterView here;
  here.self = self_;
  here.nodes.push_back(self_view());
  ResourceDemand anywhere = request.demand;
  anywhere.placement = Placement::any;
  return place(here, anywhere);
}

// --- observe -----------------------------------------------------------------------------------

std::vector<LeaseTable::Busy> LeaseTable::busy() const {
  std::vector<Busy> busy;
  for (const auto& [id, lease] : leases_)
    busy.push_back({lease.worker, resources_of(lease.need).memory, lease.since, lease.dedicated});
  return busy;
}

bool LeaseTable::is_blocked(WorkerId worker) const {
  const auto at = workers_.find(worker);
  if (at == workers_.end()) return false;
  const auto lease = leases_.find(at->second.lease);
  return lease != leases_.end() && lease->second.blocked;
}

bool LeaseTable::is_impossible(OwnerId owner, LeaseKey key) const {
  const Request* request = waiting_.find({owner, key});
  return request != nullptr && decide(*request).kind == Decision::Kind::infeasible;
}

std::vector<LeaseKey> LeaseTable::keys_of(OwnerId owner) const {
  std::vector<LeaseKey> keys;
  for (auto at = waiting_.all().lower_bound({owner, LeaseKey{}});
       at != waiting_.all().end() && at->first.first == owner; ++at)
    keys.push_back(at->first.second);
  return keys;
}

std::uint32_t LeaseTable::wanted(OwnerId owner, LeaseKey key) const {
  const Request* request = waiting_.find({owner, key});
  return request == nullptr ? 0 : request->count;
}

std::string LeaseTable::explain(OwnerId owner, LeaseKey key) const {
  const Request* waits = waiting_.find({owner, key});
  if (waits == nullptr) return {};
  const Request& request = *waits;
  Decision decision = decide(request);
  if (decision.why.empty()) decision = why_waits(request);
  if (decision.kind != Decision::Kind::place) {
    if (decision.kind == Decision::Kind::busy && in_debt())
      return decision.why + "; tasks that were blocked run again and come first";
    return decision.why;
  }
  if (const Shortage& shortage = shortage_for(request.kind.dedicated))
    return "waits for a process: " + shortage.why();
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
