/// Lists every member of every message of control by name, for the tests; see
/// tests/runtime/wire/samples.hpp. Members that are not encoded are left out.
#pragma once

#include "tests/runtime/wire/fill.hpp"
#include "troupe/runtime/control/messages.hpp"

namespace troupe::control {

constexpr ActorState last_of(ActorState) {
  return ActorState::dead;
}
constexpr JobState last_of(JobState) {
  return JobState::failed;
}
constexpr PutMode last_of(PutMode) {
  return PutMode::if_equal;
}
constexpr KeyValueRequest::Verb last_of(KeyValueRequest::Verb) {
  return KeyValueRequest::Verb::list;
}
constexpr NameObject::Verb last_of(NameObject::Verb) {
  return NameObject::Verb::forget;
}
constexpr Notice::Kind last_of(Notice::Kind) {
  return Notice::Kind::slow_node;
}
constexpr ListRequest::What last_of(ListRequest::What) {
  return ListRequest::What::objects;
}

template <class F>
void each(F& f, NodeDescription& m) {
  f("id", m.id), f("name", m.name), f("address", m.address), f("public_key", m.public_key);
  f("resources", m.resources), f("labels", m.labels), f("beside_control", m.beside_control);
}
template <class F>
void repair(F&, NodeDescription& m) {
  m.public_key.resize(32, 'k');
  scheduling::Resources& r = m.resources;
  constexpr std::int64_t kMost = (std::int64_t{1} << 61) - 1;
  r.cpus &= kMost, r.gpus &= kMost, r.memory &= kMost;
  for (auto& amount : r.custom) amount.second &= kMost;
}
template <class F>
void each(F& f, RegisterNode& m) {
  f("node", m.node), f("epoch", m.epoch), f("session", m.session), f("number", m.number);
}
template <class F>
void each(F& f, Heartbeat& m) {
  f("epoch", m.epoch), f("sequence", m.sequence), f("roster", m.roster);
}
template <class F>
void each(F& f, Leaving& m) {
  f("epoch", m.epoch);
}
template <class F>
void each(F& f, NodeReport& m) {
  f("view", m.view), f("store_capacity", m.store_capacity), f("store_used", m.store_used);
  f("workers", m.workers), f("unreachable", m.unreachable);
}
template <class F>
void each(F& f, ActorSpec& m) {
  f("id", m.id), f("job", m.job), f("name", m.name), f("name_space", m.name_space);
  f("class_name", m.class_name), f("creation", m.creation), f("lifetime", m.lifetime);
  f("owner", m.owner), f("demand", m.demand), f("max_restarts", m.max_restarts);
  f("restart_window", m.restart_window), f("detached", m.detached);
}
template <class F>
void repair(F& filler, ActorSpec& m) {
  m.max_restarts = static_cast<std::int32_t>(filler.random.below(100)) - 1;
}
template <class F>
void each(F& f, SpawnActor& m) {
  f("request", m.request), f("spec", m.spec), f("get_if_exists", m.get_if_exists);
  f("again", m.again);
}
template <class F>
void each(F& f, ActorStarted& m) {
  f("actor", m.actor), f("incarnation", m.incarnation), f("worker", m.worker);
}
template <class F>
void each(F& f, ActorStartFailed& m) {
  f("actor", m.actor), f("incarnation", m.incarnation), f("error", m.error);
}
template <class F>
void each(F& f, ActorGone& m) {
  f("actor", m.actor), f("incarnation", m.incarnation), f("error", m.error);
  f("intended", m.intended);
}
template <class F>
void each(F& f, KillActor& m) {
  f("actor", m.actor), f("may_restart", m.may_restart), f("life", m.life);
  f("job", m.job), f("request", m.request);
}
template <class F>
void each(F& f, HandlesGone& m) {
  f("actor", m.actor);
}
template <class F>
void each(F& f, FindActor& m) {
  f("request", m.request), f("name_space", m.name_space), f("name", m.name);
}
template <class F>
void each(F& f, WatchActor& m) {
  f("actor", m.actor), f("on", m.on);
}
template <class F>
void each(F& f, HostedActor& m) {
  f("spec", m.spec), f("incarnation", m.incarnation), f("worker", m.worker);
  f("restarts", m.restarts), f("ended", m.ended);
}
template <class F>
void each(F& f, NodeHosts& m) {
  f("epoch", m.epoch), f("control_epoch", m.control_epoch), f("actors", m.actors);
  f("page", m.page), f("more", m.more), f("number", m.number);
}
template <class F>
void each(F& f, JobRecord& m) {
  f("id", m.id), f("name", m.name), f("state", m.state), f("node", m.node), f("epoch", m.epoch);
  f("why", m.why), f("started_ns", m.started_ns), f("ended_ns", m.ended_ns);
  f("program", m.program), f("arguments", m.arguments), f("files", m.files);
  f("ignored_signals", m.ignored_signals), f("blocked_signals", m.blocked_signals);
  f("user", m.user), f("pid", m.pid);
}
template <class F>
void repair(F&, JobRecord& m) {
  if (m.user.size() > wire::kMaxUser) m.user.resize(wire::kMaxUser);
}
template <class F>
void each(F& f, StartJob& m) {
  f("request", m.request), f("job", m.job);
}
template <class F>
void each(F& f, FinishJob& m) {
  f("job", m.job), f("stopped_why", m.stopped_why);
}
template <class F>
void each(F& f, DriverDied& m) {
  f("job", m.job), f("why", m.why);
}
template <class F>
void each(F& f, GetJob& m) {
  f("request", m.request), f("job", m.job);
}
template <class F>
void each(F& f, KeyValueRequest& m) {
  f("request", m.request), f("verb", m.verb), f("name_space", m.name_space), f("key", m.key);
  f("value", m.value), f("expected", m.expected), f("mode", m.mode);
}
template <class F>
void each(F& f, ObjectName& m) {
  f("name", m.name), f("object", m.object), f("owner", m.owner), f("keeper", m.keeper);
  f("fingerprint", m.fingerprint), f("type", m.type), f("job", m.job), f("bytes", m.bytes);
}
template <class F>
void each(F& f, NameObject& m) {
  f("request", m.request), f("verb", m.verb), f("what", m.what);
}
template <class F>
void each(F& f, NamedObject& m) {
  f("request", m.request), f("done", m.done), f("what", m.what), f("error", m.error);
}
template <class F>
void each(F& f, ClusterEnds& m) {
  f("why", m.why);
}
template <class F>
void each(F& f, ObjectForgotten& m) {
  f("name", m.name), f("object", m.object);
}
template <class F>
void each(F& f, ListRequest& m) {
  f("request", m.request), f("what", m.what);
}
template <class F>
void each(F& f, DrainRequest& m) {
  f("request", m.request), f("node", m.node), f("within", m.within);
}
template <class F>
void each(F& f, NodePace& m) {
  f("sites", m.sites);
}

template <class F>
void each(F& f, Registered& m) {
  f("epoch", m.epoch), f("control_epoch", m.control_epoch), f("session", m.session);
  f("number", m.number);
}
template <class F>
void each(F& f, HeartbeatAnswer& m) {
  f("control_epoch", m.control_epoch), f("sequence", m.sequence);
}
template <class F>
void each(F& f, Roster& m) {
  f("version", m.version), f("voters", m.voters), f("beside_control", m.beside_control);
  f("fenced", m.fenced);
}
template <class F>
void each(F& f, Fence& m) {
  f("epoch", m.epoch), f("why", m.why);
}
template <class F>
void each(F& f, DrainNode& m) {
  f("within", m.within);
}
template <class F>
void each(F& f, ClusterRow& m) {
  f("description", m.description), f("epoch", m.epoch), f("suspect", m.suspect);
  f("draining", m.draining), f("report", m.report), f("avoided", m.avoided);
  f("slow", m.slow);
}
template <class F>
void each(F& f, ClusterNodes& m) {
  f("version", m.version), f("rows", m.rows);
}
template <class F>
void each(F& f, NodeIsDead& m) {
  f("node", m.node), f("epoch", m.epoch), f("why", m.why);
}
template <class F>
void each(F& f, StartActorAt& m) {
  f("node", m.node), f("epoch", m.epoch), f("spec", m.spec), f("incarnation", m.incarnation);
  f("restarted", m.restarted), f("restarts", m.restarts);
}
template <class F>
void each(F& f, StopActorAt& m) {
  f("node", m.node), f("epoch", m.epoch), f("actor", m.actor), f("incarnation", m.incarnation);
  f("graceful", m.graceful), f("why", m.why), f("for_good", m.for_good);
}
template <class F>
void each(F& f, ActorReply& m) {
  f("request", m.request), f("actor", m.actor), f("class_name", m.class_name);
  f("lifetime", m.lifetime), f("owner", m.owner), f("created", m.created), f("error", m.error);
}
template <class F>
void each(F& f, ActorLocation& m) {
  f("actor", m.actor), f("state", m.state), f("incarnation", m.incarnation), f("node", m.node);
  f("epoch", m.epoch), f("worker", m.worker), f("error", m.error), f("retry_in", m.retry_in);
}
template <class F>
void each(F& f, JobReply& m) {
  f("request", m.request), f("error", m.error);
}
template <class F>
void each(F& f, JobEnded& m) {
  f("job", m.job), f("state", m.state), f("why", m.why);
}
template <class F>
void each(F& f, JobInfo& m) {
  f("request", m.request), f("job", m.job);
}
template <class F>
void each(F& f, KvReply& m) {
  f("request", m.request), f("done", m.done), f("value", m.value), f("keys", m.keys);
  f("error", m.error);
}
template <class F>
void each(F& f, ActorRow& m) {
  f("actor", m.actor), f("job", m.job), f("name", m.name), f("name_space", m.name_space);
  f("class_name", m.class_name), f("state", m.state), f("node", m.node);
  f("incarnation", m.incarnation), f("restarts", m.restarts), f("detached", m.detached);
  f("why", m.why);
}
template <class F>
void each(F& f, DeadNode& m) {
  f("description", m.description), f("epoch", m.epoch), f("why", m.why);
  f("died_unix_ns", m.died_unix_ns), f("left", m.left);
}
template <class F>
void each(F& f, ListReply& m) {
  f("request", m.request), f("nodes", m.nodes), f("actors", m.actors), f("jobs", m.jobs);
  f("objects", m.objects), f("left_off", m.left_off), f("dead_nodes", m.dead_nodes);
}
template <class F>
void each(F& f, Notice& m) {
  f("kind", m.kind), f("text", m.text);
}
template <class F>
void each(F& f, AskControl& m) {
  f("node", m.node), f("epoch", m.epoch), f("number", m.number);
}
template <class F>
void each(F& f, ControlAnswer& m) {
  f("node", m.node), f("number", m.number), f("hears_control", m.hears_control);
  f("fenced", m.fenced);
}

}  // namespace troupe::control

namespace troupe::scheduling {

constexpr Placement last_of(Placement) {
  return Placement::node;
}
template <class F>
void each(F& f, Resources& m) {
  f("cpus", m.cpus), f("gpus", m.gpus), f("memory", m.memory), f("custom", m.custom);
}
template <class F>
void repair(F&, Resources& m) {
  for (std::int64_t* amount : {&m.cpus, &m.gpus, &m.memory}) *amount >>= 3;
  for (auto& amount : m.custom) amount.second >>= 3;
}
template <class F>
void each(F& f, ResourceDemand& m) {
  f("need", m.need), f("labels", m.labels), f("placement", m.placement), f("node", m.node);
  f("soft", m.soft), f("locality", m.locality);
}
template <class F>
void repair(F&, ResourceDemand& m) {
  constexpr std::int64_t kMost = (std::int64_t{1} << 61) - 1;
  m.need.cpus &= kMost, m.need.gpus &= kMost, m.need.memory &= kMost;
  for (auto& amount : m.need.custom) amount.second &= kMost;
}
template <class F>
void each(F& f, NodeView& m) {
  f("free", m.free), f("gpu_free", m.gpu_free), f("accepts", m.accepts), f("waiting", m.waiting);
  f("most_actors", m.most_actors);
}
template <class F>
void repair(F&, NodeView& m) {
  for (std::int64_t& amount : m.gpu_free) amount >>= 3;
}

}  // namespace troupe::scheduling
