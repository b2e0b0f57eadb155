// encode() and decode() of the messages from control and between agents (messages.hpp).
#include "internal/fields.hpp"

namespace troupe::control {
namespace internal {
namespace {

using internal::read;
using internal::write;

constexpr std::size_t kMaxListedKeys = 10'000;

void write(schema::Registered::Builder out, const Registered& m) {
  out.setEpoch(m.epoch);
  out.setControlEpoch(m.control_epoch);
  fields::write(out.initSession(), m.session);
  out.setNumber(m.number);
}
void read(schema::Registered::Reader in, Registered& m) {
  m.epoch = in.getEpoch();
  m.control_epoch = in.getControlEpoch();
  fields::read(in.getSession(), m.session);
  m.number = in.getNumber();
}

void write(schema::HeartbeatAnswer::Builder out, const HeartbeatAnswer& m) {
  out.setControlEpoch(m.control_epoch);
  out.setSequence(m.sequence);
}
void read(schema::HeartbeatAnswer::Reader in, HeartbeatAnswer& m) {
  m.control_epoch = in.getControlEpoch();
  m.sequence = in.getSequence();
}

void write(schema::Roster::Builder out, const Roster& m) {
  out.setVersion(m.version);
  auto voters = out.initVoters(checked(m.voters.size(), kMaxRows));
  for (unsigned i = 0; i < voters.size(); ++i) fields::write(voters[i], m.voters[i]);
  fields::write(out.initBesideControl(), m.beside_control);
  auto fenced = out.initFenced(checked(m.fenced.size(), kMaxRows));
  for (unsigned i = 0; i < fenced.size(); ++i) {
    fields::write(fenced[i].initNode(), m.fenced[i].first);
    fenced[i].setEpoch(m.fenced[i].second);
  }
}
void read(schema::Roster::Reader in, Roster& m) {
  m.version = in.getVersion();
  const auto voters = in.getVoters();
  m.voters.resize(bounded(voters.size(), kMaxRows, "voters"));
  for (unsigned i = 0; i < voters.size(); ++i) fields::read(voters[i], m.voters[i]);
  fields::read(in.getBesideControl(), m.beside_control);
  const auto fenced = in.getFenced();
  m.fenced.resize(bounded(fenced.size(), kMaxRows, "fenced"));
  for (unsigned i = 0; i < fenced.size(); ++i) {
    fields::read(fenced[i].getNode(), m.fenced[i].first);
    m.fenced[i].second = fenced[i].getEpoch();
  }
}

void write(schema::Fence::Builder out, const Fence& m) {
  out.setEpoch(m.epoch);
  out.setWhy(CutText(m.why));
}
void read(schema::Fence::Reader in, Fence& m) {
  m.epoch = in.getEpoch();
  m.why = read_text(in.getWhy(), "reason");
}

void write(schema::ClusterRow::Builder out, const ClusterRow& row) {
  write(out.initDescription(), row.description);
  out.setEpoch(row.epoch);
  out.setSuspect(row.suspect);
  out.setDraining(row.draining);
  write(out.initReport(), row.report);
  out.setAvoided(row.avoided);
  if (!row.slow.empty()) out.setSlow(CutText(row.slow));
}
void read(schema::ClusterRow::Reader in, ClusterRow& row) {
  read(in.getDescription(), row.description);
  row.epoch = in.getEpoch();
  row.suspect = in.getSuspect();
  row.draining = in.getDraining();
  read(in.getReport(), row.report);
  row.avoided = in.getAvoided();
  row.slow = read_text(in.getSlow(), "slow");
  scheduling::NodeView& view = row.report.view;
  view.id = row.description.id;
  view.name = row.description.name;
  view.labels = row.description.labels;
  view.total = row.description.resources;
}

using ClusterRows = capnp::List<schema::ClusterRow>;
void write(ClusterRows::Builder out, const std::vector<ClusterRow>& rows) {
  for (unsigned i = 0; i < out.size(); ++i) write(out[i], rows[i]);
}
void read(ClusterRows::Reader in, std::vector<ClusterRow>& rows) {
  rows.reserve(bounded(in.size(), kMaxRows, "rows"));
  for (const auto row : in) read(row, rows.emplace_back());
}

void write(schema::ClusterNodes::Builder out, const ClusterNodes& m) {
  out.setVersion(m.version);
  write(out.initRows(checked(m.rows.size(), kMaxRows)), m.rows);
}
void read(schema::ClusterNodes::Reader in, ClusterNodes& m) {
  m.version = in.getVersion();
  read(in.getRows(), m.rows);
}

void write(schema::NodeIsDead::Builder out, const NodeIsDead& m) {
  fields::write(out.initNode(), m.node);
  out.setEpoch(m.epoch);
  out.setWhy(CutText(m.why));
}
void read(schema::NodeIsDead::Reader in, NodeIsDead& m) {
  fields::read(in.getNode(), m.node);
  m.epoch = in.getEpoch();
  m.why = read_text(in.getWhy(), "reason");
}

void write(schema::StartActorAt::Builder out, const StartActorAt& m) {
  TROUPE_ASSERT(m.spec, "an actor to start is described");
  fields::write(out.initNode(), m.node);
  out.setEpoch(m.epoch);
  write(out.initSpec(), *m.spec);
  out.setIncarnation(m.incarnation);
  out.setRestarted(m.restarted);
  out.setRestarts(m.restarts);
}
void read(schema::StartActorAt::Reader in, StartActorAt& m) {
  fields::read(in.getNode(), m.node);
  m.epoch = in.getEpoch();
  auto spec = std::make_shared<ActorSpec>();
  read(in.getSpec(), *spec);
  m.spec = std::move(spec);
  m.incarnation = in.getIncarnation();
  m.restarted = in.getRestarted();
  m.restarts = in.getRestarts();
}

void write(schema::StopActorAt::Builder out, const StopActorAt& m) {
  fields::write(out.initNode(), m.node);
  out.setEpoch(m.epoch);
  fields::write(out.initActor(), m.actor);
  out.setIncarnation(m.incarnation);
  out.setGraceful(m.graceful);
  out.setWhy(CutText(m.why));
  out.setForGood(m.for_good);
}
void read(schema::StopActorAt::Reader in, StopActorAt& m) {
  fields::read(in.getNode(), m.node);
  m.epoch = in.getEpoch();
  fields::read(in.getActor(), m.actor);
  m.incarnation = in.getIncarnation();
  m.graceful = in.getGraceful();
  m.why = read_text(in.getWhy(), "reason");
  m.for_good = in.getForGood();
}

void write(schema::ActorReply::Builder out, const ActorReply& m) {
  out.setRequest(m.request);
  fields::write(out.initActor(), m.actor);
  out.setClassName(CutText(m.class_name));
  fields::write(out.initLifetime(), m.lifetime);
  fields::write(out.initOwner(), m.owner);
  out.setCreated(m.created);
  write_optional(out, m.error);
}
void read(schema::ActorReply::Reader in, ActorReply& m) {
  m.request = in.getRequest();
  fields::read(in.getActor(), m.actor);
  m.class_name = read_text(in.getClassName(), "class name");
  fields::read(in.getLifetime(), m.lifetime);
  fields::read(in.getOwner(), m.owner);
  m.created = in.getCreated();
  m.error = read_error(in.getError());
}

void write(schema::ActorLocation::Builder out, const ActorLocation& m) {
  fields::write(out.initActor(), m.actor);
  out.setState(static_cast<std::uint8_t>(m.state));
  out.setIncarnation(m.incarnation);
  fields::write(out.initNode(), m.node);
  out.setEpoch(m.epoch);
  out.setWorker(m.worker.value);
  write_optional(out, m.error);
  out.setRetryIn(static_cast<std::uint64_t>(std::max(m.retry_in, Duration::zero()).count()));
}
void read(schema::ActorLocation::Reader in, ActorLocation& m) {
  fields::read(in.getActor(), m.actor);
  m.state = read_enum(in.getState(), ActorState::dead, "actor state");
  m.incarnation = in.getIncarnation();
  fields::read(in.getNode(), m.node);
  m.epoch = in.getEpoch();
  m.worker.value = in.getWorker();
  m.error = read_error(in.getError());
  constexpr auto kLongest = static_cast<std::uint64_t>(Duration::max().count());
  m.retry_in = Duration(static_cast<Duration::rep>(std::min(in.getRetryIn(), kLongest)));
}

void write(schema::JobReply::Builder out, const JobReply& m) {
  out.setRequest(m.request);
  write_optional(out, m.error);
}
void read(schema::JobReply::Reader in, JobReply& m) {
  m.request = in.getRequest();
  m.error = read_error(in.getError());
}

void write(schema::JobEnded::Builder out, const JobEnded& m) {
  fields::write(out.initJob(), m.job);
  out.setState(static_cast<std::uint8_t>(m.state));
  out.setWhy(CutText(m.why));
}
void read(schema::JobEnded::Reader in, JobEnded& m) {
  fields::read(in.getJob(), m.job);
  m.state = read_enum(in.getState(), JobState::stopped, "job state");
  m.why = read_text(in.getWhy(), "reason");
}

void write(schema::JobInfo::Builder out, const JobInfo& m) {
  out.setRequest(m.request);
  if (m.job) write(out.initJob(), *m.job);
}
void read(schema::JobInfo::Reader in, JobInfo& m) {
  m.request = in.getRequest();
  if (in.hasJob()) read(in.getJob(), m.job.emplace());
}

void write(schema::KvReply::Builder out, const KvReply& m) {
  out.setRequest(m.request);
  out.setDone(m.done);
  if (m.value) out.setValue(data_of(*m.value));
  if (!m.keys.empty()) {
    auto keys = out.initKeys(checked(m.keys.size(), kMaxListedKeys));
    for (unsigned i = 0; i < keys.size(); ++i) keys.set(i, data_of(m.keys[i]));
  }
  write_optional(out, m.error);
}
void read(schema::KvReply::Reader in, KvReply& m) {
  m.request = in.getRequest();
  m.done = in.getDone();
  if (in.hasValue()) m.value = string_of(in.getValue());
  const auto keys = in.getKeys();
  m.keys.reserve(bounded(keys.size(), kMaxListedKeys, "keys"));
  for (const auto key : keys) m.keys.push_back(string_of(key));
  m.error = read_error(in.getError());
}

void write(schema::NamedObject::Builder out, const NamedObject& m) {
  out.setRequest(m.request);
  out.setDone(m.done);
  write(out.initWhat(), m.what);
  write_optional(out, m.error);
}
void read(schema::NamedObject::Reader in, NamedObject& m) {
  m.request = in.getRequest();
  m.done = in.getDone();
  read(in.getWhat(), m.what);
  m.error = read_error(in.getError());
}

void write(schema::ObjectForgotten::Builder out, const ObjectForgotten& m) {
  out.setName(CutText(m.name));
  fields::write(out.initObject(), m.object);
}
void read(schema::ObjectForgotten::Reader in, ObjectForgotten& m) {
  m.name = read_text(in.getName(), "object name");
  fields::read(in.getObject(), m.object);
}

void write(schema::ClusterEnds::Builder out, const ClusterEnds& m) {
  out.setWhy(CutText(m.why));
}
void read(schema::ClusterEnds::Reader in, ClusterEnds& m) {
  m.why = read_text(in.getWhy(), "reason");
}

void write(schema::ActorRow::Builder out, const ActorRow& row) {
  fields::write(out.initActor(), row.actor);
  fields::write(out.initJob(), row.job);
  out.setName(CutText(row.name));
  out.setNameSpace(CutText(row.name_space));
  out.setClassName(CutText(row.class_name));
  out.setState(static_cast<std::uint8_t>(row.state));
  fields::write(out.initNode(), row.node);
  out.setIncarnation(row.incarnation);
  out.setRestarts(row.restarts);
  out.setDetached(row.detached);
  out.setWhy(CutText(row.why));
}
void read(schema::ActorRow::Reader in, ActorRow& row) {
  fields::read(in.getActor(), row.actor);
  fields::read(in.getJob(), row.job);
  row.name = read_text(in.getName(), "actor name");
  row.name_space = read_text(in.getNameSpace(), "name space");
  row.class_name = read_text(in.getClassName(), "class name");
  row.state = read_enum(in.getState(), ActorState::dead, "actor state");
  fields::read(in.getNode(), row.node);
  row.incarnation = in.getIncarnation();
  row.restarts = in.getRestarts();
  row.detached = in.getDetached();
  row.why = read_text(in.getWhy(), "reason");
}

void write(schema::DeadNode::Builder out, const DeadNode& node) {
  write(out.initDescription(), node.description);
  out.setEpoch(node.epoch);
  out.setWhy(CutText(node.why));
  out.setDiedUnixNs(node.died_unix_ns);
  out.setLeft(node.left);
}
void read(schema::DeadNode::Reader in, DeadNode& node) {
  read(in.getDescription(), node.description);
  node.epoch = in.getEpoch();
  node.why = read_text(in.getWhy(), "reason");
  node.died_unix_ns = in.getDiedUnixNs();
  node.left = in.getLeft();
}

void write(schema::ListReply::Builder out, const ListReply& m) {
  out.setRequest(m.request);
  write(out.initNodes(checked(m.nodes.size(), kMaxRows)), m.nodes);
  auto actors = out.initActors(checked(m.actors.size(), kMaxRows));
  for (unsigned i = 0; i < actors.size(); ++i) write(actors[i], m.actors[i]);
  auto jobs = out.initJobs(checked(m.jobs.size(), kMaxRows));
  for (unsigned i = 0; i < jobs.size(); ++i) write(jobs[i], m.jobs[i]);
  auto objects = out.initObjects(checked(m.objects.size(), kMaxRows));
  for (unsigned i = 0; i < objects.size(); ++i) write(objects[i], m.objects[i]);
  out.setLeftOff(m.left_off);
  if (m.dead_nodes.empty()) return;
  auto dead = out.initDeadNodes(checked(m.dead_nodes.size(), DeadNodes::kMost));
  for (unsigned i = 0; i < dead.size(); ++i) write(dead[i], m.dead_nodes[i]);
}
void read(schema::ListReply::Reader in, ListReply& m) {
  m.request = in.getRequest();
  read(in.getNodes(), m.nodes);
  const auto actors = in.getActors();
  m.actors.reserve(bounded(actors.size(), kMaxRows, "actors"));
  for (const auto actor : actors) read(actor, m.actors.emplace_back());
  const auto jobs = in.getJobs();
  m.jobs.reserve(bounded(jobs.size(), kMaxRows, "jobs"));
  for (const auto job : jobs) read(job, m.jobs.emplace_back());
  const auto objects = in.getObjects();
  m.objects.reserve(bounded(objects.size(), kMaxRows, "objects"));
  for (const auto object : objects) read(object, m.objects.emplace_back());
  m.left_off = in.getLeftOff();
  const auto dead = in.getDeadNodes();
  m.dead_nodes.reserve(bounded(dead.size(), DeadNodes::kMost, "dead nodes"));
  for (const auto node : dead) read(node, m.dead_nodes.emplace_back());
}

void write(schema::Notice::Builder out, const Notice& m) {
  out.setKind(static_cast<std::uint8_t>(m.kind));
  out.setText(CutText(m.text));
}
void read(schema::Notice::Reader in, Notice& m) {
  m.kind = read_enum(in.getKind(), Notice::Kind::slow_node, "kind of notice");
  m.text = read_text(in.getText(), "notice");
}

// --- between agents ----------------------------------------------------------------------------

void write(schema::AskControl::Builder out, const AskControl& m) {
  fields::write(out.initNode(), m.node);
  out.setEpoch(m.epoch);
  out.setNumber(m.number);
}
void read(schema::AskControl::Reader in, AskControl& m) {
  fields::read(in.getNode(), m.node);
  m.epoch = in.getEpoch();
  m.number = in.getNumber();
}

void write(schema::ControlAnswer::Builder out, const ControlAnswer& m) {
  fields::write(out.initNode(), m.node);
  out.setNumber(m.number);
  out.setHearsControl(m.hears_control);
  out.setFenced(m.fenced);
}
void read(schema::ControlAnswer::Reader in, ControlAnswer& m) {
  fields::read(in.getNode(), m.node);
  m.number = in.getNumber();
  m.hears_control = in.getHearsControl();
  m.fenced = in.getFenced();
}

void read(schema::DrainNode::Reader in, DrainNode& m) {
  m.within = Duration(in.getWithinNs());
  if (m.within < Duration::zero()) refuse("time of a drain", "is negative");
}

/// Picks the member of the union by the type of the message.
struct FromControlWriter {
  schema::FromControl::Builder out;
  void operator()(const Registered& m) { write(out.initRegistered(), m); }
  void operator()(const HeartbeatAnswer& m) { write(out.initHeartbeatAnswer(), m); }
  void operator()(const Roster& m) { write(out.initRoster(), m); }
  void operator()(const Fence& m) { write(out.initFence(), m); }
  void operator()(const DrainNode& m) { out.initDrain().setWithinNs(m.within.count()); }
  void operator()(const ClusterNodes& m) { write(out.initClusterNodes(), m); }
  void operator()(const NodeIsDead& m) { write(out.initNodeIsDead(), m); }
  void operator()(const StartActorAt& m) { write(out.initStartActorAt(), m); }
  void operator()(const StopActorAt& m) { write(out.initStopActorAt(), m); }
  void operator()(const ActorReply& m) { write(out.initActorReply(), m); }
  void operator()(const ActorLocation& m) { write(out.initActorLocation(), m); }
  void operator()(const JobReply& m) { write(out.initJobReply(), m); }
  void operator()(const JobEnded& m) { write(out.initJobEnded(), m); }
  void operator()(const JobInfo& m) { write(out.initJobInfo(), m); }
  void operator()(const KvReply& m) { write(out.initKvReply(), m); }
  void operator()(const ListReply& m) { write(out.initListReply(), m); }
  void operator()(const NamedObject& m) { write(out.initNamedObject(), m); }
  void operator()(const ObjectForgotten& m) { write(out.initObjectForgotten(), m); }
  void operator()(const ClusterEnds& m) { write(out.initClusterEnds(), m); }
  void operator()(const Notice& m) { write(out.initNotice(), m); }
};

void read_member(const schema::FromControl::Reader& in, FromControl& out) {
  using Kind = schema::FromControl::Which;
  switch (in.which()) {
    case Kind::REGISTERED: return read(in.getRegistered(), out.emplace<Registered>());
    case Kind::HEARTBEAT_ANSWER:
      return read(in.getHeartbeatAnswer(), out.emplace<HeartbeatAnswer>());
    case Kind::ROSTER: return read(in.getRoster(), out.emplace<Roster>());
    case Kind::FENCE: return read(in.getFence(), out.emplace<Fence>());
    case Kind::DRAIN: return read(in.getDrain(), out.emplace<DrainNode>());
    case Kind::CLUSTER_NODES: return read(in.getClusterNodes(), out.emplace<ClusterNodes>());
    case Kind::NODE_IS_DEAD: return read(in.getNodeIsDead(), out.emplace<NodeIsDead>());
    case Kind::START_ACTOR_AT: return read(in.getStartActorAt(), out.emplace<StartActorAt>());
    case Kind::STOP_ACTOR_AT: return read(in.getStopActorAt(), out.emplace<StopActorAt>());
    case Kind::ACTOR_REPLY: return read(in.getActorReply(), out.emplace<ActorReply>());
    case Kind::ACTOR_LOCATION: return read(in.getActorLocation(), out.emplace<ActorLocation>());
    case Kind::JOB_REPLY: return read(in.getJobReply(), out.emplace<JobReply>());
    case Kind::JOB_ENDED: return read(in.getJobEnded(), out.emplace<JobEnded>());
    case Kind::JOB_INFO: return read(in.getJobInfo(), out.emplace<JobInfo>());
    case Kind::KV_REPLY: return read(in.getKvReply(), out.emplace<KvReply>());
    case Kind::LIST_REPLY: return read(in.getListReply(), out.emplace<ListReply>());
    case Kind::NAMED_OBJECT: return read(in.getNamedObject(), out.emplace<NamedObject>());
    case Kind::OBJECT_FORGOTTEN:
      return read(in.getObjectForgotten(), out.emplace<ObjectForgotten>());
    case Kind::CLUSTER_ENDS: return read(in.getClusterEnds(), out.emplace<ClusterEnds>());
    case Kind::NOTICE: return read(in.getNotice(), out.emplace<Notice>());
  }
  fields::unsupported(static_cast<unsigned>(in.which()));
}

/// Picks the member of the union by the type of the message.
struct BetweenAgentsWriter {
  schema::BetweenAgents::Builder out;
  void operator()(const AskControl& m) { write(out.initAsk(), m); }
  void operator()(const ControlAnswer& m) { write(out.initAnswer(), m); }
};

void read_member(const schema::BetweenAgents::Reader& in, BetweenAgents& out) {
  using Kind = schema::BetweenAgents::Which;
  switch (in.which()) {
    case Kind::ASK: return read(in.getAsk(), out.emplace<AskControl>());
    case Kind::ANSWER: return read(in.getAnswer(), out.emplace<ControlAnswer>());
  }
  fields::unsupported(static_cast<unsigned>(in.which()));
}

}  // namespace
}  // namespace internal

using wire::internal::Conversation;

Blob encode(const FromControl& message) {
  static thread_local wire::internal::Encoder encoder;  // its buffer is zeroed once
  const BlobView frame = encoder.encode<internal::schema::FromControl>(
      message, Conversation::from_control,
      [](internal::schema::FromControl::Builder out, const FromControl& m) {
        std::visit(internal::FromControlWriter{out}, m);
      });
  return Blob(frame.begin(), frame.end());
}

Result<FromControl> decode_from_control(BlobView bytes) {
  auto decoded = wire::internal::decode_frame<FromControl, internal::schema::FromControl>(
      bytes, Conversation::from_control,
      [](const internal::schema::FromControl::Reader& in, FromControl& out, std::size_t) {
        internal::read_member(in, out);
      },
      0);
  if (!decoded.ok()) return decoded.error();
  return std::move(decoded->message);
}

Blob encode(const BetweenAgents& message) {
  static thread_local wire::internal::Encoder encoder;  // its buffer is zeroed once
  const BlobView frame = encoder.encode<internal::schema::BetweenAgents>(
      message, Conversation::between_agents,
      [](internal::schema::BetweenAgents::Builder out, const BetweenAgents& m) {
        std::visit(internal::BetweenAgentsWriter{out}, m);
      });
  return Blob(frame.begin(), frame.end());
}

Result<BetweenAgents> decode_between_agents(BlobView bytes) {
  auto decoded = wire::internal::decode_frame<BetweenAgents, internal::schema::BetweenAgents>(
      bytes, Conversation::between_agents,
      [](const internal::schema::BetweenAgents::Reader& in, BetweenAgents& out, std::size_t) {
        internal::read_member(in, out);
      },
      0);
  if (!decoded.ok()) return decoded.error();
  return std::move(decoded->message);
}

std::optional<FromControl> refusal_of(const ToControl& message,
                                      const std::shared_ptr<const ErrorInfo>& why) {
  if (const auto* spawn = std::get_if<SpawnActor>(&message)) {
    ActorReply reply;
    reply.request = spawn->request;
    reply.error = why;
    return reply;
  }
  if (const auto* find = std::get_if<FindActor>(&message)) {
    ActorReply reply;
    reply.request = find->request;
    reply.error = why;
    return reply;
  }
  if (const auto* kill = std::get_if<KillActor>(&message); kill != nullptr && kill->request != 0) {
    ActorReply reply;
    reply.request = kill->request;
    reply.error = why;
    return reply;
  }
  if (const auto* job = std::get_if<StartJob>(&message)) return JobReply{{}, job->request, why};
  if (const auto* value = std::get_if<KeyValueRequest>(&message)) {
    KvReply reply;
    reply.request = value->request;
    reply.error = why;
    return reply;
  }
  if (const auto* name = std::get_if<NameObject>(&message)) {
    NamedObject reply;
    reply.request = name->request;
    reply.error = why;
    return reply;
  }
  return std::nullopt;
}

}  // namespace troupe::control
