/// LeaseTable's answer to every input: what is granted, passed on and refused, which workers start
/// and stop, and which leases are asked back.
#include "troupe/runtime/base/assert.hpp"
#include "troupe/runtime/scheduling/internal/choose.hpp"
#include "troupe/runtime/scheduling/lease_table.hpp"

#include <algorithm>

namespace troupe::scheduling {
namespace {

constexpr std::uint64_t kNobody = ~std::uint64_t{0};
/// For how many different demands a change asks whether their resources can gather soon.
constexpr int kGathers = 4;
/// The part of its waiting time that a request may hold others back without known run times.
constexpr int kTrials = 20;
/// When a search goes on that has looked at kLooks requests in vain.
constexpr Duration kLookOn = std::chrono::milliseconds(5);
/// How many leases may wait for workers that are not there yet.
constexpr std::size_t kMostLacking = 1024;

}  // namespace

/// Runs after every input. It pays debts and grants what can be granted, in turn. For the
/// requests that still wait it starts workers and reclaims leases; then it refuses hopeless ones
/// and stops workers that are not needed. `changed`: a request that is new or was replaced.
void LeaseTable::pump(Time now, const RequestKey* changed) {
  deadline_.reset();
  trust_again(now);
  settle_debts();
  refresh_free();
  refresh_view();
  serve_waiting(now, changed);
  if (changed != nullptr) look_at(*changed, now);
  if (std::exchange(look_at_all_, false)) look_at_doubtful(now);
  start_workers(now);
  ask_workers(now);
  reclaim_for_waiting(now);
  refuse_hopeless(now);
  trim_idle(now);
  waiting_.tidy();
  refresh_view();
  check();
}

/// Looks at one request, which may have to be refused although nothing is free for it.
void LeaseTable::look_at(const RequestKey& key, Time now) {
  Request* request = waiting_.find(key);
  if (request == nullptr || (is_held(*request) && request->reach != Reach::nowhere)) return;
  if (serve(*request, now) == Served::needs_worker) make_place(*request, now);
}

/// Looks at the requests of other agents, which go back when this node drains or is slow. Looks at
/// those that no node may be left for since nodes refuse their job.
void LeaseTable::look_at_doubtful(Time now) {
  std::vector<RequestKey> doubtful;
  for (const auto& [key, request] : waiting_.all())
    if (request.kind.spilled ||
        (request.reach == Reach::nowhere && refusals_.has(request.kind.job)))
      doubtful.push_back(key);
  for (const RequestKey& key : doubtful) look_at(key, now);
}

// --- the order of service

void LeaseTable::serve_waiting(Time now, const RequestKey* changed) {
  find_reserver(now);
  if (waiting_.empty()) {
    serve_on_at_ = start_on_at_ = 0;
    return;
  }
  refuse_infeasible(now);
  if (changed != nullptr && waiting_.wanted() == 1 && waiting_.find(*changed) != nullptr) {
    serve_on_at_ = 0;
    return;  // look_at() comes for the only one
  }
  const std::uint64_t stopped = serve_from(0, now);
  serve_on_at_ = stopped == 0 ? 0 : serve_from(std::max(serve_on_at_, stopped), now);
  if (serve_on_at_ != 0) wake_at(now + kLookOn);
}

/// Serves what can be served from this turn on. Returns the turn at which it stopped because it
/// had looked at kLooks requests in vain; 0: it has come to the end.
std::uint64_t LeaseTable::serve_from(std::uint64_t turn, Time now) {
  Search search;
  look_around(search);
  int looks = kLooks;
  while (Request* next = next_to_serve(search, turn)) {
    if (looks == 0) return next->turn;
    turn = next->turn + 1;
    const Group group{next->kind.job, next->kind.dedicated};
    const Served served = serve(*next, now);
    if (served == Served::yes) {
      if (waiting_.empty()) return 0;
      find_reserver(now);
      look_around(search);
      continue;
    }
    const auto asked = std::ranges::lower_bound(search.asked, group);
    if (served == Served::needs_worker && (asked == search.asked.end() || *asked != group)) {
      search.asked.insert(asked, group);
      make_place(*next, now);
    }
    --looks;
  }
  return 0;
}

void LeaseTable::look_around(Search& search) const {
  search.has_others = false;
  for (const NodeView& node : view_.nodes) {
    if (node.id == self_) {
      search.here = need_of(node.free);
      search.is_open = node.accepts;
    } else if (node.accepts) {
      const Need free = need_of(node.free);
      search.elsewhere = search.has_others ? most(search.elsewhere, free) : free;
      search.has_others = true;
    }
  }
  search.idle.clear();
  for (const auto& [id, worker] : workers_)
    if (worker.lease == 0 && !worker.stopping)
      search.idle.push_back({worker.job, worker.dedicated});
  std::ranges::sort(search.idle);
  search.may_displace = !search.idle.empty() && running_pool_workers() >= options_.max_workers;
}

/// Returns the first request from this turn on that may be served, by its amounts.
LeaseTable::Request* LeaseTable::next_to_serve(const Search& search, std::uint64_t from) const {
  Request* next = nullptr;
  const auto holds = [](const std::vector<Group>& groups, const Group& group) {
    return std::ranges::binary_search(groups, group);
  };
  const auto consider = [&](const WaitingRequests::Line& line, const Need& bound) {
    Request* found = first_not_held(line, bound, from);
    if (found != nullptr && (next == nullptr || found->turn < next->turn)) next = found;
  };
  for (const auto& [group, lines] : waiting_.groups()) {
    const bool asks = search.may_displace && !group.dedicated && !holds(search.asked, group);
    if (search.is_open && (asks || holds(search.idle, group))) consider(lines.here, search.here);
    if (!search.has_others || group.dedicated) continue;
    consider(lines.here, search.elsewhere);
    consider(lines.away, search.elsewhere);
  }
  return next;
}

LeaseTable::Request* LeaseTable::first_not_held(const WaitingRequests::Line& line,
                                                const Need& bound, std::uint64_t from) const {
  Request* found = line.first(bound, from);
  if (found == nullptr || found->turn <= held_after_) return found;
  const Need nothing = least(bound, Need{});
  int looks = kLooks;
  found = line.first(nothing, std::max(from, held_after_ + 1));
  while (found != nullptr && is_held(*found))
    found = --looks == 0 ? nullptr : line.first(nothing, found->turn + 1);
  return found;
}

/// Finds the request that keeps younger ones from taking resources now: the oldest one that has
/// waited long, whose resources can gather soon, and whose reservation is due. Of equal demands
/// the oldest speaks for all.
void LeaseTable::find_reserver(Time now) {
  held_after_ = kNobody;
  if (waiting_.all().size() < 2) return;  // nobody to hold back
  for (const auto& [group, lines] : waiting_.groups()) {
    int looks = kLooks, gathers = kGathers;
    const Request* before = nullptr;
    const Request* next = lines.here.first(kAnyNeed);
    for (; next != nullptr && next->turn < held_after_ && --looks != 0;
         next = lines.here.first(kAnyNeed, next->turn + 1)) {
      if (now - next->since < options_.patience) break;
      if (before != nullptr && before->demand.need == next->demand.need) continue;
      if (!could_fit(self_view(), next->demand) || waits_for_faster(*next) ||
          decide(*next).kind != Decision::Kind::busy)
        continue;
      before = next;
      if (!reservation_.may_hold(next->key, now)) continue;
      if (gathers-- == 0) break;
      const std::optional<Duration> length = gathers_within(*next, now);
      if (!length) continue;
      reservation_.hold(next->key, *length, now);
      held_after_ = next->turn;
      wake_at(reservation_.until());
      break;
    }
  }
}

/// Returns how long a reservation of the request lasts; nullopt: its resources do not gather soon.
std::optional<Duration> LeaseTable::gathers_within(const Request& request, Time now) const {
  const Duration trial = (now - request.since) / kTrials;
  const Duration least = options_.patience / kTrials;
  Amounts known = free_, tried = free_;
  Duration longest{};
  const auto add = [](Amounts& sum, const Amounts& taken) {
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += taken[i];
  };
  for (const auto& [id, lease] : leases_) {
    const Duration so_far = kept(lease, request.key, now);
    if (so_far <= trial) add(tried, lease.taken);
    if (lease.dedicated) continue;
    const auto time = run_times_.find({lease.owner, lease.key});
    if (!time || *time > options_.patience || so_far > 2 * *time) continue;
    add(known, lease.taken);
    longest = std::max(longest, *time);
  }
  if (amounts_for(request.demand.need, known))
    return std::clamp(2 * longest, least, options_.patience);
  if (amounts_for(request.demand.need, tried)) return trial;
  return std::nullopt;
}

Duration LeaseTable::kept(const Lease& lease, const RequestKey& waits, Time now) {
  if (lease.ending) return Duration::zero();
  if (lease.reclaiming) return now - lease.asked_back;
  // Leases of the request's own key are not asked back, nor are those of actors.
  const bool own = RequestKey{lease.owner, lease.key} == waits;
  return own || lease.dedicated ? now - lease.since : Duration::zero();
}

// --- one request

Reach LeaseTable::reach_of(const ResourceDemand& demand, RequestKind kind) const {
  if (kind.is_for_here())
    return choose_here(self_view(), demand).kind == Decision::Kind::infeasible ? Reach::nowhere
                                                                               : Reach::here;
  if (could_fit(self_view(), demand)) return Reach::here;
  const bool elsewhere =
      std::any_of(view_.nodes.begin(), view_.nodes.end(), [&](const NodeView& node) {
        return could_fit(node, demand) && !refusals_.has(kind.job, node.id);
      });
  return elsewhere ? Reach::away : Reach::nowhere;
}

Decision LeaseTable::decide(const Request& request) const {
  if (request.kind.spilled && waits_for_faster(request))
    return {Decision::Kind::busy, self_, "the node is slow, and faster ones could take it"};
  if (request.kind.is_for_here()) return choose_here(self_view(), request.demand);
  Decision decision = choose(view_, request.demand, refusals_.of(request.kind.job));
  if (decision.kind == Decision::Kind::infeasible)
    decision.why = refusals_.why(view_, request.kind.job, request.demand);
  return decision;
}

LeaseTable::Served LeaseTable::serve(Request& request, Time now) {
  const Decision decision = decide(request);
  switch (decision.kind) {
    case Decision::Kind::place:
      if (decision.node == self_) return grant_here(request, now);
      spill(request, decision.node, now);
      waiting_.served(request, now);
      return Served::yes;
    case Decision::Kind::busy:
      if (!request.kind.spilled) return Served::waits;
      if (draining_ || waits_for_faster(request) || belongs_elsewhere(request, now)) break;
      return Served::waits;
    case Decision::Kind::infeasible:
      // Without a reason refuse_infeasible() comes for it.
      if (!request.kind.is_for_here() && decision.why.empty()) return Served::waits;
      break;
  }
  refuse(request, decision.why);
  return Served::yes;
}

LeaseTable::Served LeaseTable::grant_here(Request& request, Time now) {
  const auto worker = idle_worker(request.kind.dedicated, request.kind.job);
  if (!worker) return Served::needs_worker;
  const auto amounts = amounts_for(request.demand.need, free_);
  TROUPE_ASSERT(amounts.has_value(), "the policy granted what is not free");
  Lease lease;
  lease.owner = request.key.first;
  lease.key = request.key.second;
  lease.worker = *worker;
  lease.need = lease.taken = *amounts;
  lease.dedicated = request.kind.dedicated;
  lease.since = now;
  for (std::size_t i = 0; i < free_.size(); ++i) free_[i] -= (*amounts)[i];
  const LeaseId id = next_lease_++;
  workers_.at(*worker).lease = id;
  reservation_.met(request.key, now);
  emit(Granted{lease.owner, lease.key, id, *worker, gpus_of(*amounts), request.demand});
  leases_.emplace(id, std::move(lease));
  waiting_.served(request, now);
  refresh_free();
  return Served::yes;
}

void LeaseTable::refuse(const Request& request, std::string why) {
  if (why.empty()) why = decide(request).why;
  if (why.empty()) why = why_waits(request).why;
  emit(Refused{request.key.first, request.key.second, std::move(why), request.count});
  waiting_.erase(RequestKey(request.key));
}

/// Refuses requests that no node could take for the time that they may wait for one.
void LeaseTable::refuse_infeasible(Time now) {
  const Duration limit = options_.infeasible_timeout;
  if (limit < Duration::zero()) return;
  for (const auto& [group, lines] : waiting_.groups())
    while (const Request* request = lines.nowhere.first(kAnyNeed)) {
      if (request->kind.is_for_here()) break;  // it is new, and look_at() comes for it
      if (now < request->since + limit) {
        wake_at(request->since + limit);
        break;
      }
      refuse(*request, {});
    }
}

// --- workers for those that wait

/// Returns the first request from this turn on that this node could take and that needs no more
/// than that. `pool`: also those of tasks.
LeaseTable::Request* LeaseTable::next_here(const Need& bound, std::uint64_t from, bool pool,
                                           bool dedicated) const {
  Request* next = nullptr;
  for (const auto& [group, lines] : waiting_.groups()) {
    if (group.dedicated ? !dedicated : !pool) continue;
    Request* found = lines.here.first(bound, from);
    if (found != nullptr && (next == nullptr || found->turn < next->turn)) next = found;
  }
  return next;
}

bool LeaseTable::is_placed_here(const Request& request) const {
  const Decision decision = decide(request);
  return decision.kind == Decision::Kind::place && decision.node == self_;
}

/// Starts workers for the requests whose resources are free but that lack a worker: one for each
/// request in turn, then the rest.
void LeaseTable::start_workers(Time now) {
  if (waiting_.empty() || !self_view().accepts) return;
  const std::uint32_t running = running_pool_workers();
  Lacking lacking;
  lacking.left = free_;
  lacking.most_pool =
      running < options_.max_workers ? starting_pool() + options_.max_workers - running : 0;
  const std::uint64_t stopped = find_lacking(lacking, 0);
  start_on_at_ = stopped == 0 ? 0 : find_lacking(lacking, std::max(start_on_at_, stopped));
  if (start_on_at_ != 0) wake_at(now + kLookOn);
  if (lacking.all != 0 && now < no_start_before_) return wake_at(no_start_before_);
  for (const auto& [job, needed] : lacking.dedicated) {
    const auto starting = starting_.find(job);
    std::uint32_t count = starting == starting_.end() ? 0 : starting->second.dedicated;
    for (; count < needed && may_start_actor(now); ++count) {
      ++starting_[job].dedicated;
      emit(StartWorker{true, job});
    }
  }
  lacking.pool.insert(lacking.pool.end(), lacking.more.begin(), lacking.more.end());
  start_pool_workers(lacking.pool, now);
  start_small_worker(now);
}

/// Collects requests that lack a worker, from this turn on. Returns as serve_from() does.
std::uint64_t LeaseTable::find_lacking(Lacking& lacking, std::uint64_t turn) const {
  int looks = kLooks;
  while (lacking.all < kMostLacking) {
    const bool pool = lacking.pool.size() < lacking.most_pool;
    const Request* next = next_here(need_of(resources_of(lacking.left)), turn, pool, true);
    if (next == nullptr) return 0;
    if (looks == 0) return next->turn;
    turn = next->turn + 1;
    const std::size_t before = lacking.all;
    for (std::uint32_t i = 0; is_placed_here(*next) && i < next->count; ++i) {
      if (lacking.all == kMostLacking) break;
      const bool more = !next->kind.dedicated && i != 0;
      if (more && lacking.more.size() == lacking.most_pool) break;
      const auto amounts = amounts_for(next->demand.need, lacking.left);
      if (!amounts) break;
      for (std::size_t k = 0; k < lacking.left.size(); ++k) lacking.left[k] -= (*amounts)[k];
      ++lacking.all;
      if (next->kind.dedicated)
        ++lacking.dedicated[next->kind.job];
      else
        (more ? lacking.more : lacking.pool).push_back(next->kind.job);
    }
    if (lacking.all == before) --looks;
  }
  return 0;
}

/// Refuses requests that wait in vain for a process: no process has come or gone for
/// process_patience, and no worker of their job runs that could serve them. An actor for which no
/// process starts on a full node is refused sooner.
void LeaseTable::refuse_hopeless(Time now) {
  for (const auto& [group, lines] : waiting_.groups()) {
    const Shortage& shortage = shortage_for(group.dedicated);
    if (!shortage) continue;
    if (!group.dedicated && running_pool_workers(group.job) > 0) continue;
    const auto starting = starting_.find(group.job);
    std::uint32_t served = starting == starting_.end() ? 0 : starting->second.dedicated;
    std::uint64_t turn = 0;
    while (const Request* request = lines.here.first(kAnyNeed, turn)) {
      turn = request->turn + 1;
      if (!is_placed_here(*request)) continue;
      const auto patience_ends = shortage.patience_ends(request->since);
      Time until = patience_ends.value_or(now);
      const bool is_served = group.dedicated && served != 0;
      if (is_served) --served;
      const auto sooner =
          group.dedicated && !is_served ? full_house_.patience_ends(request->since) : std::nullopt;
      if (sooner) until = std::min(until, *sooner);
      if (until <= now) {
        refuse(*request, shortage.why());
        continue;
      }
      wake_at(until);
      if (!is_served) break;  // those behind it have waited for less
    }
  }
}

// --- leases and workers that others need

/// Reclaims as many leases as there are waiting requests, oldest leases first. Never leases of
/// the request's own key, and only when the request waits for something that a lease holds.
void LeaseTable::reclaim_for_waiting(Time now) {
  if (waiting_.empty()) return;
  const auto may_be_asked_for = [](const Lease& lease) {
    return !lease.reclaiming && !lease.ending && !lease.dedicated && !lease.blocked;
  };
  if (std::none_of(leases_.begin(), leases_.end(),
                   [&](const auto& entry) { return may_be_asked_for(entry.second); }))
    return;
  std::uint64_t asked = 0;
  for (const auto& [id, lease] : leases_) asked += lease.reclaiming && !lease.is_late ? 1u : 0u;
  std::uint64_t wanted = 0;
  for (const auto& [group, lines] : waiting_.groups()) {
    if (group.dedicated) continue;
    // A lease of the first one's own key may serve the second.
    const Request* const first = wants_a_lease(lines.here, 0);
    if (first == nullptr) continue;
    const Request* const second = wants_a_lease(lines.here, first->turn + 1);
    wanted += lines.wanted;
    for (auto& [id, lease] : leases_) {
      if (asked >= wanted) break;
      if (!may_be_asked_for(lease)) continue;
      const Request* request = RequestKey{lease.owner, lease.key} == first->key ? second : first;
      if (request == nullptr) continue;
      if (!may_start_or_displace(*request, workers_.at(lease.worker).job, now)) continue;
      if (now < lease.since + options_.min_hold) {
        wake_at(lease.since + options_.min_hold);
        continue;
      }
      reclaim(id, lease, now);
      ++asked;
    }
  }
}

void LeaseTable::reclaim(LeaseId id, Lease& lease, Time now) {
  lease.reclaiming = true;
  lease.asked_back = lease.asked = now;
  wake_at(now + options_.silence);
  emit(ReclaimLease{lease.owner, id});
}

/// Asks the workers of leases whose owners do not answer. One that runs for long is no answer, so
/// another lease is reclaimed meanwhile.
void LeaseTable::ask_workers(Time now) {
  if (waiting_.empty()) return;
  for (auto& [id, lease] : leases_) {
    if (!lease.reclaiming || lease.ending || lease.blocked) continue;
    if (now >= lease.asked + options_.silence) {
      lease.is_late = true;
      lease.asked = now;
      emit(AskWorker{lease.worker, id, lease.owner});
    }
    wake_at(lease.asked + options_.silence);
  }
}

/// Returns the first request from this turn on that waits for something that a lease may hold.
const LeaseTable::Request* LeaseTable::wants_a_lease(const WaitingRequests::Line& line,
                                                     std::uint64_t from) const {
  int looks = kLooks;
  const Request* next = line.first(kAnyNeed, from);
  for (; next != nullptr; next = line.first(kAnyNeed, next->turn + 1)) {
    const Decision decision = decide(*next);
    const bool waits_elsewhere = decision.kind == Decision::Kind::busy && waits_for_faster(*next);
    const bool worker_comes =
        decision.kind == Decision::Kind::place && starting_pool(next->kind.job) > 0;
    if (!waits_elsewhere && !worker_comes) return next;
    if (--looks == 0) return nullptr;
  }
  return nullptr;
}

}  // namespace troupe::scheduling
