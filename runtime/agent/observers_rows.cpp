/// Rows of lists: what the agent itself knows, and whom it asks.
#include "troupe/runtime/agent/observers.hpp"
#include "troupe/runtime/agent/process_row.hpp"
#include "troupe/runtime/agent/wait_reasons.hpp"
#include "troupe/runtime/observe/wait_rows.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace troupe::agent {
namespace {

using observe::Fact;
using observe::RowKind;
using observe::Thing;

/// Processes of one pass: the kernel may take tens of microseconds to tell of one.
constexpr std::size_t kProcessesOfPass = 64;

/// The name of a process of another node that stands on a list of this one.
std::string alias(const std::string& node, ProcessIndex index) {
  return node + " process " + index.str();
}

Thing request_of(const std::string& owner, LeaseKey key, const std::string& node) {
  return {Thing::Kind::request, owner + " key " + key.str(), node};
}

}  // namespace

std::string Observers::node_name() {
  return below_.node;
}

std::string Observers::name_of(const Process& process) const {
  return below_.node + "/" + std::to_string(process.told_pid);
}

std::string Observers::name_of(NodeId id) const {
  const auto* view = below_.leases.view().find(id);
  return view == nullptr ? id.str() : view->name;
}

std::vector<ObserveQuestions::ProcessSource> Observers::processes() {
  std::vector<ObserveQuestions::ProcessSource> sources;
  for (const auto& [index, process] : below_.processes)
    if (process->introduced && !process->ending &&
        (process->speaks_as == Talker::driver || process->speaks_as == Talker::worker))
      sources.push_back({index, process->told_pid});
  return sources;
}

std::vector<ObserveQuestions::NodeSource> Observers::other_nodes() {
  std::vector<ObserveQuestions::NodeSource> sources;
  const auto& far = below_.cluster.out_of_reach();
  for (const auto& row : below_.cluster.rows()) {
    const NodeId node = row.description.id;
    if (node == below_.self) continue;
    ObserveQuestions::NodeSource& source = sources.emplace_back();
    source.node = node;
    source.name = row.description.name;
    if (!below_.cluster.knows(node)) source.dead = "it has died";
    if (std::binary_search(far.begin(), far.end(), node))
      source.late = below_.node + " gets no connection to it";
    else if (row.suspect)
      source.late = "control does not hear from it either";
  }
  return sources;
}

void Observers::ask_process(ProcessIndex process, const wire::AskRows& question) {
  if (Process* to = below_.processes.find(process))
    below_.processes.send(*to, question, observe::encode(surroundings_of(*to)));
}

void Observers::ask_node(NodeId to, const wire::PeerInquire& question) {
  below_.out.send(to, question, {});
}

observe::Surroundings Observers::surroundings_of(const Process& process) const {
  observe::Surroundings around;
  around.self = name_of(process);
  const WaitReasons reasons(below_.leases, below_.actors, below_.remote);
  for (const LeaseKey key : below_.leases.keys_of(process.index))
    around.whys[key] = reasons.of_lease(process.index, key);
  for (const auto& [peer, slot] : process.peers)
    if (const Process* worker = below_.processes.find(peer))
      around.workers[peer] = {name_of(*worker), below_.leases.is_blocked(peer), true};
  for (const ProcessIndex proxy : below_.proxies.of(process.index)) {
    if (!below_.remote.is_proxy_process(proxy)) continue;
    const RemoteTable::Target& target = below_.remote.target(proxy);
    around.workers[proxy] = {alias(name_of(target.node), target.process), false, false};
  }
  below_.remote.each_asked(process.index, [&](LeaseKey key, NodeId) {
    around.whys.try_emplace(key, reasons.of_lease(process.index, key));
  });
  return around;
}

bool Observers::add_own(const observe::Query& query, observe::Selection& selection,
                        ObserveQuestions::Place& place) {
  if (query.kind() == RowKind::processes) return add_processes(selection, place);
  if (query.kind() == RowKind::waits) add_waits(selection);
  if (query.kind() == RowKind::events) below_.events.offer(query, selection);
  return false;
}

bool Observers::add_processes(observe::Selection& selection, ObserveQuestions::Place& place) const {
  if (!std::exchange(place.begun, true)) {
    selection.offer(process_row("agent", getpid(), below_.node, {}, {}));
    for (const auto& [number, zygote] : below_.workers.zygotes().all())
      if (const Job* job = below_.jobs.find(number); zygote.pid > 0 && job != nullptr)
        selection.offer(process_row("zygote", zygote.pid, below_.node, job->id.str(), {}));
    return below_.processes.begin() != below_.processes.end();
  }
  std::size_t left = kProcessesOfPass;
  for (auto at = below_.processes.from(place.next); at != below_.processes.end(); ++at) {
    const auto& [index, process] = *at;
    place.next = index;
    if (left-- == 0) return true;
    if (!process->introduced || process->told_pid == 0) continue;
    const bool is_worker = process->speaks_as == Talker::worker;
    const char* const kind = below_.actors.hosts(index)             ? "actor"
                             : is_worker                            ? "worker"
                             : process->speaks_as == Talker::driver ? "driver"
                                                                    : "observer";
    const std::string runs = is_worker ? below_.workers.pages().name(index) : "";
    selection.offer(process_row(kind, static_cast<pid_t>(process->told_pid), below_.node,
                                process->job ? process->job.str() : "", runs));
  }
  return false;
}

/// Tells of the owner's requests for leases of this node, and who has what they lack.
void Observers::add_requests(ProcessIndex owner, const std::string& name,
                             observe::Selection& selection) const {
  const WaitReasons reasons(below_.leases, below_.actors, below_.remote);
  const std::string& here = below_.node;
  for (const LeaseKey key : below_.leases.keys_of(owner)) {
    Fact fact;
    fact.thing = request_of(name, key, here);
    fact.state =
        below_.leases.is_impossible(owner, key) ? Fact::State::impossible : Fact::State::lacks;
    fact.why = reasons.of_lease(owner, key);
    fact.count = below_.leases.wanted(owner, key);
    for (const auto& lease : below_.leases.busy())
      if (const Process* worker = below_.processes.find(lease.worker);
          worker != nullptr && fact.waits_for.size() < observe::WaitGraph::kMaxFollowed)
        fact.waits_for.push_back({Thing::Kind::worker, name_of(*worker), here});
    fact.any = true;
    if (fact.state == Fact::State::impossible) fact.waits_for.clear();
    selection.offer(observe::wait_row(fact));
  }
}

/// Tells of a process's requests that other nodes have, which know them by its number.
void Observers::add_passed_on(const Process& process, observe::Selection& selection) const {
  const WaitReasons reasons(below_.leases, below_.actors, below_.remote);
  const std::string& here = below_.node;
  std::map<LeaseKey, Fact> facts;
  below_.remote.each_asked(process.index, [&](LeaseKey key, NodeId to) {
    if (below_.leases.wanted(process.index, key) != 0) return;  // told above
    Fact& fact = facts[key];
    fact.thing = request_of(name_of(process), key, here);
    fact.state = Fact::State::lacks;
    fact.why = reasons.of_lease(process.index, key);
    fact.waits_for.push_back(request_of(alias(here, process.index), key, name_of(to)));
    fact.any = true;
  });
  for (const auto& [key, fact] : facts) selection.offer(observe::wait_row(fact));
}

/// Tells of this node's requests for leases, of its workers and of its actors.
void Observers::add_waits(observe::Selection& selection) const {
  const std::string& here = below_.node;
  below_.remote.each_proxy_process([&](ProcessIndex proxy, const RemoteTable::Target& target) {
    add_requests(proxy, alias(name_of(target.node), target.process), selection);
  });
  for (const auto& [index, process] : below_.processes) {
    add_requests(index, name_of(*process), selection);
    add_passed_on(*process, selection);
    if (process->speaks_as != Talker::worker) continue;
    Fact fact;
    fact.thing = {Thing::Kind::worker, name_of(*process), here};
    fact.place = alias(here, index);
    fact.name = below_.workers.pages().name(index);
    fact.state = Fact::State::runs;
    if (below_.leases.is_blocked(index)) {
      fact.state = Fact::State::blocked;
      fact.waits_for.push_back({Thing::Kind::thread, name_of(*process), name_of(*process)});
    }
    selection.offer(observe::wait_row(fact));
    const ActorId actor = below_.actors.actor_on(index);
    if (!actor) continue;
    fact.thing = {Thing::Kind::actor, actor.str(), here};
    fact.place = name_of(*process);
    if (fact.state == Fact::State::blocked)
      fact.waits_for = {{Thing::Kind::worker, name_of(*process), here}};
    else if (fact.state == Fact::State::runs && !below_.actors.beginning_of(actor))
      fact.state = Fact::State::ready;
    selection.offer(observe::wait_row(fact));
  }
}

}  // namespace troupe::agent
