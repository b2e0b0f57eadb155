/// The simulated agent's traffic with control and other nodes, and its actors. It stands for
/// agent/node_cluster.cpp, proxies.cpp and the actors' part of node_messages.cpp.
#include "tests/simulation/cluster/agent.hpp"
#include "tests/simulation/cluster/cluster.hpp"
#include "tests/simulation/cluster/said.hpp"
#include "troupe/runtime/agent/resource_demand.hpp"
#include "troupe/runtime/wire/cases.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <utility>

namespace troupe::sim::cluster {
namespace {

using wire::Cases;

bool is_place(const wire::Value& value) {
  return value.kind == wire::Value::Kind::shared || value.kind == wire::Value::Kind::remote;
}
bool names_place(const wire::CallMessage& message) {
  if (const auto* call = std::get_if<wire::Call>(&message))
    return std::any_of(call->arguments.begin(), call->arguments.end(), is_place);
  const auto* reply = std::get_if<wire::Reply>(&message);
  return reply != nullptr && is_place(reply->value);
}

}  // namespace

// --- the log of a replay

void Agent::log(const std::string& line) {
  std::printf("%10.6f n%u %s\n",
              std::chrono::duration<double>(cluster_.world.now() - Time{}).count(), self_index_,
              line.c_str());
}

// --- control

void Agent::send(control::ToControl message) {
  if (cluster_.verbose()) log("-> control " + said(message));
  if (const auto* kill = std::get_if<control::KillActor>(&message); kill && kill->may_restart) {
    std::uint64_t& life = truth().killed_lives[id_][kill->actor];
    life = std::max(life, kill->life);
  }
  if (const auto* spawn = std::get_if<control::SpawnActor>(&message))
    spawned_.try_emplace(spawn->request, spawn->spec.id, false);
  network_->send_control(message);
}

void Agent::on_control(control::FromControl& message) {
  if (cluster_.verbose()) log("<- control " + said(message));
  std::visit(
      Cases{[&](control::Registered& m) {
              truth().epoch_given(m.epoch, id_);
              control_epoch_ = m.control_epoch;
              actors_.registered(m.epoch, m.control_epoch, m.number, now());
              reporting_.forget();
              on_registered();
            },
            [&](control::StartActorAt& m) {
              if (m.restarted) truth().mark(Mark::actor_restarted);
              truth().made(m.spec->id, m.incarnation, control_epoch_);
              actors_.start(m, now());
            },
            [&](control::StopActorAt& m) { actors_.stop(m, now()); },
            [&](control::ActorReply& m) {
              const auto spawn = spawned_.find(m.request);
              if (spawn != spawned_.end()) {
                auto& [actor, made] = spawn->second;
                if (m.error || m.actor != actor) truth().refused.try_emplace(actor, id_, made);
                made |= m.created;
              }
              actors_.replied(m);
            },
            [&](control::ActorLocation& m) {
              if (m.state == control::ActorState::dead && m.incarnation != 0)
                truth().said_dead(m.actor, m.incarnation, control_epoch_);
              actors_.located(m, now());
            },
            [&](control::JobReply& m) {
              const auto at = jobs_.find(JobNumber::of(m.request));
              if (at == jobs_.end() || at->second.welcome) return;
              Proc* driver = find_proc(at->second.driver);
              if (driver == nullptr) return;
              if (m.error) {
                if (m.error->code == Code::unavailable) return;
                if (m.error->code == Code::no_space) {  // a user would try again
                  truth().mark(Mark::refused_store);
                  return start_job(at->second);
                }
                return truth().fail("a job is refused: " + m.error->message);
              }
              at->second.welcome = true;
              driver->attached = true;
              driver->process =
                  std::make_unique<Process>(*this, driver->rings, driver->index, true, random()());
              driver->process->program().begin_driver(cluster_.plan.workload,
                                                      mixed(id_.low, id_.high), env_->now());
            },
            [&](control::JobEnded& m) { end_job(m.job); },
            [&](control::JobInfo& m) { on_job_info(m); },
            [&](control::DrainNode&) { leases_.set_draining(true, env_->now()); }, [&](auto&) {}},
      message);
}

void Agent::on_control_reset(const std::string&) {
  truth().mark(Mark::control_reset);
  if (cluster_.verbose()) log("control is lost");
  actors_.control_lost();
}

void Agent::on_nodes(const control::ClusterNodes& nodes) {
  const Time now = env_->now();
  std::set<NodeId> gone = std::exchange(known_nodes_, {});
  for (const control::ClusterRow& row : nodes.rows) {
    if (row.description.id == id_) {
      if (row.avoided && !leases_.self_view().slow) truth().mark(Mark::node_slow);
      leases_.set_slow(row.avoided, now);
      continue;
    }
    known_nodes_.insert(row.description.id);
    gone.erase(row.description.id);
    scheduling::NodeView view = row.report.view;
    view.id = row.description.id;
    view.name = row.description.name;
    view.labels = row.description.labels;
    view.total = row.description.resources;
    view.accepts = view.accepts && !row.suspect && !row.draining;
    view.slow = row.avoided;
    leases_.update_node(view, now);
  }
  for (const NodeId node : gone) leases_.node_gone(node, now);
}

void Agent::exit_now(const std::string& why) {
  cluster_.ends_itself(why);
  truth().mark(Mark::node_exited);
  ++truth().breaks;
  over_ = true;
}

// --- other nodes

void Agent::on_peer(NodeId from, wire::Decoded<wire::PeerMessage>& decoded) {
  wire::PeerMessage& message = decoded.message;
  if (cluster_.verbose()) log("<- n" + std::to_string(from.low) + " " + said(message));
  if (const auto* frame = std::get_if<wire::PeerFrame>(&message))
    return on_frame(from, *frame, decoded.payload);
  if (remote_.on_message(from, message)) {
    if (std::holds_alternative<wire::PeerCredit>(message)) resume_stalled(from);
    return;
  }
  if (const auto* hold = std::get_if<wire::PeerHold>(&message))
    return references_.peer_hold(index_of(from), hold->object, owner_index(hold->holder),
                                 hold->delta);
  if (const auto* await = std::get_if<wire::PeerAwait>(&message))
    return references_.await(await->object, index_of(from), false);
  if (const auto* rebuild = std::get_if<wire::PeerRebuild>(&message))
    return references_.rebuild(rebuild->object, index_of(from), rebuild->lost);
  if (const auto* ready = std::get_if<wire::PeerReady>(&message)) {
    for (const wire::OwnedRef& ref : ready->refs) take_in(from, ref);
    return references_.ready_from_owner(index_of(from), ready->object, ready->value,
                                        decoded.payload);
  }
  moves_.on_message(from, message, decoded.payload, env_->now());
}

void Agent::on_peer_reset(NodeId node, const std::string& why) {
  truth().mark(Mark::peer_reset);
  if (cluster_.verbose()) log("reset by n" + std::to_string(node.low) + ": " + why);
  node_gone(node, why, network_->is_dead(node));
}

void Agent::on_node_dead(NodeId node, const std::string& why) {
  truth().mark(Mark::node_declared_dead);
  if (cluster_.verbose()) log("dead: n" + std::to_string(node.low) + ": " + why);
  known_nodes_.erase(node);
  cluster_.taken_for_dead(node);
  cluster_.moment();
  leases_.node_gone(node, env_->now());
  node_gone(node, why, true);
}

void Agent::node_gone(NodeId node, const std::string& why, bool for_ever) {
  const Time now = env_->now();
  ++truth().breaks;
  ErrorInfo info;
  info.code = Code::unavailable;
  info.message = (for_ever ? "the node is dead: " : "the node is out of reach: ") + why;
  references_.node_died(index_of(node), Error(std::move(info)));
  moves_.node_died(node, for_ever, now);
  remote_.node_died(node, why, for_ever);
  if (!for_ever) actors_.out_of_reach(node);
}

void Agent::on_can_send(NodeId node) {
  resume_stalled(node);
}

ProcessIndex Agent::index_of(NodeId node) {
  const ProcessIndex index = remote_.index_of(node);
  references_.add_node(index);
  return index;
}

ProcessIndex Agent::owner_index(NodeId owner) {
  return owner == id_ || !owner ? kSelf : index_of(owner);
}

// --- proxies

void Agent::open_proxy(ProcessIndex index, ProcessIndex proxy_process, NodeId node) {
  Proc* proc = find_proc(index);
  if (proc == nullptr || !proc->process) return;
  const ProxyKey key{index, proxy_process};
  if (const auto before = proxies_.find(key); before != proxies_.end()) {
    env_->check(before->second.ending.has_value(), "a proxy is opened that is open");
    finish_proxy(before, true);
  }
  ProxyChannel& proxy = proxies_[key];
  proxy.process = index;
  proxy.proxy_process = proxy_process;
  proxy.node = node;
  proxy.holder = index_of(node);
  auto channel = std::make_shared<Channel>();
  channel->capacity = cluster_.plan.ring_capacity;
  proxy.end = End(channel, 0);
  proxy.end.on_wake([this] { wake_agent(); });
  proc->process->connect(proxy_process, End(channel, 1), true, proxy.holder);
}

void Agent::read(ProcessIndex process) {
  if (Proc* proc = find_proc(process)) drain_ring(*proc);
}

void Agent::close_proxy(ProcessIndex process, ProcessIndex proxy_process, const agent::Death& death,
                        std::uint64_t started) {
  const auto at = proxies_.find({process, proxy_process});
  if (at == proxies_.end()) return;
  drop_unread(at->second);
  at->second.ending = ProxyChannel::Ending{death.reason, started};
  finish_proxy(at);
}

void Agent::finish_proxy(ProxyChannels::iterator at, bool at_once) {
  ProxyChannel& proxy = at->second;
  if (Proc* proc = find_proc(proxy.process)) {
    if (!proxy.end.flush() && !at_once) {
      proxy_waits_ = true;
      return;
    }
    send(*proc, wire::PeerDied{proxy.proxy_process, proxy.ending->reason, proxy.ending->started});
  }
  stalled_.erase(at->first);
  proxy.end.let_go();
  if (auto closed = proxies_.extract(at); find_proc(closed.key().first) != nullptr)
    closed_.insert(std::move(closed));
}

void Agent::drop_written_since(ProxyKey key) {
  const auto closed = closed_.extract(key);
  if (closed) drop_unread(closed.mapped());
}

/// Checks that each ref which a process counted for another node is in a frame that was carried
/// or that is still unread.
void Agent::check_unsent(const Proc& proc) {
  std::int64_t refs = 0;
  for (const ProxyChannels* proxies : {&proxies_, &closed_})
    for (auto at = proxies->lower_bound({proc.index, kSelf});
         at != proxies->end() && at->first.first == proc.index; ++at)
      at->second.end.each_unread([&](const Frame& frame) {
        wire::for_each_ref(frame.message, [&](ObjectId) { ++refs; });
      });
  if (references_.unsent(proc.index) != refs)
    truth().fail("a process that ended held " + std::to_string(references_.unsent(proc.index)) +
                 " refs for nodes, and frames with " + std::to_string(refs) + " were still there");
}

void Agent::drop_unread(ProxyChannel& proxy) {
  while (auto frame = proxy.end.receive())
    wire::for_each_ref(frame->message,
                       [&](ObjectId id) { references_.hold(id, proxy.holder, -1, proxy.process); });
}

std::uint64_t Agent::started(ProcessIndex process, ProcessIndex proxy_process) {
  const auto at = proxies_.find({process, proxy_process});
  return at == proxies_.end() ? 0 : at->second.end.peer_started();
}

void Agent::note_entered(ProxyChannel& proxy) {
  proxy.end.flush();
  remote_.entered(proxy.process, proxy.proxy_process, proxy.pushed - proxy.end.waiting());
}

void Agent::drain_proxy(ProxyChannel& proxy, bool to_the_end) {
  const ProxyKey key{proxy.process, proxy.proxy_process};
  if (proxy.ending) return finish_proxy(proxies_.find(key));
  const auto proc = processes_.find(proxy.process);
  if (proc != processes_.end()) drain_ring(*proc->second);
  note_entered(proxy);
  const bool held = actors_.hosts(proxy.process) && !network_->may_serve(env_->now());
  if (held) {
    holds_answers_ = true;
    truth().mark(Mark::held_answers);
  }
  for (;;) {
    if (held || (!to_the_end && (!remote_.may_carry(proxy.process, proxy.proxy_process) ||
                                 !network_->can_send(proxy.node)))) {
      if (stalled_.insert(key).second) truth().mark(Mark::proxy_stalled);
      return;
    }
    auto frame = proxy.end.receive();
    if (!frame) break;
    if (names_place(frame->message)) {
      truth().fail("a place in memory leaves its node");
      break;
    }
    carry(proxy, *frame);
  }
  stalled_.erase(key);
}

void Agent::carry(ProxyChannel& proxy, Frame& frame) {
  wire::PeerFrame carried;
  carried.from = proxy.process;
  carried.to = remote_.target(proxy.proxy_process).process;
  const ProcessIndex to = proxy.holder;
  wire::for_each_ref(frame.message, [&](ObjectId id) {
    const ProcessIndex owner = references_.export_to(id, to, proxy.process);
    if (owner != kSelf && owner != to) truth().mark(Mark::passed_on);
    carried.refs.push_back({id, remote_.node_of(owner).value_or(id_)});
  });
  // A carried call counts as begun from here on, since this node cannot know better.
  if (const auto* call = std::get_if<wire::Call>(&frame.message))
    proxy.end.count_started(call->sequence);
  const BlobView head = writer_.encode(frame.message);
  Blob whole(head.begin(), head.end());
  whole.insert(whole.end(), frame.payload.begin(), frame.payload.end());
  network_->send(proxy.node, carried, whole);
  remote_.carried(proxy.process, proxy.proxy_process);
}

void Agent::resume_stalled(NodeId node) {
  for (const ProxyKey& key : std::set<ProxyKey>(stalled_))
    if (const auto at = proxies_.find(key); at != proxies_.end() && at->second.node == node)
      drain_proxy(at->second);
}

void Agent::release_answers() {
  if (!holds_answers_ || !network_->may_serve(env_->now())) return;
  holds_answers_ = false;
  for (const ProxyKey& key : std::set<ProxyKey>(stalled_))
    if (const auto at = proxies_.find(key); at != proxies_.end()) drain_proxy(at->second);
}

/// Halts or continues this node's actors as SelfFencing says. Messages to a halted actor are read
/// when it continues.
void Agent::halt_actors() {
  const bool halt = !network_->may_serve(env_->now());
  say(client::actor_lease_word(halt ? Time{} : Time(sleep_.up_at(network_->serves_until()))));
  if (!halt && !halts_actors_) return;
  halts_actors_ = halt;
  for (const auto& [index, proc] : processes_) {
    if (!proc->process || proc->halted == halt) continue;
    if (halt && !actors_.hosts(index)) continue;
    proc->halted = halt;
    if (halt)
      truth().mark(Mark::actor_halted);
    else
      wake(index, {});
  }
}

/// Publishes the actor lease word on the doorbell. An interrupted actor looks at the word every
/// 10 ms.
void Agent::say(std::int64_t word) {
  if (std::exchange(said_, word) == word || word == client::kServesNever) return;
  for (const auto& [index, proc] : processes_)
    if (proc->process && proc->process->stands_still())
      interrupt_at(index, env_->up_time() + Duration(random().below(10'000'000)));
}

void Agent::take_in(NodeId from, const wire::OwnedRef& ref) {
  references_.import_from(ref.object, owner_index(ref.owner), index_of(from));
}

void Agent::on_frame(NodeId from, const wire::PeerFrame& frame, BlobView payload) {
  auto decoded = wire::decode_call(payload);
  bool good = decoded && !names_place(decoded->message);
  std::size_t count = 0;
  if (good)
    wire::for_each_ref(decoded->message, [&](ObjectId id) {
      good = good && count < frame.refs.size() && frame.refs[count].object == id;
      ++count;
    });
  if (!good || count != frame.refs.size())
    return truth().fail("an honest node's frame cannot be read");
  for (const wire::OwnedRef& ref : frame.refs) take_in(from, ref);
  // The end of the connection tells the caller that the call is lost.
  if (actors_.hosts(frame.to) && !network_->may_serve(env_->now()))
    return network_->drop(from, "this node may have been declared dead and serves no calls");
  if (cluster_.canary() && random().chance(0.05)) return;  // the canary: the frame is lost
  const auto proxy_process = remote_.arrived(from, frame);
  if (!proxy_process) return;
  for (const wire::OwnedRef& ref : frame.refs) references_.hold(ref.object, frame.to, +1);
  const auto at = proxies_.find({frame.to, *proxy_process});
  if (at == proxies_.end()) return;  // the process is dead and not buried yet
  ProxyChannel& proxy = at->second;
  ++proxy.pushed;
  proxy.end.send(
      {std::move(decoded->message), Blob(decoded->payload.begin(), decoded->payload.end())});
  note_entered(proxy);
}

// --- RemoteTable::Out, BulkMoves::Out, ReferenceTable::Out

void Agent::send(NodeId to, const wire::PeerMessage& message) {
  if (cluster_.verbose()) log("-> n" + std::to_string(to.low) + " " + said(message));
  network_->send(to, message);
}
bool Agent::is_alive(ProcessIndex process) {
  return find_proc(process) != nullptr;
}
bool Agent::hosts(ProcessIndex worker, ActorId actor, std::uint64_t incarnation) {
  return find_proc(worker) != nullptr && actors_.hosts(worker, actor, incarnation);
}
void Agent::granted(ProcessIndex process, LeaseKey key, LeaseId lease, ProcessIndex worker,
                    const std::vector<std::int32_t>& gpus) {
  truth().mark(Mark::remote_grant);
  if (Proc* owner = find_proc(process)) send(*owner, wire::LeaseGranted{key, lease, worker, gpus});
}
void Agent::reclaim(ProcessIndex process, LeaseId lease) {
  if (Proc* owner = find_proc(process)) send(*owner, wire::LeaseReclaim{lease});
}
void Agent::job_refused(ProcessIndex process, NodeId node, const std::string& why) {
  if (Proc* owner = find_proc(process))
    leases_.job_refused(owner->job_number, node, why, env_->now());
}
void Agent::spill_failed(ProcessIndex process, LeaseKey key, const wire::ResourceDemand& demand,
                         std::uint32_t count, NodeId node) {
  truth().mark(Mark::spill_failed);
  if (Proc* owner = find_proc(process))
    leases_.spill_failed(process, key, agent::demand_of(demand), count, env_->now(),
                         {.spilled = false, .dedicated = false, .job = owner->job_number}, node);
}
void Agent::gave_back(NodeId node, const wire::ResourceDemand& demand) {
  leases_.returned_there(node, agent::demand_of(demand), env_->now());
}
void Agent::request(ProcessIndex proxy_process, LeaseKey key, const wire::ResourceDemand& demand,
                    std::uint32_t backlog, JobId job, bool no_faster) {
  if (backlog > 0) kill_an_idle_worker();
  leases_.request(
      proxy_process, key, agent::demand_of(demand), backlog, env_->now(),
      {.spilled = true, .dedicated = false, .job = job_of(job).number, .no_faster = no_faster});
}
void Agent::returned(LeaseId lease) {
  leases_.returned(lease, env_->now());
}
void Agent::owner_died(ProcessIndex proxy_process) {
  leases_.owner_died(proxy_process, env_->now());
}
void Agent::send_peer(NodeId to, const wire::PeerMessage& message, BlobView payload) {
  network_->send(to, message, payload);
}
std::optional<BulkMoves::Held> Agent::find(ObjectId object) {
  const wire::Value* value = references_.value_of(object);
  if (value == nullptr || value->kind != wire::Value::Kind::shared) return std::nullopt;
  return BulkMoves::Held{value->location, !references_.owner_of(object)};
}
void Agent::moved(ObjectId object, const wire::Location& location) {
  references_.pulled(object, location);
}
void Agent::move_failed(ObjectId object, const Error& error) {
  references_.pull_failed(object, error);
}

void Agent::ready(ProcessIndex process, ObjectId object, const wire::Value& value,
                  BlobView payload) {
  if (const auto node = remote_.node_of(process)) {
    wire::PeerReady ready{object, value, {}};
    wire::for_each_ref(value, [&](ObjectId id) {
      const auto owner = references_.owner_of(id);
      ready.refs.push_back({id, owner ? remote_.node_of(*owner).value_or(NodeId{}) : id_});
    });
    if (value.kind == wire::Value::Kind::shared) {
      ready.value.kind = wire::Value::Kind::remote;
      ready.value.remote_bytes = value.location.length;
    }
    if (cluster_.verbose()) log("-> n" + std::to_string(node->low) + " " + said(ready));
    return network_->send(*node, ready, payload);
  }
  if (Proc* to = find_proc(process)) send(*to, wire::Ready{object, value}, payload);
}

void Agent::unreferenced(ActorId actor) {
  actors_.unreferenced(actor);
}
void Agent::peer_hold(ProcessIndex to, ObjectId object, ProcessIndex holder, std::int32_t delta) {
  const auto node = remote_.node_of(to);
  const auto who = holder == kSelf ? std::optional(id_) : remote_.node_of(holder);
  if (node && who) send(*node, wire::PeerHold{object, *who, delta});
}
void Agent::peer_await(ProcessIndex owner, ObjectId object) {
  if (const auto node = remote_.node_of(owner)) send(*node, wire::PeerAwait{object});
}
void Agent::pull(ProcessIndex owner, ObjectId object, std::uint64_t bytes) {
  if (const auto node = remote_.node_of(owner)) moves_.pull(*node, object, bytes, env_->now());
}

void Agent::peer_rebuild(ProcessIndex owner, ObjectId object, ObjectId lost) {
  if (const auto node = remote_.node_of(owner)) send(*node, wire::PeerRebuild{object, lost});
}

void Agent::rebuild(ProcessIndex, ObjectId, ObjectId) {
  truth().fail("bytes in memory, which do not go bad here, are to be computed again");
}

// --- ActorHost::Out

void Agent::need_worker(std::uint64_t life, const scheduling::ResourceDemand& demand, JobId id) {
  const JobNumber job = job_of(id).number;
  waiting_lives_[life] = job;
  leases_.request(kSelf, LeaseKey::of(life), demand, 1, env_->now(),
                  {.spilled = false, .dedicated = true, .job = job});
}

void Agent::release_worker(std::uint64_t life) {
  waiting_lives_.erase(life);
  if (const auto lease = actor_leases_.find(life); lease != actor_leases_.end()) {
    leases_.returned(lease->second, env_->now());
    actor_leases_.erase(lease);
  } else {
    leases_.request(kSelf, LeaseKey::of(life), {}, 0, env_->now(),
                    {.spilled = false, .dedicated = true});
  }
}

void Agent::start_actor(ProcessIndex worker, const wire::StartActor& start, BlobView payload,
                        const std::vector<wire::OwnedRef>& refs) {
  Proc* to = find_proc(worker);
  if (to == nullptr) return;
  for (const wire::OwnedRef& ref : refs) {
    if (ref.owner != id_) references_.import_from(ref.object, owner_index(ref.owner), kSelf);
    references_.hold(ref.object, worker, +1);
  }
  send(*to, start, payload);
}

void Agent::end_worker(ProcessIndex worker) {
  if (Proc* proc = find_proc(worker)) send(*proc, wire::Shutdown{"no longer needed"});
}
void Agent::kill_worker(ProcessIndex worker) {
  if (Proc* proc = find_proc(worker); proc != nullptr && proc->process)
    kill_process(*proc, "killed by signal 9");
}

void Agent::publish(ProcessIndex watcher, const wire::ActorUpdate& update) {
  Proc* to = find_proc(watcher);
  if (to == nullptr) return;
  if (update.state == wire::ActorState::alive) {
    Proc* worker = find_proc(update.worker);
    if (worker == nullptr) return;  // control learns of the worker's death next
    if (worker != to) connect(*to, *worker);
  }
  send(*to, update);
}

void Agent::publish_remote(ProcessIndex watcher, const control::ActorLocation& location,
                           bool /*silent*/) {
  Proc* to = find_proc(watcher);
  if (to == nullptr) return;
  truth().mark(Mark::remote_actor);
  wire::ActorUpdate update;
  update.actor = location.actor;
  update.state = wire::ActorState::alive;
  update.incarnation = location.incarnation;
  update.worker = remote_.connect(watcher, location.node, location.worker, location.actor,
                                  location.incarnation);
  send(*to, update);
}

NodeId Agent::owner_of(ObjectId object) {
  const auto owner = references_.owner_of(object);
  return owner ? remote_.node_of(*owner).value_or(NodeId{}) : id_;
}

void Agent::answer(ProcessIndex process, const wire::FoundActor& found, NodeId owner) {
  Proc* to = find_proc(process);
  if (to == nullptr) return;
  if (found.found) {
    if (owner && owner != id_) references_.import_from(found.lifetime, owner_index(owner), kSelf);
    references_.hold(found.lifetime, process, +1);
  }
  send(*to, found);
}

void Agent::drop_creation(const wire::Call& creation) {
  for (const wire::Value& argument : creation.arguments) {
    if (argument.kind == wire::Value::Kind::forwarded)
      references_.hold(argument.forward, kSelf, -1);
    for (const ObjectId inner : argument.refs) references_.hold(inner, kSelf, -1);
  }
}

}  // namespace troupe::sim::cluster
