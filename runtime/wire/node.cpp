#include "internal/fields.hpp"

namespace troupe::wire::internal {
namespace {

void write(schema::Hello::Builder out, const Hello& m) {
  out.setProtocol(m.protocol);
  out.setBuild(CutText(m.build));
  out.setKind(static_cast<std::uint8_t>(m.kind));
  out.setPid(m.pid);
  out.setToken(m.token);
  if (!m.program.empty()) out.setProgram(CutText(m.program, kMaxPath));
  if (!m.arguments.empty())
    internal::write(out.initArguments(checked(m.arguments.size(), kMaxRows)), m.arguments,
                    kMaxProgramArgument);
  if (!m.libraries.empty())
    internal::write(out.initLibraries(checked(m.libraries.size(), 64)), m.libraries,
                    kMaxProgramArgument);
  if (!m.job_name.empty()) out.setJobName(CutText(m.job_name));
  out.setIgnoredSignals(m.ignored_signals);
  out.setBlockedSignals(m.blocked_signals);
}
void read(schema::Hello::Reader in, Hello& m) {
  m.protocol = in.getProtocol();
  m.build = read_text(in.getBuild(), "build");
  if (in.getKind() > static_cast<std::uint8_t>(ProcessKind::observer))
    refuse("process kind", "is out of range");
  m.kind = static_cast<ProcessKind>(in.getKind());
  m.pid = in.getPid();
  m.token = in.getToken();
  m.program = read_text(in.getProgram(), "program", kMaxPath);
  read_texts(in.getArguments(), m.arguments, "arguments", kMaxProgramArgument);
  const auto libraries = in.getLibraries();  // once: another read counts against the limit
  bounded(libraries.size(), 64, "libraries");
  read_texts(libraries, m.libraries, "libraries", kMaxProgramArgument);
  m.job_name = read_text(in.getJobName(), "job name");
  m.ignored_signals = in.getIgnoredSignals();
  m.blocked_signals = in.getBlockedSignals();
}

void write(schema::Welcome::Builder out, const Welcome& m) {
  out.setProtocol(m.protocol);
  internal::write(out.initNode(), m.node);
  out.setNodeName(CutText(m.node_name));
  out.setProcess(m.process.value);
  out.setMySlot(m.my_slot);
  out.setAgentSlot(m.agent_slot);
  out.setCpus(m.cpus);
  if (m.job) internal::write(out.initJob(), m.job);
}
void read(schema::Welcome::Reader in, Welcome& m) {
  m.protocol = in.getProtocol();
  internal::read(in.getNode(), m.node);
  m.node_name = read_text(in.getNodeName(), "node name");
  m.process.value = in.getProcess();
  m.my_slot = in.getMySlot();
  m.agent_slot = in.getAgentSlot();
  m.cpus = in.getCpus();
  internal::read(in.getJob(), m.job);
}

void write(schema::Channel::Builder out, const Channel& m) {
  out.setPeer(m.peer.value);
  out.setSide(m.side);
  out.setMySlot(m.my_slot);
  out.setPeerSlot(m.peer_slot);
  out.setRemote(m.remote);
  out.setHolder(m.holder.value);
}
void read(schema::Channel::Reader in, Channel& m) {
  m.peer.value = in.getPeer();
  m.side = in.getSide();
  if (m.side > 1) refuse("channel side", "is out of range");
  m.my_slot = in.getMySlot();
  m.peer_slot = in.getPeerSlot();
  m.remote = in.getRemote();
  m.holder.value = in.getHolder();
}

void write(schema::PeerDied::Builder out, const PeerDied& m) {
  out.setPeer(m.peer.value);
  out.setReason(CutText(m.reason));
  out.setStarted(m.started);
  if (!m.stack.empty()) out.setStack(CutText(m.stack, kMaxStack));
  if (!m.last_lines.empty()) out.setLastLines(CutText(m.last_lines, kMaxLastLines));
}
void read(schema::PeerDied::Reader in, PeerDied& m) {
  m.peer.value = in.getPeer();
  m.reason = read_text(in.getReason(), "reason");
  m.started = in.getStarted();
  m.stack = read_text(in.getStack(), "stack", kMaxStack);
  m.last_lines = read_text(in.getLastLines(), "last lines", kMaxLastLines);
}

// --- leases ---

void write(schema::RequestLease::Builder out, const RequestLease& m) {
  out.setKey(m.key.value);
  out.setBacklog(m.backlog);
  internal::write(out.initDemand(), m.demand);
  if (m.near) internal::write(out.initNear(), m.near);
  out.setNearBytes(m.near_bytes);
}
void read(schema::RequestLease::Reader in, RequestLease& m) {
  m.key.value = in.getKey();
  m.backlog = in.getBacklog();
  internal::read(in.getDemand(), m.demand);
  internal::read(in.getNear(), m.near);
  m.near_bytes = in.getNearBytes();
}

void write(schema::LeaseGranted::Builder out, const LeaseGranted& m) {
  out.setKey(m.key.value);
  out.setLease(m.lease.value);
  out.setWorker(m.worker.value);
  if (!m.gpus.empty()) internal::write(out.initGpus(checked(m.gpus.size(), kMaxGpus)), m.gpus);
  if (m.demand) internal::write(out.initDemand(), *m.demand);
  out.setHasDevices(m.has_devices);
}
void read(schema::LeaseGranted::Reader in, LeaseGranted& m) {
  m.key.value = in.getKey();
  m.lease.value = in.getLease();
  m.worker.value = in.getWorker();
  internal::read(in.getGpus(), m.gpus);
  m.demand.reset();
  if (in.hasDemand()) internal::read(in.getDemand(), m.demand.emplace());
  m.has_devices = in.getHasDevices();
}

void write(schema::LeaseRefused::Builder out, const LeaseRefused& m) {
  out.setKey(m.key.value);
  out.setWhy(CutText(m.why));
}
void read(schema::LeaseRefused::Reader in, LeaseRefused& m) {
  m.key.value = in.getKey();
  m.why = read_text(in.getWhy(), "reason");
}

void write(schema::LeaseReclaim::Builder out, const LeaseReclaim& m) {
  out.setLease(m.lease.value);
  out.setHolder(m.holder.value);
}
void read(schema::LeaseReclaim::Reader in, LeaseReclaim& m) {
  m.lease.value = in.getLease();
  m.holder.value = in.getHolder();
}

void write(schema::LeaseReturned::Builder out, const LeaseReturned& m) {
  out.setLease(m.lease.value);
}
void read(schema::LeaseReturned::Reader in, LeaseReturned& m) {
  m.lease.value = in.getLease();
}

// --- objects ---
//
// Promote, Fulfil, Rebuilt and Ready share their fields; Ready has one more.

template <class Builder, class Message>
void write_object(Builder out, const Message& m) {
  internal::write(out.initObject(), m.object);
  internal::write(out.initValue(), m.value);
}
template <class Reader, class Message>
void read_object(Reader in, Message& m, std::size_t payload_size) {
  internal::read(in.getObject(), m.object);
  internal::read(in.getValue(), m.value, payload_size);
}

void write(schema::Ready::Builder out, const Ready& m) {
  write_object(out, m);
  if (m.node) internal::write(out.initNode(), m.node);
}
void read(schema::Ready::Reader in, Ready& m, std::size_t payload_size) {
  read_object(in, m, payload_size);
  internal::read(in.getNode(), m.node);
}

void write(schema::Hold::Builder out, const Hold& m) {
  internal::write(out.initObject(), m.object);
  out.setProcess(m.process.value);
  out.setDelta(m.delta);
  out.setFrame(m.frame);
  out.setWaiting(m.waiting);
}
void read(schema::Hold::Reader in, Hold& m) {
  internal::read(in.getObject(), m.object);
  m.process.value = in.getProcess();
  m.delta = in.getDelta();
  m.frame = in.getFrame();
  m.waiting = in.getWaiting();
}

void write(schema::Arrived::Builder out, const Arrived& m) {
  out.setPeer(m.peer.value);
  out.setFrames(m.frames);
}
void read(schema::Arrived::Reader in, Arrived& m) {
  m.peer.value = in.getPeer();
  m.frames = in.getFrames();
}

void write(schema::Await::Builder out, const Await& m) {
  internal::write(out.initObject(), m.object);
  out.setFetch(m.fetch);
}
void read(schema::Await::Reader in, Await& m) {
  internal::read(in.getObject(), m.object);
  m.fetch = in.getFetch();
}

void write(schema::Rebuild::Builder out, const Rebuild& m) {
  internal::write(out.initObject(), m.object);
  internal::write(out.initLost(), m.lost);
}
void read(schema::Rebuild::Reader in, Rebuild& m) {
  internal::read(in.getObject(), m.object);
  internal::read(in.getLost(), m.lost);
}

void write(schema::Lineage::Builder out, const Lineage& m) {
  internal::write(out.initObject(), m.object);
}
void read(schema::Lineage::Reader in, Lineage& m) {
  internal::read(in.getObject(), m.object);
}

void write(schema::KeptCall::Builder out, const KeptCall& m) {
  out.setNumber(m.number);
  internal::write(out.initCall(), m.call);
  if (!m.made.empty()) {
    auto made = out.initMade(checked(m.made.size(), kMaxMade));
    for (unsigned i = 0; i < made.size(); ++i) made.set(i, m.made[i]);
  }
  internal::write(out.initDemand(), m.demand);
  out.setRetriesLeft(m.retries_left);
  if (!m.retry_on.empty())
    internal::write(out.initRetryOn(checked(m.retry_on.size(), kMaxRetryOn)), m.retry_on, kMaxText);
  out.setInputBytes(m.input_bytes);
}
void read(schema::KeptCall::Reader in, KeptCall& m, std::size_t payload_size) {
  m.number = in.getNumber();
  internal::read(in.getCall(), m.call, payload_size);
  const auto made = in.getMade();
  m.made.reserve(bounded(made.size(), kMaxMade, "made"));
  for (const std::uint32_t position : made) {
    if (!m.made.empty() && position <= m.made.back()) refuse("made", "is not ascending");
    m.made.push_back(position);
  }
  internal::read(in.getDemand(), m.demand);
  m.retries_left = in.getRetriesLeft();
  const auto retry_on = in.getRetryOn();  // once: another read counts against the limit
  bounded(retry_on.size(), kMaxRetryOn, "retry on");
  read_texts(retry_on, m.retry_on, "retry on", kMaxText);
  m.input_bytes = in.getInputBytes();
}

void write(schema::MadeBy::Builder out, const MadeBy& m) {
  internal::write(out.initObject(), m.object);
  out.setCall(m.call);
  out.setResult(m.result);
  out.setRetriesLeft(m.retries_left);
}
void read(schema::MadeBy::Reader in, MadeBy& m) {
  internal::read(in.getObject(), m.object);
  m.call = in.getCall();
  m.result = in.getResult();
  m.retries_left = in.getRetriesLeft();
}

void write(schema::ForgetCall::Builder out, const ForgetCall& m) {
  out.setNumber(m.number);
}
void read(schema::ForgetCall::Reader in, ForgetCall& m) {
  m.number = in.getNumber();
}

void write(schema::Pace::Builder out, const Pace& m) {
  auto sites = out.initSites(checked(m.sites.size(), kMaxSites));
  for (unsigned i = 0; i < sites.size(); ++i) {
    sites[i].setModule(m.sites[i].function.module);
    sites[i].setOffsetBytes(m.sites[i].function.offset);
    sites[i].setTasks(m.sites[i].tasks);
    sites[i].setRanNs(m.sites[i].ran_ns);
  }
}
void read(schema::Pace::Reader in, Pace& m) {
  const auto sites = in.getSites();
  m.sites.reserve(bounded(sites.size(), kMaxSites, "sites"));
  for (const auto site : sites)
    m.sites.push_back(
        {{site.getModule(), site.getOffsetBytes()}, site.getTasks(), site.getRanNs()});
}

void write(schema::Free::Builder out, const Free& m) {
  internal::write(out.initLocation(), m.location);
}
void read(schema::Free::Reader in, Free& m) {
  internal::read(in.getLocation(), m.location);
}

// --- actors ---

void write(schema::StartActor::Builder out, const StartActor& m) {
  internal::write(out.initActor(), m.actor);
  out.setIncarnation(m.incarnation);
  out.setMaxConcurrency(m.max_concurrency);
  out.setRestarted(m.restarted);
  out.setName(CutText(m.name));
  if (!m.gpus.empty()) internal::write(out.initGpus(checked(m.gpus.size(), kMaxGpus)), m.gpus);
  internal::write(out.initCreation(), m.creation);
  internal::write(out.initLifetime(), m.lifetime);
}
void read(schema::StartActor::Reader in, StartActor& m, std::size_t payload_size) {
  internal::read(in.getActor(), m.actor);
  m.incarnation = in.getIncarnation();
  m.max_concurrency = in.getMaxConcurrency();
  m.restarted = in.getRestarted();
  m.name = read_text(in.getName(), "actor name");
  internal::read(in.getGpus(), m.gpus);
  internal::read(in.getCreation(), m.creation, payload_size);
  if (in.hasLifetime()) internal::read(in.getLifetime(), m.lifetime);
}

void write(schema::ActorCreated::Builder out, const ActorCreated& m) {
  internal::write(out.initActor(), m.actor);
  out.setIncarnation(m.incarnation);
  write_optional(out, m.error);
}
void read(schema::ActorCreated::Reader in, ActorCreated& m) {
  internal::read(in.getActor(), m.actor);
  m.incarnation = in.getIncarnation();
  m.error = read_error(in.getError());
}

void write(schema::WatchActor::Builder out, const WatchActor& m) {
  internal::write(out.initActor(), m.actor);
}
void read(schema::WatchActor::Reader in, WatchActor& m) {
  internal::read(in.getActor(), m.actor);
}

void write(schema::ActorUpdate::Builder out, const ActorUpdate& m) {
  internal::write(out.initActor(), m.actor);
  out.setState(static_cast<std::uint8_t>(m.state));
  out.setIncarnation(m.incarnation);
  out.setWorker(m.worker.value);
  write_optional(out, m.error);
  out.setRetryAt(m.retry_at_ns);
  out.setSilent(m.silent);
}
void read(schema::ActorUpdate::Reader in, ActorUpdate& m) {
  internal::read(in.getActor(), m.actor);
  if (in.getState() > static_cast<std::uint8_t>(ActorState::dead))
    refuse("actor state", "is out of range");
  m.state = static_cast<ActorState>(in.getState());
  m.incarnation = in.getIncarnation();
  m.worker.value = in.getWorker();
  m.error = read_error(in.getError());
  m.retry_at_ns = in.getRetryAt();
  m.silent = in.getSilent();
}

void write(schema::KillActor::Builder out, const KillActor& m) {
  internal::write(out.initActor(), m.actor);
  out.setMayRestart(m.may_restart);
}
void read(schema::KillActor::Reader in, KillActor& m) {
  internal::read(in.getActor(), m.actor);
  m.may_restart = in.getMayRestart();
}

void write(schema::FindActor::Builder out, const FindActor& m) {
  out.setRequest(m.request);
  out.setName(CutText(m.name));
  out.setNameSpace(CutText(m.name_space));
}
void read(schema::FindActor::Reader in, FindActor& m) {
  m.request = in.getRequest();
  m.name = read_text(in.getName(), "actor name");
  m.name_space = read_text(in.getNameSpace(), "name space");
}

void write(schema::FoundActor::Builder out, const FoundActor& m) {
  out.setRequest(m.request);
  out.setFound(m.found);
  internal::write(out.initActor(), m.actor);
  internal::write(out.initLifetime(), m.lifetime);
  out.setClassName(CutText(m.class_name));
  write_optional(out, m.error);
}
void read(schema::FoundActor::Reader in, FoundActor& m) {
  m.request = in.getRequest();
  m.found = in.getFound();
  internal::read(in.getActor(), m.actor);
  internal::read(in.getLifetime(), m.lifetime);
  m.class_name = read_text(in.getClassName(), "class name");
  m.error = read_error(in.getError());
}

// --- memory ---

void write(schema::NeedExtent::Builder out, const NeedExtent& m) {
  out.setLengthBytes(m.bytes);
  out.setRequest(m.request);
}
void read(schema::NeedExtent::Reader in, NeedExtent& m) {
  m.bytes = in.getLengthBytes();
  m.request = in.getRequest();
}

void write(schema::GiveExtent::Builder out, const GiveExtent& m) {
  out.setExtent(m.extent);
  out.setLengthBytes(m.bytes);
  write_optional(out, m.error);
  out.setRequest(m.request);
}
void read(schema::GiveExtent::Reader in, GiveExtent& m) {
  m.extent = in.getExtent();
  m.bytes = in.getLengthBytes();
  m.error = read_error(in.getError());
  m.request = in.getRequest();
}

void write(schema::ExtentMapped::Builder out, const ExtentMapped& m) {
  out.setExtent(m.extent);
}
void read(schema::ExtentMapped::Reader in, ExtentMapped& m) {
  m.extent = in.getExtent();
}

void write(schema::ExtentSealed::Builder out, const ExtentSealed& m) {
  out.setExtent(m.extent);
}
void read(schema::ExtentSealed::Reader in, ExtentSealed& m) {
  m.extent = in.getExtent();
}

void write(schema::NeedReader::Builder out, const NeedReader& m) {
  out.setIsSegment(m.is_segment);
  out.setId(m.id);
}
void read(schema::NeedReader::Reader in, NeedReader& m) {
  m.is_segment = in.getIsSegment();
  m.id = in.getId();
}

void write(schema::GiveReader::Builder out, const GiveReader& m) {
  out.setIsSegment(m.is_segment);
  out.setId(m.id);
  out.setIncarnation(m.incarnation);
  out.setLengthBytes(m.bytes);
  write_optional(out, m.error);
}
void read(schema::GiveReader::Reader in, GiveReader& m) {
  m.is_segment = in.getIsSegment();
  m.id = in.getId();
  m.incarnation = in.getIncarnation();
  m.bytes = in.getLengthBytes();
  m.error = read_error(in.getError());
}

void write(schema::Recycle::Builder out, const Recycle& m) {
  out.setSlot(m.slot);
  out.setGeneration(m.generation);
}
void read(schema::Recycle::Reader in, Recycle& m) {
  m.slot = in.getSlot();
  m.generation = in.getGeneration();
}

void write(schema::StoreTables::Builder out, const StoreTables& m) {
  out.setProcesses(m.processes);
  out.setSlots(m.slots);
  out.setExtents(m.extents);
  out.setProcess(m.process);
  out.setIncarnation(m.incarnation);
  out.setExtentBytes(m.extent_bytes);
}
void read(schema::StoreTables::Reader in, StoreTables& m) {
  m.processes = in.getProcesses();
  m.slots = in.getSlots();
  m.extents = in.getExtents();
  m.process = in.getProcess();
  m.incarnation = in.getIncarnation();
  m.extent_bytes = in.getExtentBytes();
}

void write(schema::Adopt::Builder out, const Adopt& m) {
  internal::write(out.initLocation(), m.location);
  out.setSite(m.site);
  out.setProcess(m.process.value);
  out.setFrame(m.frame);
  out.setWaiting(m.waiting);
}
void read(schema::Adopt::Reader in, Adopt& m) {
  internal::read(in.getLocation(), m.location);
  m.site = in.getSite();
  m.process.value = in.getProcess();
  m.frame = in.getFrame();
  m.waiting = in.getWaiting();
}

void write(schema::CallSite::Builder out, const CallSite& m) {
  out.setNumber(m.number);
  out.setText(internal::CutText(m.text));
}
void read(schema::CallSite::Reader in, CallSite& m) {
  m.number = in.getNumber();
  m.text = internal::read_text(in.getText(), "text");
}

void write(schema::Unpinned::Builder out, const Unpinned& m) {
  out.setProcess(m.process);
  out.setSlot(m.slot);
}
void read(schema::Unpinned::Reader in, Unpinned& m) {
  m.process = in.getProcess();
  m.slot = in.getSlot();
}

void write(schema::Inquire::Builder out, const Inquire& m) {
  out.setRequest(m.request);
  out.setAbout(static_cast<std::uint8_t>(m.about));
  if (m.node) internal::write(out.initNode(), m.node);
  internal::write_log_question(out, m.logs);
  if (m.about == Inquire::About::rows) internal::write(out.initRows(), m.rows);
  internal::write_stack_question(out, m.stacks);
  if (m.about == Inquire::About::stop) internal::write_stop_question(out, m.stop);
}
void read(schema::Inquire::Reader in, Inquire& m) {
  m.request = in.getRequest();
  if (in.getAbout() > static_cast<std::uint8_t>(Inquire::About::stop))
    internal::refuse("about", "is unknown");
  m.about = static_cast<Inquire::About>(in.getAbout());
  if (in.hasNode()) internal::read(in.getNode(), m.node);
  internal::read_log_question(in, m.logs);
  if (in.hasRows()) internal::read(in.getRows(), m.rows);
  internal::read_stack_question(in, m.stacks);
  if (in.hasStopJob()) internal::read_stop_question(in, m.stop);
}

void write(schema::AskRows::Builder out, const AskRows& m) {
  out.setRequest(m.request);
  internal::write(out.initRows(), m.rows);
}
void read(schema::AskRows::Reader in, AskRows& m) {
  m.request = in.getRequest();
  internal::read(in.getRows(), m.rows);
}

void write(schema::GiveRows::Builder out, const GiveRows& m) {
  out.setRequest(m.request);
  out.setOffsetBytes(m.offset);
  out.setWholeBytes(m.bytes);
  out.setWhy(internal::CutText(m.why));
}
void read(schema::GiveRows::Reader in, GiveRows& m) {
  m.request = in.getRequest();
  m.offset = in.getOffsetBytes();
  m.bytes = in.getWholeBytes();
  m.why = internal::read_text(in.getWhy(), "why");
}

void write(schema::Answer::Builder out, const Answer& m) {
  out.setRequest(m.request);
  out.setOffsetBytes(m.offset);
  out.setWholeBytes(m.bytes);
  write_optional(out, m.error);
}
void read(schema::Answer::Reader in, Answer& m) {
  m.request = in.getRequest();
  m.offset = in.getOffsetBytes();
  m.bytes = in.getWholeBytes();
  m.error = read_error(in.getError());
}

void write(schema::Forget::Builder out, const Forget& m) {
  out.setIsSegment(m.is_segment);
  out.setId(m.id);
}
void read(schema::Forget::Reader in, Forget& m) {
  m.is_segment = in.getIsSegment();
  m.id = in.getId();
}

void write(schema::GiveBack::Builder out, const GiveBack& m) {
  out.setExtent(m.extent);
}
void read(schema::GiveBack::Reader in, GiveBack& m) {
  m.extent = in.getExtent();
}

void write(schema::WhereIs::Builder out, const WhereIs& m) {
  out.setRequest(m.request);
  internal::write(out.initLocation(), m.location);
}
void read(schema::WhereIs::Reader in, WhereIs& m) {
  m.request = in.getRequest();
  internal::read(in.getLocation(), m.location);
}

void write(schema::NowAt::Builder out, const NowAt& m) {
  out.setRequest(m.request);
  internal::write(out.initLocation(), m.location);
  write_optional(out, m.error);
}
void read(schema::NowAt::Reader in, NowAt& m) {
  m.request = in.getRequest();
  internal::read(in.getLocation(), m.location);
  m.error = read_error(in.getError());
}

void write(schema::Replicate::Builder out, const Replicate& m) {
  out.setRequest(m.request);
  internal::write(out.initObject(), m.object);
  out.setCopies(m.copies);
  out.setTimeoutNs(m.timeout_ns);
}
void read(schema::Replicate::Reader in, Replicate& m) {
  m.request = in.getRequest();
  internal::read(in.getObject(), m.object);
  m.copies = in.getCopies();
  m.timeout_ns = in.getTimeoutNs();
}

void write(schema::Replicated::Builder out, const Replicated& m) {
  out.setRequest(m.request);
  write_optional(out, m.error);
}
void read(schema::Replicated::Reader in, Replicated& m) {
  m.request = in.getRequest();
  m.error = read_error(in.getError());
}

void write(schema::NameObject::Builder out, const NameObject& m) {
  out.setRequest(m.request);
  out.setVerb(static_cast<std::uint8_t>(m.verb));
  out.setName(CutText(m.name));
  internal::write(out.initObject(), m.object);
  out.setFingerprint(m.fingerprint);
  out.setType(CutText(m.type));
}
void read(schema::NameObject::Reader in, NameObject& m) {
  m.request = in.getRequest();
  m.verb = read_enum(in.getVerb(), NameObject::Verb::forget, "verb");
  m.name = read_text(in.getName(), "name");
  internal::read(in.getObject(), m.object);
  m.fingerprint = in.getFingerprint();
  m.type = read_text(in.getType(), "type");
}

void write(schema::NamedObject::Builder out, const NamedObject& m) {
  out.setRequest(m.request);
  out.setFound(m.found);
  internal::write(out.initObject(), m.object);
  out.setFingerprint(m.fingerprint);
  out.setType(CutText(m.type));
  write_optional(out, m.error);
}
void read(schema::NamedObject::Reader in, NamedObject& m) {
  m.request = in.getRequest();
  m.found = in.getFound();
  internal::read(in.getObject(), m.object);
  m.fingerprint = in.getFingerprint();
  m.type = read_text(in.getType(), "type");
  m.error = read_error(in.getError());
}

void write(schema::Locate::Builder out, const Locate& m) {
  out.setRequest(m.request);
  write_ids(out.initObjects(checked(m.objects.size(), kMaxRefs)), m.objects);
}
void read(schema::Locate::Reader in, Locate& m) {
  m.request = in.getRequest();
  read_ids(in.getObjects(), m.objects, kMaxRefs, "objects");
}

void write(schema::ObjectPlace::Builder out, const ObjectPlace& place) {
  out.setIndex(place.index);
  out.setState(static_cast<std::uint8_t>(place.state));
  out.setSizeBytes(place.bytes);
  out.setSpilled(place.spilled);
  write_ids(out.initNodes(checked(place.nodes.size(), kMaxPlaces)), place.nodes);
}
void read(schema::ObjectPlace::Reader in, ObjectPlace& place) {
  place.index = in.getIndex();
  place.state = read_enum(in.getState(), PlaceState::failed, "state");
  place.bytes = in.getSizeBytes();
  place.spilled = in.getSpilled();
  read_ids(in.getNodes(), place.nodes, kMaxPlaces, "nodes");
}

void write(schema::Located::Builder out, const Located& m) {
  out.setRequest(m.request);
  auto places = out.initPlaces(checked(m.places.size(), kMaxRefs));
  for (unsigned i = 0; i < places.size(); ++i) write(places[i], m.places[i]);
  out.setMore(m.more);
}
void read(schema::Located::Reader in, Located& m) {
  m.request = in.getRequest();
  const auto places = in.getPlaces();
  m.places.reserve(bounded(places.size(), kMaxRefs, "places"));
  for (const auto place : places) read(place, m.places.emplace_back());
  m.more = in.getMore();
}

// --- why a wait lasts ---

void write(schema::Explain::Builder out, const Explain& m) {
  out.setRequest(m.request);
  out.setKey(m.key.value);
  if (m.actor) internal::write(out.initActor(), m.actor);
}
void read(schema::Explain::Reader in, Explain& m) {
  m.request = in.getRequest();
  m.key.value = in.getKey();
  internal::read(in.getActor(), m.actor);
}

void write(schema::Explained::Builder out, const Explained& m) {
  out.setRequest(m.request);
  out.setWhy(CutText(m.why));
}
void read(schema::Explained::Reader in, Explained& m) {
  m.request = in.getRequest();
  m.why = read_text(in.getWhy(), "reason");
}

// --- the node ---

void write(schema::ListNodes::Builder out, const ListNodes& m) {
  out.setRequest(m.request);
}
void read(schema::ListNodes::Reader in, ListNodes& m) {
  m.request = in.getRequest();
}

void write(schema::NodeRow::Builder out, const NodeRow& m) {
  internal::write(out.initId(), m.id);
  out.setName(CutText(m.name));
  out.setAlive(m.alive);
  out.setCpuTenThousandths(m.cpus);
  out.setCpuFreeTenThousandths(m.cpus_free);
  out.setGpuTenThousandths(m.gpus);
  out.setGpuFreeTenThousandths(m.gpus_free);
  out.setMemoryBytes(m.memory);
  out.setStoreCapacityBytes(m.store_capacity);
  out.setStoreUsedBytes(m.store_used);
  out.setWorkers(m.workers);
  if (!m.resources.empty())
    internal::write(out.initResources(checked(m.resources.size(), kMaxResources)), m.resources);
  out.setDraining(m.draining);
  out.setSuspect(m.suspect);
  if (!m.address.empty()) out.setAddress(CutText(m.address));
}
void read(schema::NodeRow::Reader in, NodeRow& m) {
  internal::read(in.getId(), m.id);
  m.name = read_text(in.getName(), "node name");
  m.alive = in.getAlive();
  m.cpus = in.getCpuTenThousandths();
  m.cpus_free = in.getCpuFreeTenThousandths();
  m.gpus = in.getGpuTenThousandths();
  m.gpus_free = in.getGpuFreeTenThousandths();
  m.memory = in.getMemoryBytes();
  m.store_capacity = in.getStoreCapacityBytes();
  m.store_used = in.getStoreUsedBytes();
  m.workers = in.getWorkers();
  internal::read(in.getResources(), m.resources);
  m.draining = in.getDraining();
  m.suspect = in.getSuspect();
  m.address = read_text(in.getAddress(), "node address");
}

void write(schema::Nodes::Builder out, const Nodes& m) {
  out.setRequest(m.request);
  auto rows = out.initRows(checked(m.rows.size(), kMaxRows));
  for (unsigned i = 0; i < rows.size(); ++i) write(rows[i], m.rows[i]);
  out.setMore(m.more);
}
void read(schema::Nodes::Reader in, Nodes& m) {
  m.request = in.getRequest();
  m.more = in.getMore();
  const auto rows = in.getRows();
  m.rows.resize(bounded(rows.size(), kMaxRows, "rows"));
  for (unsigned i = 0; i < rows.size(); ++i) read(rows[i], m.rows[i]);
}

void write(schema::Shutdown::Builder out, const Shutdown& m) {
  out.setWhy(CutText(m.why));
  out.setCancels(m.cancels);
}
void read(schema::Shutdown::Reader in, Shutdown& m) {
  m.why = read_text(in.getWhy(), "reason");
  m.cancels = in.getCancels();
}

/// Selects the member of the union by the type of the message.
struct WriteNode {
  schema::NodeMessage::Builder out;
  void operator()(const Hello& m) { write(out.initHello(), m); }
  void operator()(const Welcome& m) { write(out.initWelcome(), m); }
  void operator()(const Channel& m) { write(out.initChannel(), m); }
  void operator()(const PeerDied& m) { write(out.initPeerDied(), m); }
  void operator()(const RequestLease& m) { write(out.initRequestLease(), m); }
  void operator()(const LeaseGranted& m) { write(out.initLeaseGranted(), m); }
  void operator()(const LeaseRefused& m) { write(out.initLeaseRefused(), m); }
  void operator()(const LeaseReclaim& m) { write(out.initLeaseReclaim(), m); }
  void operator()(const LeaseReturned& m) { write(out.initLeaseReturned(), m); }
  void operator()(const Blocked&) { out.setBlocked(); }
  void operator()(const Unblocked&) { out.setUnblocked(); }
  void operator()(const Promote& m) { write_object(out.initPromote(), m); }
  void operator()(const Fulfil& m) { write_object(out.initFulfil(), m); }
  void operator()(const Hold& m) { write(out.initHold(), m); }
  void operator()(const Await& m) { write(out.initAwait(), m); }
  void operator()(const Ready& m) { write(out.initReady(), m); }
  void operator()(const Free& m) { write(out.initFree(), m); }
  void operator()(const CreateActor& m) { internal::write(out.initCreateActor(), m); }
  void operator()(const StartActor& m) { write(out.initStartActor(), m); }
  void operator()(const ActorCreated& m) { write(out.initActorCreated(), m); }
  void operator()(const WatchActor& m) { write(out.initWatchActor(), m); }
  void operator()(const ActorUpdate& m) { write(out.initActorUpdate(), m); }
  void operator()(const KillActor& m) { write(out.initKillActor(), m); }
  void operator()(const FindActor& m) { write(out.initFindActor(), m); }
  void operator()(const FoundActor& m) { write(out.initFoundActor(), m); }
  void operator()(const NeedExtent& m) { write(out.initNeedExtent(), m); }
  void operator()(const GiveExtent& m) { write(out.initGiveExtent(), m); }
  void operator()(const ExtentMapped& m) { write(out.initExtentMapped(), m); }
  void operator()(const ExtentSealed& m) { write(out.initExtentSealed(), m); }
  void operator()(const NeedReader& m) { write(out.initNeedReader(), m); }
  void operator()(const GiveReader& m) { write(out.initGiveReader(), m); }
  void operator()(const Recycle& m) { write(out.initRecycle(), m); }
  void operator()(const ListNodes& m) { write(out.initListNodes(), m); }
  void operator()(const Nodes& m) { write(out.initNodes(), m); }
  void operator()(const Shutdown& m) { write(out.initShutdown(), m); }
  void operator()(const StoreTables& m) { write(out.initStoreTables(), m); }
  void operator()(const StoreAttached&) { out.setStoreAttached(); }
  void operator()(const Adopt& m) { write(out.initAdopt(), m); }
  void operator()(const Unpinned& m) { write(out.initUnpinned(), m); }
  void operator()(const Forget& m) { write(out.initForget(), m); }
  void operator()(const Inquire& m) { write(out.initInquire(), m); }
  void operator()(const Answer& m) { write(out.initAnswer(), m); }
  void operator()(const MemoryPressure&) { out.setMemoryPressure(); }
  void operator()(const GiveBack& m) { write(out.initGiveBack(), m); }
  void operator()(const WhereIs& m) { write(out.initWhereIs(), m); }
  void operator()(const NowAt& m) { write(out.initNowAt(), m); }
  void operator()(const Rebuild& m) { write(out.initRebuild(), m); }
  void operator()(const Rebuilt& m) { write_object(out.initRebuilt(), m); }
  void operator()(const Lineage& m) { write(out.initLineage(), m); }
  void operator()(const KeptCall& m) { write(out.initKeptCall(), m); }
  void operator()(const MadeBy& m) { write(out.initMadeBy(), m); }
  void operator()(const ForgetCall& m) { write(out.initForgetCall(), m); }
  void operator()(const Pace& m) { write(out.initPace(), m); }
  void operator()(const CallSite& m) { write(out.initCallSite(), m); }
  void operator()(const Arrived& m) { write(out.initArrived(), m); }
  void operator()(const Replicate& m) { write(out.initReplicate(), m); }
  void operator()(const Replicated& m) { write(out.initReplicated(), m); }
  void operator()(const NameObject& m) { write(out.initNameObject(), m); }
  void operator()(const NamedObject& m) { write(out.initNamedObject(), m); }
  void operator()(const Locate& m) { write(out.initLocate(), m); }
  void operator()(const Located& m) { write(out.initLocated(), m); }
  void operator()(const Explain& m) { write(out.initExplain(), m); }
  void operator()(const Explained& m) { write(out.initExplained(), m); }
  void operator()(const AskRows& m) { write(out.initAskRows(), m); }
  void operator()(const GiveRows& m) { write(out.initGiveRows(), m); }
};

}  // namespace

void write(schema::NodeMessage::Builder out, const NodeMessage& message) {
  std::visit(WriteNode{out}, message);
}

void read(schema::NodeMessage::Reader in, NodeMessage& message, std::size_t payload_size) {
  using Kind = schema::NodeMessage::Which;
  switch (in.which()) {
    case Kind::HELLO: return read(in.getHello(), message.emplace<Hello>());
    case Kind::WELCOME: return read(in.getWelcome(), message.emplace<Welcome>());
    case Kind::CHANNEL: return read(in.getChannel(), message.emplace<Channel>());
    case Kind::PEER_DIED: return read(in.getPeerDied(), message.emplace<PeerDied>());
    case Kind::REQUEST_LEASE: return read(in.getRequestLease(), message.emplace<RequestLease>());
    case Kind::LEASE_GRANTED: return read(in.getLeaseGranted(), message.emplace<LeaseGranted>());
    case Kind::LEASE_REFUSED: return read(in.getLeaseRefused(), message.emplace<LeaseRefused>());
    case Kind::LEASE_RECLAIM: return read(in.getLeaseReclaim(), message.emplace<LeaseReclaim>());
    case Kind::LEASE_RETURNED: return read(in.getLeaseReturned(), message.emplace<LeaseReturned>());
    case Kind::BLOCKED: message.emplace<Blocked>(); return;
    case Kind::UNBLOCKED: message.emplace<Unblocked>(); return;
    case Kind::PROMOTE:
      return read_object(in.getPromote(), message.emplace<Promote>(), payload_size);
    case Kind::FULFIL: return read_object(in.getFulfil(), message.emplace<Fulfil>(), payload_size);
    case Kind::HOLD: return read(in.getHold(), message.emplace<Hold>());
    case Kind::AWAIT: return read(in.getAwait(), message.emplace<Await>());
    case Kind::READY: return read(in.getReady(), message.emplace<Ready>(), payload_size);
    case Kind::FREE: return read(in.getFree(), message.emplace<Free>());
    case Kind::CREATE_ACTOR:
      return internal::read(in.getCreateActor(), message.emplace<CreateActor>(), payload_size);
    case Kind::START_ACTOR:
      return read(in.getStartActor(), message.emplace<StartActor>(), payload_size);
    case Kind::ACTOR_CREATED: return read(in.getActorCreated(), message.emplace<ActorCreated>());
    case Kind::WATCH_ACTOR: return read(in.getWatchActor(), message.emplace<WatchActor>());
    case Kind::ACTOR_UPDATE: return read(in.getActorUpdate(), message.emplace<ActorUpdate>());
    case Kind::KILL_ACTOR: return read(in.getKillActor(), message.emplace<KillActor>());
    case Kind::FIND_ACTOR: return read(in.getFindActor(), message.emplace<FindActor>());
    case Kind::FOUND_ACTOR: return read(in.getFoundActor(), message.emplace<FoundActor>());
    case Kind::NEED_EXTENT: return read(in.getNeedExtent(), message.emplace<NeedExtent>());
    case Kind::GIVE_EXTENT: return read(in.getGiveExtent(), message.emplace<GiveExtent>());
    case Kind::EXTENT_MAPPED: return read(in.getExtentMapped(), message.emplace<ExtentMapped>());
    case Kind::EXTENT_SEALED: return read(in.getExtentSealed(), message.emplace<ExtentSealed>());
    case Kind::NEED_READER: return read(in.getNeedReader(), message.emplace<NeedReader>());
    case Kind::GIVE_READER: return read(in.getGiveReader(), message.emplace<GiveReader>());
    case Kind::RECYCLE: return read(in.getRecycle(), message.emplace<Recycle>());
    case Kind::LIST_NODES: return read(in.getListNodes(), message.emplace<ListNodes>());
    case Kind::NODES: return read(in.getNodes(), message.emplace<Nodes>());
    case Kind::SHUTDOWN: return read(in.getShutdown(), message.emplace<Shutdown>());
    case Kind::STORE_TABLES: return read(in.getStoreTables(), message.emplace<StoreTables>());
    case Kind::STORE_ATTACHED: message.emplace<StoreAttached>(); return;
    case Kind::ADOPT: return read(in.getAdopt(), message.emplace<Adopt>());
    case Kind::UNPINNED: return read(in.getUnpinned(), message.emplace<Unpinned>());
    case Kind::FORGET: return read(in.getForget(), message.emplace<Forget>());
    case Kind::INQUIRE: return read(in.getInquire(), message.emplace<Inquire>());
    case Kind::ANSWER: return read(in.getAnswer(), message.emplace<Answer>());
    case Kind::MEMORY_PRESSURE: message.emplace<MemoryPressure>(); return;
    case Kind::GIVE_BACK: return read(in.getGiveBack(), message.emplace<GiveBack>());
    case Kind::WHERE_IS: return read(in.getWhereIs(), message.emplace<WhereIs>());
    case Kind::NOW_AT: return read(in.getNowAt(), message.emplace<NowAt>());
    case Kind::REBUILD: return read(in.getRebuild(), message.emplace<Rebuild>());
    case Kind::REBUILT:
      return read_object(in.getRebuilt(), message.emplace<Rebuilt>(), payload_size);
    case Kind::LINEAGE: return read(in.getLineage(), message.emplace<Lineage>());
    case Kind::KEPT_CALL: return read(in.getKeptCall(), message.emplace<KeptCall>(), payload_size);
    case Kind::MADE_BY: return read(in.getMadeBy(), message.emplace<MadeBy>());
    case Kind::FORGET_CALL: return read(in.getForgetCall(), message.emplace<ForgetCall>());
    case Kind::PACE: return read(in.getPace(), message.emplace<Pace>());
    case Kind::CALL_SITE: return read(in.getCallSite(), message.emplace<CallSite>());
    case Kind::ARRIVED: return read(in.getArrived(), message.emplace<Arrived>());
    case Kind::REPLICATE: return read(in.getReplicate(), message.emplace<Replicate>());
    case Kind::REPLICATED: return read(in.getReplicated(), message.emplace<Replicated>());
    case Kind::NAME_OBJECT: return read(in.getNameObject(), message.emplace<NameObject>());
    case Kind::NAMED_OBJECT: return read(in.getNamedObject(), message.emplace<NamedObject>());
    case Kind::LOCATE: return read(in.getLocate(), message.emplace<Locate>());
    case Kind::LOCATED: return read(in.getLocated(), message.emplace<Located>());
    case Kind::EXPLAIN: return read(in.getExplain(), message.emplace<Explain>());
    case Kind::EXPLAINED: return read(in.getExplained(), message.emplace<Explained>());
    case Kind::ASK_ROWS: return read(in.getAskRows(), message.emplace<AskRows>());
    case Kind::GIVE_ROWS: return read(in.getGiveRows(), message.emplace<GiveRows>());
  }
  unsupported(static_cast<unsigned>(in.which()));
}

}  // namespace troupe::wire::internal
