// encode() and decode() of the messages to control (messages.hpp).
#include "internal/fields.hpp"

namespace troupe::control {
namespace internal {
namespace {

using internal::read;
using internal::write;

constexpr std::size_t kMaxHosted = 16384;  ///< of one message

void write(schema::RegisterNode::Builder out, const RegisterNode& m) {
  write(out.initNode(), m.node);
  out.setEpoch(m.epoch);
  fields::write(out.initSession(), m.session);
  out.setNumber(m.number);
}
void read(schema::RegisterNode::Reader in, RegisterNode& m) {
  read(in.getNode(), m.node);
  m.epoch = in.getEpoch();
  fields::read(in.getSession(), m.session);
  m.number = in.getNumber();
}

void write(schema::Heartbeat::Builder out, const Heartbeat& m) {
  out.setEpoch(m.epoch);
  out.setSequence(m.sequence);
  out.setRoster(m.roster);
}
void read(schema::Heartbeat::Reader in, Heartbeat& m) {
  m.epoch = in.getEpoch();
  m.sequence = in.getSequence();
  m.roster = in.getRoster();
}

void write(schema::Leaving::Builder out, const Leaving& m) {
  out.setEpoch(m.epoch);
}
void read(schema::Leaving::Reader in, Leaving& m) {
  m.epoch = in.getEpoch();
}

void write(schema::SpawnActor::Builder out, const SpawnActor& m) {
  out.setRequest(m.request);
  write(out.initSpec(), m.spec);
  out.setGetIfExists(m.get_if_exists);
  out.setAgain(m.again);
}
void read(schema::SpawnActor::Reader in, SpawnActor& m) {
  m.request = in.getRequest();
  read(in.getSpec(), m.spec);
  m.get_if_exists = in.getGetIfExists();
  m.again = in.getAgain();
}

void write(schema::ActorStarted::Builder out, const ActorStarted& m) {
  fields::write(out.initActor(), m.actor);
  out.setIncarnation(m.incarnation);
  out.setWorker(m.worker.value);
}
void read(schema::ActorStarted::Reader in, ActorStarted& m) {
  fields::read(in.getActor(), m.actor);
  m.incarnation = in.getIncarnation();
  m.worker.value = in.getWorker();
}

void write(schema::ActorStartFailed::Builder out, const ActorStartFailed& m) {
  fields::write(out.initActor(), m.actor);
  out.setIncarnation(m.incarnation);
  write_optional(out, m.error);
}
void read(schema::ActorStartFailed::Reader in, ActorStartFailed& m) {
  fields::read(in.getActor(), m.actor);
  m.incarnation = in.getIncarnation();
  m.error = read_error(in.getError());
}

void write(schema::ActorGone::Builder out, const ActorGone& m) {
  fields::write(out.initActor(), m.actor);
  out.setIncarnation(m.incarnation);
  write_optional(out, m.error);
  out.setIntended(m.intended);
}
void read(schema::ActorGone::Reader in, ActorGone& m) {
  fields::read(in.getActor(), m.actor);
  m.incarnation = in.getIncarnation();
  m.error = read_error(in.getError());
  m.intended = in.getIntended();
}

void write(schema::KillActor::Builder out, const KillActor& m) {
  fields::write(out.initActor(), m.actor);
  out.setMayRestart(m.may_restart);
  out.setLife(m.life);
  if (m.job) fields::write(out.initJob(), m.job);
  out.setRequest(m.request);
}
void read(schema::KillActor::Reader in, KillActor& m) {
  fields::read(in.getActor(), m.actor);
  m.may_restart = in.getMayRestart();
  m.life = in.getLife();
  fields::read(in.getJob(), m.job);
  m.request = in.getRequest();
}

void write(schema::HandlesGone::Builder out, const HandlesGone& m) {
  fields::write(out.initActor(), m.actor);
}
void read(schema::HandlesGone::Reader in, HandlesGone& m) {
  fields::read(in.getActor(), m.actor);
}

void write(schema::FindActor::Builder out, const FindActor& m) {
  out.setRequest(m.request);
  out.setNameSpace(CutText(m.name_space));
  out.setName(CutText(m.name));
}
void read(schema::FindActor::Reader in, FindActor& m) {
  m.request = in.getRequest();
  m.name_space = read_text(in.getNameSpace(), "name space");
  m.name = read_text(in.getName(), "actor name");
}

void write(schema::WatchActor::Builder out, const WatchActor& m) {
  fields::write(out.initActor(), m.actor);
  out.setOn(m.on);
}
void read(schema::WatchActor::Reader in, WatchActor& m) {
  fields::read(in.getActor(), m.actor);
  m.on = in.getOn();
}

void write(schema::NodeHosts::Builder out, const NodeHosts& m) {
  out.setEpoch(m.epoch);
  out.setControlEpoch(m.control_epoch);
  auto actors = out.initActors(checked(m.actors.size(), kMaxHosted));
  for (unsigned i = 0; i < actors.size(); ++i) {
    const HostedActor& hosted = m.actors[i];
    write(actors[i].initSpec(), hosted.spec);
    actors[i].setIncarnation(hosted.incarnation);
    actors[i].setWorker(hosted.worker.value);
    actors[i].setRestarts(hosted.restarts);
    actors[i].setEnded(hosted.ended);
  }
  out.setPage(m.page);
  out.setMore(m.more);
  out.setNumber(m.number);
}
void read(schema::NodeHosts::Reader in, NodeHosts& m) {
  m.epoch = in.getEpoch();
  m.control_epoch = in.getControlEpoch();
  const auto actors = in.getActors();
  m.actors.reserve(bounded(actors.size(), kMaxHosted, "actors"));
  for (const auto actor : actors) {
    HostedActor& hosted = m.actors.emplace_back();
    read(actor.getSpec(), hosted.spec);
    hosted.incarnation = actor.getIncarnation();
    hosted.worker.value = actor.getWorker();
    hosted.restarts = actor.getRestarts();
    hosted.ended = actor.getEnded();
  }
  m.page = in.getPage();
  m.more = in.getMore();
  m.number = in.getNumber();
}

void write(schema::StartJob::Builder out, const StartJob& m) {
  out.setRequest(m.request);
  write(out.initJob(), m.job);
}
void read(schema::StartJob::Reader in, StartJob& m) {
  m.request = in.getRequest();
  read(in.getJob(), m.job);
}

void write(schema::FinishJob::Builder out, const FinishJob& m) {
  fields::write(out.initJob(), m.job);
  if (!m.stopped_why.empty()) out.setStoppedWhy(CutText(m.stopped_why));
}
void read(schema::FinishJob::Reader in, FinishJob& m) {
  fields::read(in.getJob(), m.job);
  m.stopped_why = read_text(in.getStoppedWhy(), "reason");
}

void write(schema::DriverDied::Builder out, const DriverDied& m) {
  fields::write(out.initJob(), m.job);
  out.setWhy(CutText(m.why));
}
void read(schema::DriverDied::Reader in, DriverDied& m) {
  fields::read(in.getJob(), m.job);
  m.why = read_text(in.getWhy(), "reason");
}

void write(schema::GetJob::Builder out, const GetJob& m) {
  out.setRequest(m.request);
  fields::write(out.initJob(), m.job);
}
void read(schema::GetJob::Reader in, GetJob& m) {
  m.request = in.getRequest();
  fields::read(in.getJob(), m.job);
}

void write(schema::KeyValueRequest::Builder out, const KeyValueRequest& m) {
  out.setRequest(m.request);
  out.setVerb(static_cast<std::uint8_t>(m.verb));
  out.setNameSpace(data_of(m.name_space));
  out.setKey(data_of(m.key));
  out.setValue(data_of(m.value));
  out.setExpected(data_of(m.expected));
  out.setMode(static_cast<std::uint8_t>(m.mode));
}
void read(schema::KeyValueRequest::Reader in, KeyValueRequest& m) {
  m.request = in.getRequest();
  m.verb = read_enum(in.getVerb(), KeyValueRequest::Verb::list, "verb");
  m.name_space = string_of(in.getNameSpace());
  m.key = string_of(in.getKey());
  m.value = string_of(in.getValue());
  m.expected = string_of(in.getExpected());
  m.mode = read_enum(in.getMode(), PutMode::if_equal, "mode");
}

void write(schema::ListRequest::Builder out, const ListRequest& m) {
  out.setRequest(m.request);
  out.setWhat(static_cast<std::uint8_t>(m.what));
}
void read(schema::ListRequest::Reader in, ListRequest& m) {
  m.request = in.getRequest();
  m.what = read_enum(in.getWhat(), ListRequest::What::objects, "list");
}

void write(schema::NameObject::Builder out, const NameObject& m) {
  out.setRequest(m.request);
  out.setVerb(static_cast<std::uint8_t>(m.verb));
  write(out.initWhat(), m.what);
}
void read(schema::NameObject::Reader in, NameObject& m) {
  m.request = in.getRequest();
  m.verb = read_enum(in.getVerb(), NameObject::Verb::forget, "verb");
  read(in.getWhat(), m.what);
}

void write(schema::DrainRequest::Builder out, const DrainRequest& m) {
  out.setRequest(m.request);
  fields::write(out.initNode(), m.node);
  out.setWithinNs(m.within.count());
}
void read(schema::DrainRequest::Reader in, DrainRequest& m) {
  m.request = in.getRequest();
  fields::read(in.getNode(), m.node);
  m.within = Duration(in.getWithinNs());
  if (m.within < Duration::zero()) refuse("time of a drain", "is negative");
}

void write(schema::NodePace::Builder out, const NodePace& m) {
  auto sites = out.initSites(checked(m.sites.size(), wire::kMaxSites));
  for (unsigned i = 0; i < sites.size(); ++i) {
    sites[i].setModule(m.sites[i].function.module);
    sites[i].setOffsetBytes(m.sites[i].function.offset);
    sites[i].setTasks(m.sites[i].tasks);
    sites[i].setRanNs(m.sites[i].ran_ns);
  }
}
void read(schema::NodePace::Reader in, NodePace& m) {
  const auto sites = in.getSites();
  m.sites.reserve(bounded(sites.size(), wire::kMaxSites, "sites"));
  for (const auto site : sites)
    m.sites.push_back(
        {{site.getModule(), site.getOffsetBytes()}, site.getTasks(), site.getRanNs()});
}

/// Picks the member of the union by the type of the message.
struct ToControlWriter {
  schema::ToControl::Builder out;
  void operator()(const RegisterNode& m) { write(out.initRegisterNode(), m); }
  void operator()(const Heartbeat& m) { write(out.initHeartbeat(), m); }
  void operator()(const Leaving& m) { write(out.initLeaving(), m); }
  void operator()(const NodeReport& m) { write(out.initReport(), m); }
  void operator()(const SpawnActor& m) { write(out.initSpawnActor(), m); }
  void operator()(const ActorStarted& m) { write(out.initActorStarted(), m); }
  void operator()(const ActorStartFailed& m) { write(out.initActorStartFailed(), m); }
  void operator()(const ActorGone& m) { write(out.initActorGone(), m); }
  void operator()(const KillActor& m) { write(out.initKillActor(), m); }
  void operator()(const HandlesGone& m) { write(out.initHandlesGone(), m); }
  void operator()(const FindActor& m) { write(out.initFindActor(), m); }
  void operator()(const WatchActor& m) { write(out.initWatchActor(), m); }
  void operator()(const NodeHosts& m) { write(out.initNodeHosts(), m); }
  void operator()(const StartJob& m) { write(out.initStartJob(), m); }
  void operator()(const FinishJob& m) { write(out.initFinishJob(), m); }
  void operator()(const DriverDied& m) { write(out.initDriverDied(), m); }
  void operator()(const GetJob& m) { write(out.initGetJob(), m); }
  void operator()(const KeyValueRequest& m) { write(out.initKeyValue(), m); }
  void operator()(const ListRequest& m) { write(out.initList(), m); }
  void operator()(const DrainRequest& m) { write(out.initDrain(), m); }
  void operator()(const NodePace& m) { write(out.initPace(), m); }
  void operator()(const NameObject& m) { write(out.initNameObject(), m); }
};

void read_member(const schema::ToControl::Reader& in, ToControl& out) {
  using Kind = schema::ToControl::Which;
  switch (in.which()) {
    case Kind::REGISTER_NODE: return read(in.getRegisterNode(), out.emplace<RegisterNode>());
    case Kind::HEARTBEAT: return read(in.getHeartbeat(), out.emplace<Heartbeat>());
    case Kind::LEAVING: return read(in.getLeaving(), out.emplace<Leaving>());
    case Kind::REPORT: return read(in.getReport(), out.emplace<NodeReport>());
    case Kind::SPAWN_ACTOR: return read(in.getSpawnActor(), out.emplace<SpawnActor>());
    case Kind::ACTOR_STARTED: return read(in.getActorStarted(), out.emplace<ActorStarted>());
    case Kind::ACTOR_START_FAILED:
      return read(in.getActorStartFailed(), out.emplace<ActorStartFailed>());
    case Kind::ACTOR_GONE: return read(in.getActorGone(), out.emplace<ActorGone>());
    case Kind::KILL_ACTOR: return read(in.getKillActor(), out.emplace<KillActor>());
    case Kind::HANDLES_GONE: return read(in.getHandlesGone(), out.emplace<HandlesGone>());
    case Kind::FIND_ACTOR: return read(in.getFindActor(), out.emplace<FindActor>());
    case Kind::WATCH_ACTOR: return read(in.getWatchActor(), out.emplace<WatchActor>());
    case Kind::NODE_HOSTS: return read(in.getNodeHosts(), out.emplace<NodeHosts>());
    case Kind::START_JOB: return read(in.getStartJob(), out.emplace<StartJob>());
    case Kind::FINISH_JOB: return read(in.getFinishJob(), out.emplace<FinishJob>());
    case Kind::DRIVER_DIED: return read(in.getDriverDied(), out.emplace<DriverDied>());
    case Kind::GET_JOB: return read(in.getGetJob(), out.emplace<GetJob>());
    case Kind::KEY_VALUE: return read(in.getKeyValue(), out.emplace<KeyValueRequest>());
    case Kind::LIST: return read(in.getList(), out.emplace<ListRequest>());
    case Kind::DRAIN: return read(in.getDrain(), out.emplace<DrainRequest>());
    case Kind::PACE: return read(in.getPace(), out.emplace<NodePace>());
    case Kind::NAME_OBJECT: return read(in.getNameObject(), out.emplace<NameObject>());
  }
  fields::unsupported(static_cast<unsigned>(in.which()));
}

}  // namespace
}  // namespace internal

using wire::internal::Conversation;

Blob encode(const ToControl& message) {
  static thread_local wire::internal::Encoder encoder;  // its buffer is zeroed once
  const BlobView frame = encoder.encode<internal::schema::ToControl>(
      message, Conversation::to_control,
      [](internal::schema::ToControl::Builder out, const ToControl& m) {
        std::visit(internal::ToControlWriter{out}, m);
      });
  return Blob(frame.begin(), frame.end());
}

Result<ToControl> decode_to_control(BlobView bytes) {
  auto decoded = wire::internal::decode_frame<ToControl, internal::schema::ToControl>(
      bytes, Conversation::to_control,
      [](const internal::schema::ToControl::Reader& in, ToControl& out, std::size_t) {
        internal::read_member(in, out);
      },
      0);
  if (!decoded.ok()) return decoded.error();
  return std::move(decoded->message);
}

}  // namespace troupe::control
