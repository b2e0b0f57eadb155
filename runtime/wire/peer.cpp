#include "troupe/runtime/wire/peer.hpp"

#include "internal/frame.hpp"

#include "schema/peer.capnp.h"

namespace troupe::wire {
namespace internal {
namespace {

constexpr std::size_t kBulkKey = 32;

using OwnedRefs = capnp::List<schema::OwnedRef>;

void write(OwnedRefs::Builder out, const std::vector<OwnedRef>& refs) {
  for (unsigned i = 0; i < out.size(); ++i) {
    auto ref = out[i];
    ref.setObjectHigh(refs[i].object.high);
    ref.setObjectLow(refs[i].object.low);
    ref.setOwnerHigh(refs[i].owner.high);
    ref.setOwnerLow(refs[i].owner.low);
  }
}
template <class Builder>
void write_refs(Builder out, const std::vector<OwnedRef>& refs, std::size_t bound) {
  if (!refs.empty()) write(out.initRefs(checked(refs.size(), bound)), refs);
}
void read(OwnedRefs::Reader in, std::vector<OwnedRef>& refs, std::size_t bound) {
  refs.resize(bounded(in.size(), bound, "refs"));
  for (unsigned i = 0; i < refs.size(); ++i) {
    const auto ref = in[i];
    refs[i].object = {ref.getObjectHigh(), ref.getObjectLow()};
    refs[i].owner = {ref.getOwnerHigh(), ref.getOwnerLow()};
  }
}

// --- leases ---

void write(schema::PeerLeaseRequest::Builder out, const PeerLeaseRequest& m) {
  out.setProcess(m.process.value);
  out.setKey(m.key.value);
  out.setCount(m.count);
  internal::write(out.initJob(), m.job);
  internal::write(out.initDemand(), m.demand);
  out.setNoFaster(m.no_faster);
}
void read(schema::PeerLeaseRequest::Reader in, PeerLeaseRequest& m) {
  m.process.value = in.getProcess();
  m.key.value = in.getKey();
  m.count = in.getCount();
  internal::read(in.getJob(), m.job);
  internal::read(in.getDemand(), m.demand);
  m.no_faster = in.getNoFaster();
}

void write(schema::PeerLeaseWithdraw::Builder out, const PeerLeaseWithdraw& m) {
  out.setProcess(m.process.value);
  out.setKey(m.key.value);
}
void read(schema::PeerLeaseWithdraw::Reader in, PeerLeaseWithdraw& m) {
  m.process.value = in.getProcess();
  m.key.value = in.getKey();
}

void write(schema::PeerLeaseGranted::Builder out, const PeerLeaseGranted& m) {
  out.setProcess(m.process.value);
  out.setKey(m.key.value);
  out.setLease(m.lease.value);
  out.setWorker(m.worker.value);
  if (!m.gpus.empty()) internal::write(out.initGpus(checked(m.gpus.size(), kMaxGpus)), m.gpus);
}
void read(schema::PeerLeaseGranted::Reader in, PeerLeaseGranted& m) {
  m.process.value = in.getProcess();
  m.key.value = in.getKey();
  m.lease.value = in.getLease();
  m.worker.value = in.getWorker();
  internal::read(in.getGpus(), m.gpus);
}

void write(schema::PeerLeaseRefused::Builder out, const PeerLeaseRefused& m) {
  out.setProcess(m.process.value);
  out.setKey(m.key.value);
  out.setCount(m.count);
  out.setWhy(CutText(m.why));
  out.setForEver(m.for_ever);
}
void read(schema::PeerLeaseRefused::Reader in, PeerLeaseRefused& m) {
  m.process.value = in.getProcess();
  m.key.value = in.getKey();
  m.count = in.getCount();
  m.why = read_text(in.getWhy(), "reason");
  m.for_ever = in.getForEver();
}

// PeerLeaseReclaim and PeerLeaseReturned have the same fields, in opposite directions.
template <class Builder, class Message>
void write_lease(Builder out, const Message& m) {
  out.setProcess(m.process.value);
  out.setLease(m.lease.value);
}
template <class Reader, class Message>
void read_lease(Reader in, Message& m) {
  m.process.value = in.getProcess();
  m.lease.value = in.getLease();
}

// --- processes ---

void write(schema::PeerConnect::Builder out, const PeerConnect& m) {
  out.setProcess(m.process.value);
  out.setWorker(m.worker.value);
  internal::write(out.initActor(), m.actor);
  out.setIncarnation(m.incarnation);
}
void read(schema::PeerConnect::Reader in, PeerConnect& m) {
  m.process.value = in.getProcess();
  m.worker.value = in.getWorker();
  internal::read(in.getActor(), m.actor);
  m.incarnation = in.getIncarnation();
}

void write(schema::PeerFrame::Builder out, const PeerFrame& m) {
  out.setFrom(m.from.value);
  out.setTo(m.to.value);
  write_refs(out, m.refs, kMaxCarriedRefs);
}
void read(const schema::PeerFrame::Reader& in, PeerFrame& m) {
  m.from.value = in.getFrom();
  m.to.value = in.getTo();
  if (in.hasRefs()) read(in.getRefs(), m.refs, kMaxCarriedRefs);
}

void write(schema::PeerProcessGone::Builder out, const PeerProcessGone& m) {
  out.setProcess(m.process.value);
  out.setPeer(m.peer.value);
  out.setStarted(m.started);
  out.setReason(CutText(m.reason));
  if (!m.stack.empty()) out.setStack(CutText(m.stack, kMaxStack));
  if (!m.last_lines.empty()) out.setLastLines(CutText(m.last_lines, kMaxLastLines));
}
void read(schema::PeerProcessGone::Reader in, PeerProcessGone& m) {
  m.process.value = in.getProcess();
  m.peer.value = in.getPeer();
  m.started = in.getStarted();
  m.reason = read_text(in.getReason(), "reason");
  m.stack = read_text(in.getStack(), "stack", kMaxStack);
  m.last_lines = read_text(in.getLastLines(), "last lines", kMaxLastLines);
}

void write(schema::PeerCredit::Builder out, const PeerCredit& m) {
  out.setFrom(m.from.value);
  out.setTo(m.to.value);
  out.setConsumed(m.consumed);
}
void read(schema::PeerCredit::Reader in, PeerCredit& m) {
  m.from.value = in.getFrom();
  m.to.value = in.getTo();
  m.consumed = in.getConsumed();
}

// --- observers ---

void write(schema::PeerInquire::Builder out, const PeerInquire& m) {
  out.setRequest(m.request);
  out.setAboutLogs(m.about_logs);
  internal::write_log_question(out, m.logs);
  if (m.rows) internal::write(out.initRows(), *m.rows);
  out.setAboutStacks(m.about_stacks);
  internal::write_stack_question(out, m.stacks);
  if (m.stop) internal::write_stop_question(out, *m.stop);
}
void read(schema::PeerInquire::Reader in, PeerInquire& m) {
  m.request = in.getRequest();
  m.about_logs = in.getAboutLogs();
  internal::read_log_question(in, m.logs);
  if (in.hasRows()) internal::read(in.getRows(), m.rows.emplace());
  m.about_stacks = in.getAboutStacks();
  internal::read_stack_question(in, m.stacks);
  if (in.hasStopJob()) internal::read_stop_question(in, m.stop.emplace());
}

void write(schema::PeerAnswer::Builder out, const PeerAnswer& m) {
  out.setRequest(m.request);
  out.setOffsetBytes(m.offset);
  out.setWholeBytes(m.bytes);
  write_optional(out, m.error);
}
void read(schema::PeerAnswer::Reader in, PeerAnswer& m) {
  m.request = in.getRequest();
  m.offset = in.getOffsetBytes();
  m.bytes = in.getWholeBytes();
  m.error = read_error(in.getError());
}

// --- objects ---

void write(schema::PeerHold::Builder out, const PeerHold& m) {
  internal::write(out.initObject(), m.object);
  internal::write(out.initHolder(), m.holder);
  out.setDelta(m.delta);
}
void read(schema::PeerHold::Reader in, PeerHold& m) {
  internal::read(in.getObject(), m.object);
  internal::read(in.getHolder(), m.holder);
  m.delta = in.getDelta();
}

void write(schema::PeerAwait::Builder out, const PeerAwait& m) {
  internal::write(out.initObject(), m.object);
}
void read(schema::PeerAwait::Reader in, PeerAwait& m) {
  internal::read(in.getObject(), m.object);
}

void write(schema::PeerRebuild::Builder out, const PeerRebuild& m) {
  internal::write(out.initObject(), m.object);
  internal::write(out.initLost(), m.lost);
}
void read(schema::PeerRebuild::Reader in, PeerRebuild& m) {
  internal::read(in.getObject(), m.object);
  internal::read(in.getLost(), m.lost);
}

void write(schema::PeerReady::Builder out, const PeerReady& m) {
  internal::write(out.initObject(), m.object);
  internal::write(out.initValue(), m.value);
  write_refs(out, m.refs, kMaxObjectRefs);
}
void read(schema::PeerReady::Reader in, PeerReady& m, std::size_t payload_size) {
  internal::read(in.getObject(), m.object);
  internal::read(in.getValue(), m.value, payload_size);
  if (m.value.kind == Value::Kind::pending || m.value.kind == Value::Kind::shared)
    refuse("value", "is of a kind that does not cross between nodes");
  read(in.getRefs(), m.refs, kMaxObjectRefs);
}

// --- copies ---

void write(schema::PeerKeep::Builder out, const PeerKeep& m) {
  internal::write(out.initObject(), m.object);
  out.setKeep(m.keep);
  out.setCopies(m.copies);
  out.setOrphan(m.orphan);
}
void read(schema::PeerKeep::Reader in, PeerKeep& m) {
  internal::read(in.getObject(), m.object);
  m.keep = in.getKeep();
  m.copies = in.getCopies();
  m.orphan = in.getOrphan();
}

void write(schema::PeerKept::Builder out, const PeerKept& m) {
  internal::write(out.initObject(), m.object);
  write_optional(out, m.error);
}
void read(schema::PeerKept::Reader in, PeerKept& m) {
  internal::read(in.getObject(), m.object);
  m.error = read_error(in.getError());
}

void write(schema::PeerFind::Builder out, const PeerFind& m) {
  internal::write(out.initObject(), m.object);
}
void read(schema::PeerFind::Reader in, PeerFind& m) {
  internal::read(in.getObject(), m.object);
}

void write(schema::PeerHeld::Builder out, const PeerHeld& m) {
  out.setRound(m.round);
  write_ids(out.initObjects(checked(m.objects.size(), kMaxHeld)), m.objects);
  out.setMembers(m.members);
}
void read(schema::PeerHeld::Reader in, PeerHeld& m) {
  m.round = in.getRound();
  read_ids(in.getObjects(), m.objects, kMaxHeld, "objects");
  m.members = in.getMembers();
}

void write(schema::PeerUnused::Builder out, const PeerUnused& m) {
  out.setRound(m.round);
  write_ids(out.initObjects(checked(m.objects.size(), kMaxHeld)), m.objects);
}
void read(schema::PeerUnused::Reader in, PeerUnused& m) {
  m.round = in.getRound();
  read_ids(in.getObjects(), m.objects, kMaxHeld, "objects");
}

void write(schema::PeerKeeping::Builder out, const PeerKeeping& m) {
  write_ids(out.initObjects(checked(m.objects.size(), kMaxHeld)), m.objects);
}
void read(schema::PeerKeeping::Reader in, PeerKeeping& m) {
  read_ids(in.getObjects(), m.objects, kMaxHeld, "objects");
}

void write(schema::PeerLocate::Builder out, const PeerLocate& m) {
  out.setRequest(m.request);
  write_ids(out.initObjects(checked(m.objects.size(), kMaxHeld)), m.objects);
}
void read(schema::PeerLocate::Reader in, PeerLocate& m) {
  m.request = in.getRequest();
  read_ids(in.getObjects(), m.objects, kMaxHeld, "objects");
}

void write(schema::PeerPlace::Builder out, const PeerPlace& place) {
  out.setIndex(place.index);
  out.setState(static_cast<std::uint8_t>(place.state));
  out.setSizeBytes(place.bytes);
  out.setHere(place.here);
  out.setSpilled(place.spilled);
  internal::write(out.initForward(), place.forward);
}
void read(schema::PeerPlace::Reader in, PeerPlace& place) {
  place.index = in.getIndex();
  place.state = read_enum(in.getState(), PlaceState::failed, "state");
  place.bytes = in.getSizeBytes();
  place.here = in.getHere();
  place.spilled = in.getSpilled();
  internal::read(in.getForward(), place.forward);
}

void write(schema::PeerLocated::Builder out, const PeerLocated& m) {
  out.setRequest(m.request);
  auto places = out.initPlaces(checked(m.places.size(), kMaxHeld));
  for (unsigned i = 0; i < places.size(); ++i) write(places[i], m.places[i]);
}
void read(schema::PeerLocated::Reader in, PeerLocated& m) {
  m.request = in.getRequest();
  const auto places = in.getPlaces();
  m.places.reserve(bounded(places.size(), kMaxHeld, "places"));
  for (const auto place : places) read(place, m.places.emplace_back());
}

// --- bytes ---

/// Throws unless a payload of this size at `offset` lies within `total` bytes.
void expect_within(std::uint64_t offset, std::size_t payload_size, std::uint64_t total) {
  if (offset > total || payload_size > total - offset)
    refuse("payload", "reaches beyond what it is a part of");
}

void write(schema::PullRequest::Builder out, const PullRequest& m) {
  out.setTransfer(m.transfer);
  internal::write(out.initObject(), m.object);
  out.setOffsetBytes(m.offset);
  out.setStamp(m.stamp);
  if (m.without) internal::write(out.initWithout(), m.without);
  out.setDirect(m.direct);
}
void read(schema::PullRequest::Reader in, PullRequest& m) {
  m.transfer = in.getTransfer();
  internal::read(in.getObject(), m.object);
  m.offset = in.getOffsetBytes();
  m.stamp = in.getStamp();
  internal::read(in.getWithout(), m.without);
  m.direct = in.getDirect();
}

void write(schema::PullElsewhere::Builder out, const PullElsewhere& m) {
  out.setTransfer(m.transfer);
  internal::write(out.initNode(), m.node);
}
void read(schema::PullElsewhere::Reader in, PullElsewhere& m) {
  m.transfer = in.getTransfer();
  internal::read(in.getNode(), m.node);
}

void write(schema::PullData::Builder out, const PullData& m) {
  out.setTransfer(m.transfer);
  out.setOffsetBytes(m.offset);
  out.setTotalBytes(m.bytes);
}
void read(schema::PullData::Reader in, PullData& m, std::size_t payload_size) {
  m.transfer = in.getTransfer();
  m.offset = in.getOffsetBytes();
  m.bytes = in.getTotalBytes();
  expect_within(m.offset, payload_size, m.bytes);
}

void write(schema::PullOnBulk::Builder out, const PullOnBulk& m) {
  out.setTransfer(m.transfer);
  out.setTotalBytes(m.bytes);
}
void read(schema::PullOnBulk::Reader in, PullOnBulk& m) {
  m.transfer = in.getTransfer();
  m.bytes = in.getTotalBytes();
}

void write(schema::PullRefused::Builder out, const PullRefused& m) {
  out.setTransfer(m.transfer);
  write_optional(out, m.error);
}
void read(schema::PullRefused::Reader in, PullRefused& m) {
  m.transfer = in.getTransfer();
  m.error = read_error(in.getError());
  if (!m.error) refuse("refusal", "has no error");
}

void write(schema::BulkOffer::Builder out, const BulkOffer& m) {
  TROUPE_ASSERT(m.key.size() == kBulkKey, "a bulk key has 32 bytes");
  auto connection = out.initConnection();
  connection.setHigh(m.connection_high);
  connection.setLow(m.connection_low);
  out.setHost(CutText(m.host));
  out.setPort(m.port);
  std::memcpy(out.initKey(kBulkKey).begin(), m.key.data(), kBulkKey);
}
void read(schema::BulkOffer::Reader in, BulkOffer& m) {
  const auto connection = in.getConnection();
  m.connection_high = connection.getHigh();
  m.connection_low = connection.getLow();
  m.host = read_text(in.getHost(), "host");
  m.port = in.getPort();
  const auto key = in.getKey();
  if (key.size() != kBulkKey) refuse("key", "has not 32 bytes");
  m.key.assign(reinterpret_cast<const char*>(key.begin()), key.size());
}

// --- programs ---

void write(schema::ProgramRequest::Builder out, const ProgramRequest& m) {
  internal::write(out.initJob(), m.job);
  out.setFile(m.file);
  out.setOffsetBytes(m.offset);
}
void read(schema::ProgramRequest::Reader in, ProgramRequest& m) {
  internal::read(in.getJob(), m.job);
  m.file = in.getFile();
  m.offset = in.getOffsetBytes();
}

void write(schema::ProgramData::Builder out, const ProgramData& m) {
  internal::write(out.initJob(), m.job);
  out.setFile(m.file);
  out.setOffsetBytes(m.offset);
  out.setTotalBytes(m.bytes);
  write_optional(out, m.error);
}
void read(schema::ProgramData::Reader in, ProgramData& m, std::size_t payload_size) {
  internal::read(in.getJob(), m.job);
  m.file = in.getFile();
  m.offset = in.getOffsetBytes();
  m.bytes = in.getTotalBytes();
  m.error = read_error(in.getError());
  if (!m.error) expect_within(m.offset, payload_size, m.bytes);
}

/// Selects the member of the union by the type of the message.
struct WritePeer {
  schema::PeerMessage::Builder out;
  void operator()(const PeerLeaseRequest& m) { write(out.initLeaseRequest(), m); }
  void operator()(const PeerLeaseWithdraw& m) { write(out.initLeaseWithdraw(), m); }
  void operator()(const PeerLeaseGranted& m) { write(out.initLeaseGranted(), m); }
  void operator()(const PeerLeaseRefused& m) { write(out.initLeaseRefused(), m); }
  void operator()(const PeerLeaseReclaim& m) { write_lease(out.initLeaseReclaim(), m); }
  void operator()(const PeerLeaseReturned& m) { write_lease(out.initLeaseReturned(), m); }
  void operator()(const PeerConnect& m) { write(out.initConnect(), m); }
  void operator()(const PeerFrame& m) { write(out.initFrame(), m); }
  void operator()(const PeerProcessGone& m) { write(out.initProcessGone(), m); }
  void operator()(const PeerHold& m) { write(out.initHold(), m); }
  void operator()(const PeerAwait& m) { write(out.initAwait(), m); }
  void operator()(const PeerReady& m) { write(out.initReady(), m); }
  void operator()(const PullRequest& m) { write(out.initPullRequest(), m); }
  void operator()(const PullElsewhere& m) { write(out.initPullElsewhere(), m); }
  void operator()(const PullData& m) { write(out.initPullData(), m); }
  void operator()(const PullOnBulk& m) { write(out.initPullOnBulk(), m); }
  void operator()(const PullRefused& m) { write(out.initPullRefused(), m); }
  void operator()(const BulkOffer& m) { write(out.initBulkOffer(), m); }
  void operator()(const ProgramRequest& m) { write(out.initProgramRequest(), m); }
  void operator()(const ProgramData& m) { write(out.initProgramData(), m); }
  void operator()(const PeerCredit& m) { write(out.initCredit(), m); }
  void operator()(const PeerRebuild& m) { write(out.initRebuild(), m); }
  void operator()(const PeerInquire& m) { write(out.initInquire(), m); }
  void operator()(const PeerAnswer& m) { write(out.initAnswer(), m); }
  void operator()(const PeerKeep& m) { write(out.initKeep(), m); }
  void operator()(const PeerKept& m) { write(out.initKept(), m); }
  void operator()(const PeerFind& m) { write(out.initFind(), m); }
  void operator()(const PeerHeld& m) { write(out.initHeld(), m); }
  void operator()(const PeerUnused& m) { write(out.initUnused(), m); }
  void operator()(const PeerLocate& m) { write(out.initLocate(), m); }
  void operator()(const PeerLocated& m) { write(out.initLocated(), m); }
  void operator()(const PeerKeeping& m) { write(out.initKeeping(), m); }
};

void write_peer(schema::PeerMessage::Builder out, const PeerMessage& message) {
  std::visit(WritePeer{out}, message);
}

void read_peer(const schema::PeerMessage::Reader& in, PeerMessage& out, std::size_t payload_size) {
  using Kind = schema::PeerMessage::Which;
  switch (in.which()) {
    case Kind::LEASE_REQUEST: return read(in.getLeaseRequest(), out.emplace<PeerLeaseRequest>());
    case Kind::LEASE_WITHDRAW: return read(in.getLeaseWithdraw(), out.emplace<PeerLeaseWithdraw>());
    case Kind::LEASE_GRANTED: return read(in.getLeaseGranted(), out.emplace<PeerLeaseGranted>());
    case Kind::LEASE_REFUSED: return read(in.getLeaseRefused(), out.emplace<PeerLeaseRefused>());
    case Kind::LEASE_RECLAIM:
      return read_lease(in.getLeaseReclaim(), out.emplace<PeerLeaseReclaim>());
    case Kind::LEASE_RETURNED:
      return read_lease(in.getLeaseReturned(), out.emplace<PeerLeaseReturned>());
    case Kind::CONNECT: return read(in.getConnect(), out.emplace<PeerConnect>());
    case Kind::FRAME: return read(in.getFrame(), out.emplace<PeerFrame>());
    case Kind::PROCESS_GONE: return read(in.getProcessGone(), out.emplace<PeerProcessGone>());
    case Kind::HOLD: return read(in.getHold(), out.emplace<PeerHold>());
    case Kind::AWAIT: return read(in.getAwait(), out.emplace<PeerAwait>());
    case Kind::READY: return read(in.getReady(), out.emplace<PeerReady>(), payload_size);
    case Kind::PULL_REQUEST: return read(in.getPullRequest(), out.emplace<PullRequest>());
    case Kind::PULL_ELSEWHERE: return read(in.getPullElsewhere(), out.emplace<PullElsewhere>());
    case Kind::PULL_DATA: return read(in.getPullData(), out.emplace<PullData>(), payload_size);
    case Kind::PULL_ON_BULK: return read(in.getPullOnBulk(), out.emplace<PullOnBulk>());
    case Kind::PULL_REFUSED: return read(in.getPullRefused(), out.emplace<PullRefused>());
    case Kind::BULK_OFFER: return read(in.getBulkOffer(), out.emplace<BulkOffer>());
    case Kind::PROGRAM_REQUEST: return read(in.getProgramRequest(), out.emplace<ProgramRequest>());
    case Kind::PROGRAM_DATA:
      return read(in.getProgramData(), out.emplace<ProgramData>(), payload_size);
    case Kind::CREDIT: return read(in.getCredit(), out.emplace<PeerCredit>());
    case Kind::REBUILD: return read(in.getRebuild(), out.emplace<PeerRebuild>());
    case Kind::INQUIRE: return read(in.getInquire(), out.emplace<PeerInquire>());
    case Kind::ANSWER: return read(in.getAnswer(), out.emplace<PeerAnswer>());
    case Kind::KEEP: return read(in.getKeep(), out.emplace<PeerKeep>());
    case Kind::KEPT: return read(in.getKept(), out.emplace<PeerKept>());
    case Kind::FIND: return read(in.getFind(), out.emplace<PeerFind>());
    case Kind::HELD: return read(in.getHeld(), out.emplace<PeerHeld>());
    case Kind::UNUSED: return read(in.getUnused(), out.emplace<PeerUnused>());
    case Kind::LOCATE: return read(in.getLocate(), out.emplace<PeerLocate>());
    case Kind::LOCATED: return read(in.getLocated(), out.emplace<PeerLocated>());
    case Kind::KEEPING: return read(in.getKeeping(), out.emplace<PeerKeeping>());
  }
  unsupported(static_cast<unsigned>(in.which()));
}

void write_creation(schema::Creation::Builder out, const Creation& m) {
  internal::write(out.initCreate(), m.create);
  write_refs(out, m.refs, kMaxCarriedRefs);
}
void read_creation(const schema::Creation::Reader& in, Creation& m, std::size_t payload_size) {
  internal::read(in.getCreate(), m.create, payload_size);
  read(in.getRefs(), m.refs, kMaxCarriedRefs);
}

}  // namespace
}  // namespace internal

using internal::Conversation;

struct PeerWriter::State {
  internal::Encoder encoder;
  std::vector<std::byte> whole;  ///< grows only
};

PeerWriter::PeerWriter() : state_(std::make_unique<State>()) {}
PeerWriter::~PeerWriter() = default;

BlobView PeerWriter::encode(const PeerMessage& message, BlobView payload) {
  TROUPE_ASSERT(payload.size() <= kMaxPeerPayload, "a payload between agents fits their frame");
  const BlobView head = state_->encoder.encode<schema::PeerMessage>(message, Conversation::peer,
                                                                    internal::write_peer);
  if (payload.empty()) return head;
  std::vector<std::byte>& whole = state_->whole;
  const std::size_t size = head.size() + payload.size();
  if (whole.size() < size) whole.resize(size);
  std::memcpy(whole.data(), head.data(), head.size());
  std::memcpy(whole.data() + head.size(), payload.data(), payload.size());
  return {whole.data(), size};
}

Result<Decoded<PeerMessage>> decode_peer(BlobView frame) {
  return internal::decode_frame<PeerMessage, schema::PeerMessage>(
      frame, Conversation::peer, internal::read_peer, kMaxPeerPayload);
}

Blob encode_creation(const Creation& creation, BlobView payload) {
  TROUPE_ASSERT(payload.size() <= kMaxPeerPayload, "a payload between agents fits their frame");
  internal::Encoder encoder;
  const BlobView head =
      encoder.encode<schema::Creation>(creation, Conversation::creation, internal::write_creation);
  Blob whole;
  whole.reserve(head.size() + payload.size());
  whole.assign(head.begin(), head.end());
  whole.insert(whole.end(), payload.begin(), payload.end());
  return whole;
}

Result<Decoded<Creation>> decode_creation(BlobView bytes) {
  return internal::decode_frame<Creation, schema::Creation>(
      bytes, Conversation::creation, internal::read_creation, kMaxPeerPayload);
}

}  // namespace troupe::wire
