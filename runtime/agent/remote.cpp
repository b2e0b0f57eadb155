#include "troupe/runtime/agent/remote.hpp"

#include <algorithm>

namespace troupe::agent {

// --- names

ProcessIndex RemoteTable::index_of(NodeId node) {
  const auto [at, fresh] = nodes_.try_emplace(node);
  if (fresh) {
    at->second = next_index_();
    node_ids_[at->second] = node;
  }
  return at->second;
}

std::optional<NodeId> RemoteTable::node_of(ProcessIndex index) const {
  const auto at = node_ids_.find(index);
  if (at == node_ids_.end()) return std::nullopt;
  return at->second;
}

bool RemoteTable::talks_to(NodeId node) const {
  const auto named = by_target_.lower_bound({node, ProcessIndex{}});
  return (named != by_target_.end() && named->first.first == node) ||
         std::any_of(wanted_.begin(), wanted_.end(),
                     [node](const auto& entry) { return entry.first.node == node; });
}

ProcessIndex RemoteTable::proxy_process_for(NodeId node, ProcessIndex process) {
  const auto [at, fresh] = by_target_.try_emplace({node, process});
  if (fresh) {
    at->second = next_index_();
    proxy_processes_[at->second].target = {node, process};
  }
  return at->second;
}

void RemoteTable::forget_if_unused(ProcessIndex index) {
  const auto at = proxy_processes_.find(index);
  if (at == proxy_processes_.end()) return;
  const ProxyProcess& proxy_process = at->second;
  if (!proxy_process.proxies.empty() || !proxy_process.asked.empty()) return;
  for (const auto& [lease, owner] : given_)
    if (owner == index) return;
  by_target_.erase({proxy_process.target.node, proxy_process.target.process});
  proxy_processes_.erase(at);
}

// --- proxies

void RemoteTable::open(ProcessIndex process, ProcessIndex index) {
  ProxyProcess& proxy_process = proxy_processes_.at(index);
  if (!proxy_process.proxies.insert(process).second) return;
  proxies_[{process, index}];
  out_.open_proxy(process, index, proxy_process.target.node);
}

void RemoteTable::close(ProcessIndex process, ProcessIndex index, const Death& death,
                        std::uint64_t started) {
  if (proxies_.count({process, index}) == 0) return;
  // Read first: a frame in there may ask for this same proxy, which must not open again while it
  // closes. The read may also close it, hence the second look.
  out_.read(process);
  if (proxies_.erase({process, index}) == 0) return;
  proxy_processes_.at(index).proxies.erase(process);
  out_.close_proxy(process, index, death, started);
}

ProcessIndex RemoteTable::connect(ProcessIndex process, NodeId node, ProcessIndex worker,
                                  ActorId actor, std::uint64_t incarnation) {
  const ProcessIndex proxy_process = proxy_process_for(node, worker);
  if (proxies_.count({process, proxy_process}) == 0) {
    open(process, proxy_process);
    out_.send(node, wire::PeerConnect{process, worker, actor, incarnation});
  }
  return proxy_process;
}

void RemoteTable::on_connect(NodeId from, const wire::PeerConnect& message) {
  if (!out_.hosts(message.worker, message.actor, message.incarnation))
    return out_.send(from, wire::PeerProcessGone{message.worker, message.process, 0,
                                                 "it is not there any more"});
  open(message.worker, proxy_process_for(from, message.process));
}

bool RemoteTable::may_carry(ProcessIndex process, ProcessIndex proxy_process) const {
  const auto at = proxies_.find({process, proxy_process});
  return at != proxies_.end() && at->second.sent - at->second.credited < carry_window_;
}

void RemoteTable::carried(ProcessIndex process, ProcessIndex proxy_process) {
  if (const auto at = proxies_.find({process, proxy_process}); at != proxies_.end())
    ++at->second.sent;
}

std::optional<ProcessIndex> RemoteTable::arrived(NodeId from, const wire::PeerFrame& frame) {
  const auto named = by_target_.find({from, frame.from});
  const auto proxy =
      named == by_target_.end() ? proxies_.end() : proxies_.find({frame.to, named->second});
  if (proxy == proxies_.end()) {
    out_.send(from, wire::PeerProcessGone{frame.to, frame.from, 0, "it is not there any more"});
    return std::nullopt;
  }
  ++proxy->second.received;
  return named->second;
}

void RemoteTable::entered(ProcessIndex process, ProcessIndex proxy_process, std::uint64_t total) {
  const auto at = proxies_.find({process, proxy_process});
  if (at == proxies_.end()) return;
  total = std::min(total, at->second.received);
  if (total - at->second.told < carry_window_ / 4) return;  // one PeerCredit for many frames
  at->second.told = total;
  const Target& to = proxy_processes_.at(proxy_process).target;
  out_.send(to.node, wire::PeerCredit{process, to.process, total});
}

void RemoteTable::on_credit(NodeId from, const wire::PeerCredit& message) {
  const auto named = by_target_.find({from, message.from});
  if (named == by_target_.end()) return;
  const auto proxy = proxies_.find({message.to, named->second});
  if (proxy == proxies_.end()) return;
  ProxyChannel& state = proxy->second;
  state.credited = std::clamp(message.consumed, state.credited, state.sent);
}

// --- leases that we ask of others

void RemoteTable::spilled(ProcessIndex process, LeaseKey key, NodeId node,
                          const wire::ResourceDemand& demand, JobId job, bool no_faster) {
  Wanted& wanted = wanted_[{process, key, node}];
  ++wanted.count;
  wanted.demand = demand;
  wanted.job = job;
  out_.send(node, wire::PeerLeaseRequest{process, key, 1, job, demand, no_faster});
}

std::uint32_t RemoteTable::outstanding(ProcessIndex process, LeaseKey key) const {
  std::uint32_t count = 0;
  for (auto at = wanted_.lower_bound({process, key, NodeId{}});
       at != wanted_.end() && at->first.process == process && at->first.key == key; ++at)
    count += at->second.count;
  return count;
}

std::optional<NodeId> RemoteTable::asked_node(ProcessIndex process, LeaseKey key) const {
  const auto at = wanted_.lower_bound({process, key, NodeId{}});
  if (at == wanted_.end() || at->first.process != process || at->first.key != key)
    return std::nullopt;
  return at->first.node;
}

void RemoteTable::withdrawn(ProcessIndex process, LeaseKey key) {
  for (auto at = wanted_.lower_bound({process, key, NodeId{}});
       at != wanted_.end() && at->first.process == process && at->first.key == key;) {
    out_.send(at->first.node, wire::PeerLeaseWithdraw{process, key});
    at = wanted_.erase(at);
  }
}

void RemoteTable::on_granted(NodeId from, const wire::PeerLeaseGranted& message) {
  const auto wanted = wanted_.find({message.process, message.key, from});
  const bool was_wanted = wanted != wanted_.end();
  wire::ResourceDemand demand;
  if (was_wanted) demand = wanted->second.demand;
  if (was_wanted && --wanted->second.count == 0) wanted_.erase(wanted);
  if (!out_.is_alive(message.process)) {
    out_.send(from, wire::PeerLeaseReturned{message.process, message.lease});
    return out_.send(from, wire::PeerProcessGone{message.process, 0, 0, "it has ended"});
  }
  const ProcessIndex worker = proxy_process_for(from, message.worker);
  open(message.process, worker);  // the other side has opened it too
  if (!was_wanted) return out_.send(from, wire::PeerLeaseReturned{message.process, message.lease});
  const LeaseId number = next_taken_++;
  taken_[number] = {message.process, worker, from, message.lease, std::move(demand)};
  taken_by_remote_[{from, message.lease}] = number;
  out_.granted(message.process, message.key, number, worker, message.gpus);
}

void RemoteTable::on_refused(NodeId from, const wire::PeerLeaseRefused& message) {
  const auto at = wanted_.find({message.process, message.key, from});
  if (at == wanted_.end()) return;
  const std::uint32_t count = std::min(message.count, at->second.count);
  const wire::ResourceDemand demand = at->second.demand;
  at->second.count -= count;
  if (at->second.count == 0) wanted_.erase(at);
  if (message.for_ever) out_.job_refused(message.process, from, message.why);
  if (count > 0) out_.spill_failed(message.process, message.key, demand, count, from);
}

void RemoteTable::on_reclaim(NodeId from, const wire::PeerLeaseReclaim& message) {
  const auto at = taken_by_remote_.find({from, message.lease});
  if (at != taken_by_remote_.end()) out_.reclaim(taken_.at(at->second).process, at->second);
}

std::optional<ProcessIndex> RemoteTable::taker_of(LeaseId lease) const {
  const auto at = taken_.find(lease);
  if (at == taken_.end()) return std::nullopt;
  return at->second.process;
}

bool RemoteTable::lease_returned(ProcessIndex process, LeaseId lease) {
  const auto at = taken_.find(lease);
  if (at == taken_.end()) return lease >= (std::uint64_t{1} << 62);  // another node's, but ended
  if (at->second.process != process) return true;                    // not its own
  const Taken taken = std::move(at->second);
  taken_by_remote_.erase({taken.node, taken.lease});
  taken_.erase(at);
  out_.send(taken.node, wire::PeerLeaseReturned{process, taken.lease});
  out_.gave_back(taken.node, taken.demand);
  return true;
}

/// Forgets the leases on a dead worker of another node: those of one process, or of all (0).
void RemoteTable::drop_taken_with(ProcessIndex process, ProcessIndex worker) {
  for (auto at = taken_.begin(); at != taken_.end();) {
    if (at->second.worker == worker && (process == 0 || at->second.process == process)) {
      taken_by_remote_.erase({at->second.node, at->second.lease});
      at = taken_.erase(at);
    } else {
      ++at;
    }
  }
}

// --- leases that others ask of us

void RemoteTable::on_request(NodeId from, const wire::PeerLeaseRequest& message) {
  const ProcessIndex index = proxy_process_for(from, message.process);
  ProxyProcess& proxy_process = proxy_processes_.at(index);
  std::uint32_t& asked = proxy_process.asked[message.key];
  asked = std::min<std::uint64_t>(std::uint64_t{asked} + message.count, 1u << 20);
  proxy_process.demands[message.key] = {message.demand, message.job, message.no_faster};
  out_.request(index, message.key, message.demand, asked, message.job, message.no_faster);
}

void RemoteTable::on_withdraw(NodeId from, const wire::PeerLeaseWithdraw& message) {
  const auto named = by_target_.find({from, message.process});
  if (named == by_target_.end()) return;
  const ProcessIndex index = named->second;
  ProxyProcess& proxy_process = proxy_processes_.at(index);
  if (proxy_process.asked.erase(message.key) == 0) return;
  const auto demand = proxy_process.demands.extract(message.key);
  out_.request(index, message.key, demand.mapped().demand, 0, demand.mapped().job, false);
  forget_if_unused(index);
}

void RemoteTable::granted_here(ProcessIndex index, LeaseKey key, LeaseId lease, ProcessIndex worker,
                               const std::vector<std::int32_t>& gpus) {
  const auto at = proxy_processes_.find(index);
  if (at == proxy_processes_.end()) return out_.returned(lease);
  ProxyProcess& proxy_process = at->second;
  if (const auto asked = proxy_process.asked.find(key);
      asked != proxy_process.asked.end() && --asked->second == 0) {
    proxy_process.asked.erase(asked);
    proxy_process.demands.erase(key);
  }
  given_[lease] = index;
  open(worker, index);
  out_.send(proxy_process.target.node,
            wire::PeerLeaseGranted{proxy_process.target.process, key, lease, worker, gpus});
}

void RemoteTable::refused_here(ProcessIndex index, LeaseKey key, const std::string& why,
                               bool for_ever) {
  const auto at = proxy_processes_.find(index);
  if (at == proxy_processes_.end()) return;
  ProxyProcess& proxy_process = at->second;
  const auto asked = proxy_process.asked.find(key);
  if (asked == proxy_process.asked.end()) return;
  const std::uint32_t count = asked->second;
  proxy_process.asked.erase(asked);
  proxy_process.demands.erase(key);
  out_.send(proxy_process.target.node,
            wire::PeerLeaseRefused{proxy_process.target.process, key, count, why, for_ever});
  forget_if_unused(index);
}

void RemoteTable::request_again(ProcessIndex index, LeaseKey key) {
  const auto at = proxy_processes_.find(index);
  if (at == proxy_processes_.end()) return;
  const auto asked = at->second.asked.find(key);
  if (asked == at->second.asked.end()) return;
  const auto [demand, job, no_faster] = at->second.demands.at(key);
  out_.request(index, key, demand, asked->second, job, no_faster);
}

void RemoteTable::reclaim_here(ProcessIndex index, LeaseId lease) {
  const auto at = proxy_processes_.find(index);
  if (at != proxy_processes_.end())
    out_.send(at->second.target.node, wire::PeerLeaseReclaim{at->second.target.process, lease});
}

void RemoteTable::refuse_job(JobId job, const std::string& why, bool for_ever) {
  std::vector<std::pair<ProcessIndex, LeaseKey>> keys;
  for (const auto& [index, proxy_process] : proxy_processes_)
    for (const auto& [key, asked] : proxy_process.demands)
      if (asked.job == job) keys.emplace_back(index, key);
  for (const auto& [index, key] : keys) refused_here(index, key, why, for_ever);
}

void RemoteTable::on_returned(NodeId from, const wire::PeerLeaseReturned& message) {
  const auto at = given_.find(message.lease);
  if (at == given_.end()) return;
  const auto proxy_process = proxy_processes_.find(at->second);
  if (proxy_process == proxy_processes_.end() || proxy_process->second.target.node != from)
    return;  // not its own
  given_.erase(at);
  out_.returned(message.lease);
}

void RemoteTable::lease_lost(LeaseId lease) {
  if (const auto given = given_.extract(lease)) forget_if_unused(given.mapped());
}

// --- ends

/// Tells the nodes of a dead process's peers: first one PeerProcessGone for each proxy, with the
/// calls that the process had begun, then one for each node (peer 0), which ends all the rest.
void RemoteTable::process_died(ProcessIndex process, const Death& death) {
  std::set<NodeId> told;
  std::vector<ProcessIndex> touched;
  for (auto at = proxies_.lower_bound({process, ProcessIndex{}});
       at != proxies_.end() && at->first.first == process;) {
    const ProcessIndex index = at->first.second;
    ProxyProcess& proxy_process = proxy_processes_.at(index);
    out_.send(
        proxy_process.target.node,
        wire::PeerProcessGone{process, proxy_process.target.process, out_.started(process, index),
                              death.reason, death.stack, death.last_lines});
    told.insert(proxy_process.target.node);
    proxy_process.proxies.erase(process);
    at = proxies_.erase(at);
    out_.close_proxy(process, index, death, wire::PeerDied::kUnknown);
    touched.push_back(index);
  }
  for (auto at = wanted_.lower_bound({process, 0, NodeId{}});
       at != wanted_.end() && at->first.process == process;) {
    told.insert(at->first.node);
    at = wanted_.erase(at);
  }
  for (auto at = taken_.begin(); at != taken_.end();) {
    if (at->second.process == process) {
      taken_by_remote_.erase({at->second.node, at->second.lease});
      at = taken_.erase(at);
    } else {
      ++at;
    }
  }
  for (const NodeId node : told)
    out_.send(node,
              wire::PeerProcessGone{process, 0, 0, death.reason, death.stack, death.last_lines});
  for (const ProcessIndex index : touched) forget_if_unused(index);
}

void RemoteTable::on_gone(NodeId from, const wire::PeerProcessGone& message) {
  const auto named = by_target_.find({from, message.process});
  if (named == by_target_.end()) return;
  const ProcessIndex index = named->second;
  const Death death{message.reason, message.stack, message.last_lines};
  if (message.peer == 0) return drop_proxy_process(index, death);
  drop_taken_with(message.peer, index);
  close(message.peer, index, death, message.started);
  forget_if_unused(index);
}

/// Ends a proxy process whose process is dead, with its proxies and leases.
void RemoteTable::drop_proxy_process(ProcessIndex index, const Death& death) {
  drop_taken_with(0, index);
  // A loop over the first one, since close() reads the process, whose frames may open another.
  while (!proxy_processes_.at(index).proxies.empty())
    close(*proxy_processes_.at(index).proxies.begin(), index, death, wire::PeerDied::kUnknown);
  for (auto at = given_.begin(); at != given_.end();)
    at = at->second == index ? given_.erase(at) : std::next(at);
  const Target target = proxy_processes_.at(index).target;
  proxy_processes_.erase(index);
  by_target_.erase({target.node, target.process});
  out_.owner_died(index);
}

void RemoteTable::node_died(NodeId node, const std::string& why, bool for_ever) {
  if (const auto at = nodes_.find(node); at != nodes_.end() && !for_ever) {
    // First, since effects of the steps below may name the node, in its next life.
    node_ids_.erase(at->second);
    nodes_.erase(at);
  }
  std::vector<ProcessIndex> gone;
  for (auto at = by_target_.lower_bound({node, ProcessIndex{}});
       at != by_target_.end() && at->first.first == node; ++at)
    gone.push_back(at->second);
  for (const ProcessIndex index : gone)
    if (is_proxy_process(index))
      drop_proxy_process(index, {why});  // may be gone: frames read for another can end it
  std::vector<std::pair<WantedKey, Wanted>> again;
  for (auto at = wanted_.begin(); at != wanted_.end();) {
    if (at->first.node == node) {
      again.emplace_back(at->first, at->second);
      at = wanted_.erase(at);
    } else {
      ++at;
    }
  }
  for (const auto& [key, wanted] : again)
    out_.spill_failed(key.process, key.key, wanted.demand, wanted.count, node);
}

void RemoteTable::forget_node(ProcessIndex index) {
  if (const auto node = node_ids_.extract(index)) nodes_.erase(node.mapped());
}

bool RemoteTable::on_message(NodeId from, const wire::PeerMessage& message) {
  if (const auto* m = std::get_if<wire::PeerLeaseRequest>(&message))
    return on_request(from, *m), true;
  if (const auto* m = std::get_if<wire::PeerLeaseWithdraw>(&message))
    return on_withdraw(from, *m), true;
  if (const auto* m = std::get_if<wire::PeerLeaseGranted>(&message))
    return on_granted(from, *m), true;
  if (const auto* m = std::get_if<wire::PeerLeaseRefused>(&message))
    return on_refused(from, *m), true;
  if (const auto* m = std::get_if<wire::PeerLeaseReclaim>(&message))
    return on_reclaim(from, *m), true;
  if (const auto* m = std::get_if<wire::PeerLeaseReturned>(&message))
    return on_returned(from, *m), true;
  if (const auto* m = std::get_if<wire::PeerConnect>(&message)) return on_connect(from, *m), true;
  if (const auto* m = std::get_if<wire::PeerProcessGone>(&message)) return on_gone(from, *m), true;
  if (const auto* m = std::get_if<wire::PeerCredit>(&message)) return on_credit(from, *m), true;
  return false;
}

}  // namespace troupe::agent
