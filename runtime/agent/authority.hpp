/// Decides which process may send which message to an agent. Processes asks before a message
/// has any effect. Tables without a state.
///
/// Each kind of message has a row: the kinds of process that may send it, and what of the sender's
/// own it must be about. The sender is known from its connection, never from the message. A second
/// table lists what may be asked of control through the agent.
///
///     const Objection no = authority.objection({index, Talker::worker}, message);
///     if (no == Objection::none) carry_out(message);
///
/// A message that such a process never sends comes from no process of this build: its connection
/// ends. A message about another process's things may be late rather than hostile: it is dropped,
/// or answered with an error if it has an answer. Both are counted, and logged with the sender.
///
/// A third table is for messages of other nodes' agents. Each part of the agent stores what belongs
/// to a node under that node's id, so the row names the part that judges the message.
///
/// Rings are read in any order: a message may be read before one of another process that it
/// follows. A message is therefore refused only if its subject is known to be another's, and let
/// through if the subject has no known owner. Messages without a rule (Own::anything) name the
/// sender's things by the sender's own numbers, or objects by their ids. An id cannot be guessed:
/// a process that knows one was given it.
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

/// The kinds of sender, as bits of a Rule.
enum class Talker : std::uint8_t {
  nobody = 0,  ///< it has sent its Hello and has no Welcome yet
  stranger = 1,
  driver = 2,
  worker = 4,
  observer = 8
};

/// The thing of the sender's own that a message must be about.
enum class Own : std::uint8_t {
  anything,  ///< no rule: see above
  lease,     ///< a lease that it has, or one that is over
  count,     ///< a count of a ref: its own, or one that it gives to another or takes back
  value,     ///< the value of an object that it makes, at a place that is not another's
  place,     ///< bytes that are not another's
  actor,     ///< an actor that does not exist yet
};

struct Rule {
  std::uint8_t speakers = 0;  ///< Talkers that may send it
  Own own = Own::anything;
  bool is_a_row = false;  ///< false: the table lacks the kind
};

/// The thing of the sending node that a message of another agent is about, and the part that judges
/// it.
enum class PeerOwn : std::uint8_t {
  anything,  ///< a question or request that any node may have
  process,   ///< a process, lease or proxy of that node: RemoteTable
  count,     ///< a count of a ref, for that node or in its name: ReferenceTable
  object,    ///< an object imported from that node, or looked for there: ReferenceTable, Replicas
  copy,      ///< a replica that it asked for, or was asked for: Replicas
  transfer,  ///< a transfer that was asked of it, or by it: Transfers
  program,   ///< the program of a job whose driver is there: Programs
  answer,    ///< an answer to what it was asked: Node, LocationQuery
};
struct PeerRule {
  PeerOwn own = PeerOwn::anything;
  bool is_a_row = false;
};

namespace authority {

template <class Variant>
using Table = std::array<Rule, std::variant_size_v<Variant>>;
using PeerTable = std::array<PeerRule, std::variant_size_v<wire::PeerMessage>>;

/// Returns the index of Message among the kinds of the variant; their number if it is none of them.
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
  rows<M, w::Inquire>(t, kAnyone);  // may_ask(), or Observers, judges the question inside
  rows<M, w::ListNodes>(t, kProgram);
  // Leases.
  rows<M, w::RequestLease>(t, kProgram);
  rows<M, w::LeaseReturned>(t, kProgram, Own::lease);
  rows<M, w::Blocked, w::Unblocked, w::Pace>(t, kWorker);
  rows<M, w::GiveRows>(t, kProgram);  // ObserveQuestions knows whether it was asked
  // Objects.
  rows<M, w::Promote, w::Fulfil, w::Rebuilt>(t, kProgram, Own::value);
  rows<M, w::Hold>(t, kProgram, Own::count);
  rows<M, w::Arrived, w::Await, w::Rebuild, w::Lineage, w::KeptCall, w::MadeBy, w::ForgetCall>(
      t, kProgram);
  rows<M, w::Replicate, w::NameObject, w::Locate, w::Explain>(t, kProgram);
  // Actors. Control judges a kill: it knows whose the actor is.
  rows<M, w::CreateActor>(t, kProgram, Own::actor);
  rows<M, w::WatchActor, w::KillActor, w::FindActor>(t, kProgram);
  rows<M, w::ActorCreated>(t, kWorker);
  // Memory.
  rows<M, w::Free>(t, kProgram, Own::place);
  rows<M, w::StoreAttached, w::NeedExtent, w::ExtentMapped, w::NeedReader, w::Adopt, w::CallSite,
       w::Unpinned, w::GiveBack, w::WhereIs>(t, kProgram);
  // Only agents send these.
  rows<M, w::Welcome, w::Channel, w::PeerDied, w::LeaseGranted, w::LeaseRefused, w::LeaseReclaim,
       w::Ready, w::StartActor, w::ActorUpdate, w::FoundActor, w::GiveExtent, w::ExtentSealed,
       w::GiveReader, w::Recycle, w::Nodes, w::StoreTables, w::Forget, w::Answer, w::MemoryPressure,
       w::NowAt, w::Replicated, w::NamedObject, w::Located, w::Explained, w::AskRows>(t, kNobody);
  return t;
}

/// The questions that may be asked of control through an agent. Drivers and workers have messages
/// of their own for what they need; observers ask for a person.
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
  never,    ///< a process of this kind never sends it
  another,  ///< it is about something of another process
};

class Authority {
 public:
  /// The knowledge of the agent's other parts. A function returns false only if the subject is
  /// known to be another process's.
  class Facts {
   public:
    virtual ~Facts() = default;
    virtual bool may_return(ProcessIndex who, LeaseId lease) const = 0;
    virtual bool may_count(ProcessIndex who, const wire::Hold& hold) const = 0;
    virtual bool may_make(ProcessIndex who, ObjectId object) const = 0;
    virtual bool may_place(ProcessIndex who, const wire::Location& place) const = 0;
    virtual bool may_create(ProcessIndex who, const wire::CreateActor& create) const = 0;
  };
  struct Sender {
    ProcessIndex index;
    Talker who = Talker::nobody;
  };

  explicit Authority(const Facts& facts) : facts_(facts) {}
  /// Returns none if the message may take effect. Cost: one look at the table, and one at the
  /// message's subject.
  Objection objection(Sender from, const wire::NodeMessage& message) const {
    const Rule& rule = authority::kNodeTable[message.index()];
    if (!authority::allows(rule, from.who)) [[unlikely]]
      return Objection::never;
    if (rule.own == Own::anything || is_own(from.index, rule.own, message)) return Objection::none;
    return Objection::another;
  }
  /// Returns whether a process of this kind may ask this of control.
  static bool may_ask(Talker who, const control::ToControl& question) {
    return authority::allows(authority::kQuestionTable[question.index()], who);
  }

 private:
  bool is_own(ProcessIndex who, Own own, const wire::NodeMessage& message) const;

  const Facts& facts_;
};

/// Returns the kind of the message, such as "LeaseReturned".
std::string name_of(const wire::NodeMessage& message);
/// Returns a word for people, such as "driver".
const char* name_of(Talker who) noexcept;

}  // namespace troupe::agent
