/// Who may say what to an agent: one table, asked at the door, before a word does anything. A plain
/// state machine without a state.
///
/// Each kind of message has a row: which kinds of process say it, and what of their own it has to
/// be about. Who is at the other end is known from the connection, never from the message. What
/// observers ask of control through the agent has a table of its own.
///
///     const Objection no = authority.objection({index, Talker::worker}, message);
///     if (no == Objection::none) carry_out(message);
///
/// A kind that such a process never says comes from no process of this build: its connection ends.
/// A word about what is another's may be late rather than hostile: it is dropped, or answered with
/// an error where it has an answer. Both are counted and logged with who said what.
///
/// Other nodes' agents have a third table. Each part of the agent has what is theirs by the node
/// that spoke, so the table says which part judges.
///
/// Rings are read in any order, so a word may come before another process's that it follows. What
/// nobody is known to own is therefore believed; only what is known to be another's is refused.
/// Words without a rule of their own name the sender's things by numbers of the sender's, or
/// objects, whose ids nobody guesses: who knows an id was given it.
#pragma once

#include "troupe/runtime/agent/reference_table.hpp"
#include "troupe/runtime/control/messages.hpp"
#include "troupe/runtime/wire/messages.hpp"
#include "troupe/runtime/wire/peer.hpp"

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>

namespace troupe::agent {

/// Kinds of speakers, as bits of a row.
enum class Talker : std::uint8_t {
  nobody = 0,  ///< it has said hello and has no answer yet
  stranger = 1,
  driver = 2,
  worker = 4,
  observer = 8
};

/// What of the speaker's own a message is about.
enum class Own : std::uint8_t {
  anything,  ///< see above
  lease,     ///< that it has, or that is over
  count,     ///< of a ref: its own, or what it gives to another and takes back
  value,     ///< of an object that it makes, at a place that is not another's
  place,     ///< of bytes that are not another's
  actor,     ///< a new one
};

struct Rule {
  std::uint8_t speakers = 0;  ///< who may say it
  Own own = Own::anything;
  bool is_a_row = false;
};

/// What of the speaking node's own a word of another agent is about, and who judges it.
enum class PeerOwn : std::uint8_t {
  anything,  ///< a question or request that any node may have
  process,   ///< a process, lease or proxy of that node: RemoteTable
  count,     ///< of a ref, for that node or in its name: ReferenceTable
  object,    ///< that this node imports from it, or looks for there: ReferenceTable, Replicas
  copy,      ///< that it asked for, or was asked for: Replicas
  transfer,  ///< that was asked of it, or by it: Transfers
  program,   ///< of a job whose driver is there: Programs
  answer,    ///< to what it was asked: Node, LocationQuery
};
struct PeerRule {
  PeerOwn own = PeerOwn::anything;
  bool is_a_row = false;
};

namespace authority {

template <class Variant>
using Table = std::array<Rule, std::variant_size_v<Variant>>;
using PeerTable = std::array<PeerRule, std::variant_size_v<wire::PeerMessage>>;

/// The index of a kind among those of the variant.
template <class Message, class... Kinds>
constexpr std::size_t kind_of(const std::variant<Kinds...>*) {
  std::size_t at = 0, found = sizeof...(Kinds);
  ((std::is_same_v<Message, Kinds> ? (void)(found = at++) : (void)++at), ...);
  return found;
}
template <class Variant, class... Messages>
constexpr void rows(Table<Variant>& table, std::uint8_t speakers, Own own = Own::anything) {
  ((table[kind_of<Messages>(static_cast<const Variant*>(nullptr))] = {speakers, own, true}), ...);
}
template <class Table>
constexpr bool is_whole(const Table& table) {
  for (const auto& rule : table)
    if (!rule.is_a_row) return false;
  return true;
}

inline constexpr std::uint8_t kNobody = 0, kStranger = 1, kDriver = 2, kWorker = 4, kObserver = 8,
                              kProgram = kDriver | kWorker, kAnyone = kProgram | kObserver;

constexpr Table<wire::NodeMessage> node_table() {
  namespace w = wire;
  using M = w::NodeMessage;
  Table<M> t{};
  rows<M, w::Hello>(t, kStranger);
  rows<M, w::Shutdown>(t, kStranger | kProgram);  // strangers: workers that cannot start
  rows<M, w::Inquire>(t, kAnyone);                // by its question: may_ask()
  rows<M, w::ListNodes>(t, kProgram);
  // Leases.
  rows<M, w::RequestLease>(t, kProgram);
  rows<M, w::LeaseReturned>(t, kProgram, Own::lease);
  rows<M, w::Blocked, w::Unblocked, w::Pace>(t, kWorker);
  // Objects.
  rows<M, w::Promote, w::Fulfil, w::Rebuilt>(t, kProgram, Own::value);
  rows<M, w::Hold>(t, kProgram, Own::count);
  rows<M, w::Arrived, w::Await, w::Rebuild, w::Lineage, w::KeptCall, w::MadeBy, w::ForgetCall>(
      t, kProgram);
  rows<M, w::Replicate, w::NameObject, w::Locate>(t, kProgram);
  // Actors. Control judges a kill: it knows whose the actor is.
  rows<M, w::CreateActor>(t, kProgram, Own::actor);
  rows<M, w::WatchActor, w::KillActor, w::FindActor>(t, kProgram);
  rows<M, w::ActorCreated>(t, kWorker);
  // Memory.
  rows<M, w::Free>(t, kProgram, Own::place);
  rows<M, w::StoreAttached, w::NeedExtent, w::ExtentMapped, w::NeedReader, w::Adopt, w::CallSite,
       w::Unpinned, w::GiveBack, w::WhereIs>(t, kProgram);
  // What only agents say.
  rows<M, w::Welcome, w::Channel, w::PeerDied, w::LeaseGranted, w::LeaseRefused, w::LeaseReclaim,
       w::Ready, w::StartActor, w::ActorUpdate, w::FoundActor, w::GiveExtent, w::ExtentSealed,
       w::GiveReader, w::Recycle, w::Nodes, w::StoreTables, w::Forget, w::Answer, w::MemoryPressure,
       w::NowAt, w::Replicated, w::NamedObject, w::Located>(t, kNobody);
  return t;
}

/// What may be asked of control through an agent. Programs have messages of their own for what they
/// need; an observer is whom a person asks with.
constexpr Table<control::ToControl> question_table() {
  namespace c = control;
  using M = c::ToControl;
  Table<M> t{};
  rows<M, c::ListRequest>(t, kAnyone);
  rows<M, c::KeyValueRequest, c::DrainRequest, c::NameObject>(t, kObserver);
  rows<M, c::RegisterNode, c::Heartbeat, c::Leaving, c::NodeReport, c::SpawnActor, c::ActorStarted,
       c::ActorStartFailed, c::ActorGone, c::KillActor, c::HandlesGone, c::FindActor, c::WatchActor,
       c::NodeHosts, c::StartJob, c::FinishJob, c::DriverDied, c::GetJob, c::NodePace>(t, kNobody);
  return t;
}

template <class... Messages>
constexpr void peer_rows(PeerTable& table, PeerOwn own) {
  ((table[kind_of<Messages>(static_cast<const wire::PeerMessage*>(nullptr))] = {own, true}), ...);
}

constexpr PeerTable peer_table() {
  namespace w = wire;
  PeerTable t{};
  peer_rows<w::PeerLeaseRequest, w::PeerConnect>(t, PeerOwn::anything);
  peer_rows<w::PeerAwait, w::PeerRebuild, w::PeerFind, w::PeerHeld, w::PeerKeeping, w::PeerLocate,
            w::PeerInquire, w::ProgramRequest>(t, PeerOwn::anything);
  peer_rows<w::PeerLeaseWithdraw, w::PeerLeaseGranted, w::PeerLeaseRefused, w::PeerLeaseReclaim,
            w::PeerLeaseReturned, w::PeerFrame, w::PeerProcessGone, w::PeerCredit>(
      t, PeerOwn::process);
  peer_rows<w::PeerHold>(t, PeerOwn::count);
  peer_rows<w::PeerReady>(t, PeerOwn::object);
  peer_rows<w::PeerKeep, w::PeerKept, w::PeerUnused>(t, PeerOwn::copy);
  peer_rows<w::PullRequest, w::PullElsewhere, w::PullData, w::PullOnBulk, w::PullRefused,
            w::BulkOffer>(t, PeerOwn::transfer);
  peer_rows<w::ProgramData>(t, PeerOwn::program);
  peer_rows<w::PeerAnswer, w::PeerLocated>(t, PeerOwn::answer);
  return t;
}

inline constexpr auto kNodeTable = node_table();
inline constexpr auto kQuestionTable = question_table();
inline constexpr auto kPeerTable = peer_table();
static_assert(is_whole(kNodeTable), "a message of a process has no row: who may say it?");
static_assert(is_whole(kQuestionTable), "a message for control has no row: who may ask it?");
static_assert(is_whole(kPeerTable), "a message between agents has no row: who judges it?");

constexpr bool allows(const Rule& rule, Talker who) {
  return (rule.speakers & static_cast<std::uint8_t>(who)) != 0;
}

}  // namespace authority

enum class Objection : std::uint8_t {
  none,
  never,    ///< such a process never says it
  another,  ///< it is about what is another's
};

class Authority {
 public:
  /// What the tables of the agent know. Each is false only when it is known to be another's.
  class Facts {
   public:
    virtual ~Facts() = default;
    virtual bool may_return(ProcessIndex who, std::uint64_t lease) const = 0;
    virtual bool may_count(ProcessIndex who, const wire::Hold& hold) const = 0;
    virtual bool may_make(ProcessIndex who, ObjectId object) const = 0;
    virtual bool may_place(ProcessIndex who, const wire::Location& place) const = 0;
    virtual bool may_create(ProcessIndex who, const wire::CreateActor& create) const = 0;
  };
  struct Sender {
    ProcessIndex index = 0;
    Talker who = Talker::nobody;
  };

  explicit Authority(const Facts& facts) : facts_(facts) {}
  /// Cost: a look at the table, and one at what the message is about.
  Objection objection(Sender from, const wire::NodeMessage& message) const {
    const Rule& rule = authority::kNodeTable[message.index()];
    if (!authority::allows(rule, from.who)) [[unlikely]]
      return Objection::never;
    if (rule.own == Own::anything || is_own(from.index, rule.own, message)) return Objection::none;
    return Objection::another;
  }
  /// Whether such a process may ask this of control.
  static bool may_ask(Talker who, const control::ToControl& question) {
    return authority::allows(authority::kQuestionTable[question.index()], who);
  }

 private:
  bool is_own(ProcessIndex who, Own own, const wire::NodeMessage& message) const;

  const Facts& facts_;
};

/// "LeaseReturned"
std::string name_of(const wire::NodeMessage& message);
/// "driver"
const char* name_of(Talker who) noexcept;

}  // namespace troupe::agent
