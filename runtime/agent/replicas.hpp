/// Copies of objects at other nodes: copies of this node's objects, copies that this node keeps
/// for others, and searches for copies whose owner is lost. A plain state machine beside the
/// ReferenceTable.
///
///     replicas.want(process, request, object, 2, until);   // → PeerKeep, then out.replicated()
///     replicas.on_keep(from, message);     // keeper: awaits and pulls it as copy_of(object)
///     replicas.look(owner, object);        // reader: → PeerFind to all, then out.found_here() or
///     if (auto owner = replicas.answered(from, object, true)) …;       // a node's PeerReady
///     replicas.carry_out(now);             // each pass; sooner at next_deadline()
///
/// A copy is an object of its own with the id copy_of(object). Its keeper imports it from the
/// owner, and the keeper's agent holds it. So the copy is pulled, spilled and freed like any other
/// object, and is separate from what the same node may hold as an importer. It ends with the
/// owner's PeerKeep(keep = false). When the owner is lost, a node that misses the object asks
/// every node for a copy (PeerFind). It repeats that for a while, since it may learn of nodes
/// late. It takes value and bytes from the first node that has a copy.
///
/// A copy of a lost owner ends when no node holds the object any more. Its keeper asks all nodes
/// in rounds (PeerHeld). Each node names the objects of which it has no record and had none since
/// the question before (PeerUnused). An object that all nodes name in one round is unused. Reason:
/// between the answers of two rounds lies a moment at which no node had a record, and as long as a
/// ref is left some node has one (ReferenceTable). A round during which a node is lost frees
/// nothing. A node that knows other live nodes than the asker names no object, since the last
/// messages of a dead node may still arrive there.
///
/// An object may be held by its name alone. The keeper therefore asks control for a name before it
/// asks the nodes. A node that finds the object by its name has a record. If there is no name,
/// only a node with a record can give one, and that node holds it then. So an object without a
/// name after its owner's loss stays without one until a node with a record is lost. After the
/// loss of any node the keeper asks control again.
///
/// The keepers of a lost owner's object restore the number of copies (replica_repair.cpp). Each
/// tells all nodes what it keeps (PeerKeeping), so that the keepers know each other. The keeper
/// with the lowest id asks further nodes for copies until there are as many as were wanted, a few
/// objects at a time. Such a copy comes from the asking keeper, which the new keeper's
/// ReferenceTable takes for the owner. It ends like the others; a surplus copy does no harm.
///
/// Invariants: REPLICA-1 A process that wants copies is answered once, and without error only when
/// that many nodes have the object. REPLICA-2 A search ends in a value, in bytes, or in
/// out.not_found(). REPLICA-3 The owner asks further nodes until the number of copies is reached
/// or no node is left; after its loss the keepers do.
#pragma once

#include "troupe/runtime/agent/reference_table.hpp"
#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/wire/peer.hpp"

#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace troupe::agent {

struct ReplicasOptions {
  Duration look_for{std::chrono::seconds(10)};          ///< until a search fails
  Duration look_again{std::chrono::milliseconds(250)};  ///< between questions of one search
  Duration round{std::chrono::milliseconds(250)};       ///< between rounds; doubled if in vain
  Duration longest_round{std::chrono::seconds(4)};
  bool names = false;  ///< an object may have a name, which counts as a holder
  /// Pause between an owner's loss and the first new copy. In it the keepers learn of each other,
  /// and objects without holders are freed.
  Duration repair_after{std::chrono::seconds(2)};
  std::size_t repairs_at_once = 4;  ///< objects
};

class Replicas {
 public:
  struct Candidate {
    NodeId node;
    std::uint64_t free_bytes = 0;
    bool accepts = true;  ///< whether the node takes new copies
  };
  /// The effects. An implementation must not call into Replicas.
  class Out {
   public:
    virtual ~Out() = default;
    virtual void send(NodeId to, const wire::PeerMessage& message) = 0;
    virtual ProcessIndex index_of(NodeId node) = 0;
    /// All live nodes except this one.
    virtual std::vector<Candidate> other_nodes() = 0;
    virtual void replicated(ProcessIndex process, const wire::Replicated& answer) = 0;
    /// Ends a search for a value: this node's own copy gives it to the ReferenceTable.
    virtual void found_here(ProcessIndex owner, ObjectId object) = 0;
    /// Ends a search for bytes: this node's own copy gives them.
    virtual void lend(ObjectId object) = 0;
    /// Fetches the bytes of a copy. Answered by pulled() or pull_failed().
    virtual void pull_copy(NodeId from, ObjectId copy, std::uint64_t bytes) = 0;
    /// Ends a search: no node has a copy. `bytes` has a value if the search was for bytes.
    virtual void not_found(ProcessIndex owner, ObjectId object,
                           std::optional<std::uint64_t> bytes) = 0;
    /// With `names`: asks control whether the object has a name. on_name() may answer. The answer
    /// may fail to come, and is invalid once a node was lost.
    virtual void ask_name_of(ObjectId /*object*/) {}
  };

  Replicas(ReferenceTable& references, Out& out, ReplicasOptions options = {})
      : references_(references), out_(out), options_(options), pause_(options.round) {}
  /// Sets this node's id. Precondition: nothing else was called yet.
  void start(NodeId self) { self_ = self; }

  // --- as owner
  /// Asks other nodes for copies; out.replicated() answers the process. Precondition:
  /// has_copies(object).
  void want(ProcessIndex process, const wire::Replicate& message, Time now);
  void on_kept(NodeId from, const wire::PeerKept& message);
  /// Ends the copies of an object without holders. Called by the ReferenceTable; takes effect with
  /// carry_out().
  void over(ObjectId object) { over_.push_back(object); }
  /// Tries again where too few nodes took a copy: there may be new nodes.
  void nodes_changed();
  void process_died(ProcessIndex process);

  // --- as keeper
  void on_keep(NodeId from, const wire::PeerKeep& message, Time now);
  /// Handles the PeerAwait of a copy, which a new keeper sends to the owner or to another keeper.
  void on_await(NodeId from, ObjectId copy);
  void on_keeping(NodeId from, const wire::PeerKeeping& message);
  /// Takes the ReferenceTable's answer to the await of on_keep(); takes effect with carry_out().
  void arrived(ObjectId copy, const wire::Value& value) { arrived_.emplace_back(copy, value); }
  void on_find(NodeId from, ObjectId object);
  void on_unused(NodeId from, const wire::PeerUnused& message, Time now);
  void on_name(ObjectId object, bool has_one, Time now);

  // --- as reader
  /// Begins a search for the value of a lost owner's object. Takes effect with carry_out().
  void look(ProcessIndex owner, ObjectId object);
  /// The same for the object's bytes.
  void fetch(ProcessIndex owner, ObjectId object, std::uint64_t bytes);
  /// Handles a node's answer to PeerFind. Returns the owner under which the ReferenceTable gets
  /// the value that came with the answer; nullopt when that value is not wanted: the answer is
  /// late or negative, or only bytes are wanted.
  std::optional<ProcessIndex> answered(NodeId from, ObjectId object, bool found);
  /// Ends a pull from this node with bytes. Returns false when the pull belongs to the
  /// ReferenceTable and not to a search.
  bool pulled(ObjectId copy, NodeId from);
  /// Ends a pull without bytes. Returns false as pulled() does. An owner that cannot be reached
  /// may be lost soon, so its failed pull begins a search for copies too.
  bool pull_failed(ObjectId pulled, NodeId from, const Error& error);
  void on_held(NodeId from, const wire::PeerHeld& message);
  /// Called by the ReferenceTable when it makes a record of the object.
  void met(ObjectId object);

  /// Whether a repair copy of the object, sent by another keeper, is on its way here.
  bool is_coming(ObjectId object) const;

  // --- life
  /// Ends a node. Precondition: the ReferenceTable knows of the death, and index_of() gives the
  /// index of the node's next life, since the node may be asked again at once.
  void node_died(NodeId node, Time now);
  void carry_out(Time now);
  /// Whether something waits for carry_out().
  bool pending() const noexcept {
    return !over_.empty() || !arrived_.empty() || !fresh_.empty() || !untold_.empty();
  }
  Time next_deadline() const;

  /// Objects of which this node keeps copies, of living and of lost owners.
  std::size_t kept() const noexcept { return kept_.size(); }
  std::size_t owned() const noexcept { return owned_.size(); }
  std::size_t searches() const noexcept { return searches_.size(); }
  /// Objects of lost owners for which this node has asked another node to keep a copy.
  std::size_t repairing() const noexcept { return making_; }

 private:
  struct Owned {
    std::uint32_t copies = 2;
    std::set<NodeId> asked, have, refused;
    std::optional<Error> why;  ///< the last refusal
    ProcessIndex process;
    std::uint64_t request = 0;
    Time until{};
  };
  struct Kept {
    NodeId owner;        ///< zero if the owner was lost before this copy was asked for
    NodeId from;         ///< the node that asked for this copy
    ProcessIndex index;  ///< of `from`
    std::uint32_t copies = 2;
    bool here = false;
    bool nameless = false;  ///< control knows no name, and no node was lost since its answer
  };
  /// An object that is kept here and whose owner is lost, to this node or to other keepers.
  struct Orphan {
    std::set<NodeId> also;     ///< other nodes that keep a copy
    std::set<NodeId> refused;  ///< nodes that refused to keep a copy
    NodeId asked{};            ///< the node that was asked for a copy and has not answered
    bool told = false;         ///< all nodes got a PeerKeeping of this copy
    Time due = Time::max();    ///< when the number of copies is checked
  };
  struct Search {
    ProcessIndex owner;
    std::optional<std::uint64_t> bytes;  ///< set: the value is known, the bytes are wanted
    std::set<NodeId> asked;
    NodeId from{};      ///< the node that sends the bytes
    bool anew = false;  ///< the object was released meanwhile and is wanted again, with its value
    int failures = 0;
    Time until{}, again{};
    bool begun = false;
  };
  void advance(ObjectId object, Owned& owned);
  bool ask_one_more(ObjectId object, Owned& owned);
  void answer(ObjectId object, Owned& owned, std::optional<Error> error);
  void end(ObjectId object);
  void drop_copy(ObjectId object);
  void take_arrived(Time now);
  bool is_orphan(const Kept& kept) const {
    return kept.here && (!kept.owner || references_.is_dead(kept.index));
  }
  // copies that are repaired (replica_repair.cpp)
  void keep_repaired(NodeId from, const wire::PeerKeep& message);
  void answer_keeper(NodeId from, ObjectId object);
  void on_repaired(NodeId from, const wire::PeerKept& message);
  void begin_orphan(ObjectId object, Time now);
  void end_orphan(ObjectId object);
  void look_at(ObjectId object, Orphan& orphan, Time due);
  void repair_answered(ObjectId object, Orphan& orphan, Time due);
  void tell_all();
  void repair(Time now);
  void repair(ObjectId object, Orphan& orphan, Time now);
  void orphans_without(NodeId node, Time now);
  // searches, and rounds of questions for names (replicas.cpp)
  bool may_end(const Kept& kept) const;
  bool ask_names();
  void search(ProcessIndex owner, ObjectId object, std::optional<std::uint64_t> bytes);
  void go_on(Time now);
  void ask_all(ObjectId object, Search& search);
  bool look_anew(ObjectId object, Search& search);
  bool is_here(ObjectId object) const;
  std::vector<ObjectId> next_batch();
  /// The objects of which this node has had no record since the asker's last question.
  std::vector<ObjectId> unused(NodeId asker, const std::vector<ObjectId>& objects);
  std::uint64_t members();
  void begin_round(Time now);
  void end_round(Time now);

  ReferenceTable& references_;
  Out& out_;
  ReplicasOptions options_;
  NodeId self_;
  std::map<ObjectId, Owned> owned_;
  std::set<ObjectId> waiting_;  ///< objects whose process waits for out.replicated()
  std::set<ObjectId> short_;    ///< objects with too few copies and no node left to ask
  std::vector<ObjectId> over_;
  std::map<ObjectId, Kept> kept_;
  std::vector<std::pair<ObjectId, wire::Value>> arrived_;
  std::map<ObjectId, Orphan> orphans_;
  std::vector<ObjectId> untold_;  ///< orphans whose PeerKeeping is still to be sent
  std::set<std::pair<Time, ObjectId>> orphans_due_;
  std::set<ObjectId> too_few_;  ///< orphans with too few copies and no node left to ask
  std::size_t making_ = 0;      ///< orphans with a node in `asked`
  std::map<ObjectId, Search> searches_;
  std::set<ObjectId> fresh_;  ///< searches that go_on() must look at
  Time search_due_ = Time::max();
  // Rounds of questions about copies whose owners are lost.
  Time round_due_ = Time::max();
  Duration pause_;
  std::uint64_t round_ = 0;
  std::size_t nodes_in_round_ = 0;
  std::set<NodeId> silent_;  ///< nodes that have not answered in this round
  /// A round is under way; a node was lost during it; the next round asks about the same objects.
  bool in_round_ = false, spoilt_ = false, once_more_ = false;
  std::map<ObjectId, std::size_t> asked_about_;  ///< object → nodes that named it as unused
  ObjectId last_asked_{};                        ///< the highest id of the last batch
  /// By asker (zero: this node): the objects of its last question without a record here since.
  std::map<NodeId, std::set<ObjectId>> watched_;
};

}  // namespace troupe::agent
