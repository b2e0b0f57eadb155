/// Node's rows of lists: what the agent itself knows, and whom it asks.
#include "troupe/runtime/agent/node.hpp"
#include "troupe/runtime/agent/process_row.hpp"
#include "troupe/runtime/agent/wait_reasons.hpp"
#include "troupe/runtime/observe/wait_rows.hpp"

#include <algorithm>
#include <utility>

namespace troupe::agent {
namespace {

using observe::Fact;
using observe::Row;
using observe::RowKind;
using observe::Thing;

/// Processes of one pass: the kernel may take tens of microseconds to tell of one.
constexpr std::size_t kProcessesOfPass = 64;

void offer(observe::Selection& selection, Row row) {
  const auto read = [&row](std::size_t column) { return observe::value_of(row.cells[column]); };
  if (selection.wants([&row] { return row.id; }, read)) selection.keep(std::move(row));
}

/// The name of a process of another node that stands on a list of this one.
std::string alias(const std::string& node, ProcessIndex index) {
  return node + " process " + index.str();
}

}  // namespace

std::string Node::Rows::node_name() {
  return node.options_.name;
}

std::string Node::Rows::name_of(const Process& process) const {
  return node.options_.name + "/" + std::to_string(process.told_pid);
}

std::vector<ObserveQuestions::ProcessSource> Node::Rows::processes() {
  std::vector<ObserveQuestions::ProcessSource> sources;
  for (const auto& [index, process] : node.processes_)
    if (process->introduced && !process->ending &&
        (process->speaks_as == Talker::driver || process->speaks_as == Talker::worker))
      sources.push_back({index, process->told_pid});
  return sources;
}

std::vector<ObserveQuestions::NodeSource> Node::Rows::other_nodes() {
  std::vector<ObserveQuestions::NodeSource> sources;
  for (const auto& row : node.cluster_.rows())
    if (row.description.id != node.id_ && node.cluster_.knows(row.description.id))
      sources.push_back({row.description.id, row.description.name});
  return sources;
}

void Node::Rows::ask_process(ProcessIndex process, const wire::AskRows& question) {
  if (Process* to = node.processes_.find(process))
    node.processes_.send(*to, question, observe::encode(surroundings_of(*to)));
}

void Node::Rows::ask_node(NodeId to, const wire::PeerInquire& question) {
  node.network_->send(to, question);
}

void Node::Rows::answer(const ObserveQuestions::Asker& asker, Blob bytes) {
  if (asker.node) return node.inquiries_.owe(asker.node, asker.request, std::move(bytes));
  node.inquiries_.answer(asker.process, asker.request, bytes);
}

void Node::Rows::refuse(const ObserveQuestions::Asker& asker, const Error& why) {
  if (asker.node)
    return node.network_->send(asker.node,
                               wire::PeerAnswer{asker.request, 0, 0, why.shared_info()});
  node.inquiries_.refuse(asker.process, asker.request, why);
}

observe::Surroundings Node::Rows::surroundings_of(const Process& process) const {
  observe::Surroundings around;
  around.self = name_of(process);
  const WaitReasons reasons(node.leases_, node.actors_, node.remote_);
  for (const LeaseKey key : node.leases_.keys_of(process.index))
    around.whys[key] = reasons.of_lease(process.index, key);
  for (const auto& [peer, slot] : process.peers)
    if (const Process* worker = node.processes_.find(peer))
      around.workers[peer] = {name_of(*worker), node.leases_.is_blocked(peer), true};
  for (const ProcessIndex proxy : node.proxies_.of(process.index)) {
    if (!node.remote_.is_proxy_process(proxy)) continue;
    const RemoteTable::Target& target = node.remote_.target(proxy);
    const auto* view = node.leases_.view().find(target.node);
    const std::string name = view == nullptr ? target.node.str() : view->name;
    around.workers[proxy] = {alias(name, target.process), false, false};
  }
  return around;
}

bool Node::Rows::add_own(const observe::Query& query, observe::Selection& selection,
                         ObserveQuestions::Place& place) {
  if (query.kind() == RowKind::processes) return add_processes(selection, place);
  if (query.kind() == RowKind::waits) add_waits(selection);
  if (query.kind() == RowKind::events) node.events_.offer(query, selection);
  return false;
}

bool Node::Rows::add_processes(observe::Selection& selection,
                               ObserveQuestions::Place& place) const {
  if (!std::exchange(place.begun, true)) {
    offer(selection, process_row("agent", getpid(), node.options_.name, {}, {}));
    for (const auto& [number, zygote] : node.zygotes_.all())
      if (const Job* job = node.jobs_.find(number); zygote.pid > 0 && job != nullptr)
        offer(selection, process_row("zygote", zygote.pid, node.options_.name, job->id.str(), {}));
    return node.processes_.begin() != node.processes_.end();
  }
  std::size_t left = kProcessesOfPass;
  for (auto at = node.processes_.from(place.next); at != node.processes_.end(); ++at) {
    const auto& [index, process] = *at;
    place.next = index;
    if (left-- == 0) return true;
    if (!process->introduced || process->told_pid == 0) continue;
    const bool is_worker = process->speaks_as == Talker::worker;
    const char* const kind = node.actors_.hosts(index)              ? "actor"
                             : is_worker                            ? "worker"
                             : process->speaks_as == Talker::driver ? "driver"
                                                                    : "observer";
    const std::string runs = is_worker ? node.pages_.name(index) : "";
    offer(selection, process_row(kind, static_cast<pid_t>(process->told_pid), node.options_.name,
                                 process->job ? process->job.str() : "", runs));
  }
  return false;
}

/// Tells of this node's requests for leases, of its workers and of its actors.
void Node::Rows::add_waits(observe::Selection& selection) const {
  const WaitReasons reasons(node.leases_, node.actors_, node.remote_);
  const std::string& here = node.options_.name;
  for (const auto& [index, process] : node.processes_) {
    for (const LeaseKey key : node.leases_.keys_of(index)) {
      Fact fact;
      fact.thing = {Thing::Kind::request, name_of(*process) + " key " + key.str(), here};
      fact.state =
          node.leases_.is_impossible(index, key) ? Fact::State::impossible : Fact::State::lacks;
      fact.why = reasons.of_lease(index, key);
      fact.count = node.leases_.wanted(index, key);
      for (const auto& lease : node.leases_.busy())
        if (const Process* worker = node.processes_.find(lease.worker);
            worker != nullptr && fact.waits_for.size() < observe::WaitGraph::kMaxFollowed)
          fact.waits_for.push_back({Thing::Kind::worker, name_of(*worker), here});
      fact.any = true;
      if (fact.state == Fact::State::impossible) fact.waits_for.clear();
      offer(selection, observe::wait_row(fact));
    }
    if (process->speaks_as != Talker::worker) continue;
    Fact fact;
    fact.thing = {Thing::Kind::worker, name_of(*process), here};
    fact.place = alias(here, index);
    fact.name = node.pages_.name(index);
    fact.state = Fact::State::runs;
    if (node.leases_.is_blocked(index)) {
      fact.state = Fact::State::blocked;
      fact.waits_for.push_back({Thing::Kind::thread, name_of(*process), name_of(*process)});
    }
    offer(selection, observe::wait_row(fact));
    const ActorId actor = node.actors_.actor_on(index);
    if (!actor) continue;
    fact.thing = {Thing::Kind::actor, actor.str(), here};
    fact.place = name_of(*process);
    if (fact.state == Fact::State::blocked)
      fact.waits_for = {{Thing::Kind::worker, name_of(*process), here}};
    else if (fact.state == Fact::State::runs && !node.actors_.beginning_of(actor))
      fact.state = Fact::State::ready;
    offer(selection, observe::wait_row(fact));
  }
}

}  // namespace troupe::agent
