/// Copies of objects at other nodes: those of this node's objects, those that it keeps for others,
/// and those that it looks for when an owner is gone. A plain state machine beside the
/// ReferenceTable.
///
///     replicas.want(process, request, object, 2, until);   // → PeerKeep, then out.replicated()
///     replicas.on_keep(from, message);     // keeper: awaits and pulls it as copy_of(object)
///     replicas.look(owner, object);        // reader: → PeerFind to all, then out.found_here() or
///     if (auto found = replicas.answered(from, object, true)) …;       // what the node answered
///     replicas.carry_out(now);             // each pass; sooner at next_deadline()
///
/// A copy is an object of its own under the id copy_of(object), which its keeper imports from the
/// owner and the keeper's agent holds: so it is pulled, spilled and freed like any other, and is
/// apart from what the same node may hold as an importer. It ends when the owner says so. When the
/// owner is lost, whoever misses the object asks every node for a copy, again for a while, since a
/// node may be new to it, and takes value and bytes of the first that has one.
///
/// Copies of lost owners end when nobody holds the object any more. Their keeper asks all nodes
/// from time to time; each says which objects it has no record of and had none since the question
/// before. When all say so of one in the same round it is unused: between the two rounds' answers
/// lies a moment at which no node had a record, and as long as a ref is left some node has one
/// (ReferenceTable). A round during which a node is lost frees nothing, and who knows other live
/// nodes than the asker names no object: what a dead node sent last may still come to it.
///
/// An object may be held by its name alone. Control is asked for one before the nodes are: who
/// finds it by its name has a record, and without a name only who has a record can give it one,
/// which that node holds then. So what had no name after its owner was lost has none as long as no
/// node with a record is lost; after such a loss control is asked again.
///
/// Keepers whose owner is lost go on in its place: each tells all nodes, so that they know of each
/// other, and the one with the lowest id asks further nodes for copies until there are as many as
/// were wanted, a few objects at a time (replica_repair.cpp). Such a copy comes from the asker,
/// whom its keeper's ReferenceTable takes for the owner, and ends like the others; one too many
/// does no harm.
///
/// Invariants: REPLICA-1 who wants copies is answered once, without error only when so many nodes
/// have it. REPLICA-2 a search ends in a value, in bytes, or in out.not_found(). REPLICA-3 as long
/// as the owner lives it keeps asking until there are so many copies, as far as there are nodes;
/// then those who keep one do.
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
  Duration look_for{std::chrono::seconds(10)};  ///< a copy that no node has
  Duration look_again{std::chrono::milliseconds(250)};
  Duration round{std::chrono::milliseconds(250)};  ///< between questions; longer if in vain
  Duration longest_round{std::chrono::seconds(4)};
  bool names = false;  ///< an object may have a name, which counts as a holder
  /// Between an owner's loss and the first new copy: others say what they keep, and what nobody
  /// holds any more is freed.
  Duration repair_after{std::chrono::seconds(2)};
  std::size_t repairs_at_once = 4;  ///< objects
};

class Replicas {
 public:
  struct Candidate {
    NodeId node;
    std::uint64_t free_bytes = 0;
    bool accepts = true;  ///< new copies
  };
  /// What follows; must not call back in.
  class Out {
   public:
    virtual ~Out() = default;
    virtual void send(NodeId to, const wire::PeerMessage& message) = 0;
    virtual ProcessIndex index_of(NodeId node) = 0;
    /// All live nodes but this.
    virtual std::vector<Candidate> other_nodes() = 0;
    virtual void replicated(ProcessIndex process, const wire::Replicated& answer) = 0;
    /// This node keeps a copy: the object's value, for the ReferenceTable.
    virtual void found_here(ProcessIndex owner, ObjectId object) = 0;
    /// And its bytes.
    virtual void lend(ObjectId object) = 0;
    /// Answered by pulled() or pull_failed().
    virtual void pull_copy(NodeId from, ObjectId copy, std::uint64_t bytes) = 0;
    /// No node has a copy. `bytes`: those were wanted, not the value.
    virtual void not_found(ProcessIndex owner, ObjectId object,
                           std::optional<std::uint64_t> bytes) = 0;
    /// With `names`: control is asked whether the object has a name; answered by on_name(), or
    /// never, and not any more once a node was lost.
    virtual void ask_name_of(ObjectId /*object*/) {}
  };

  Replicas(ReferenceTable& references, Out& out, ReplicasOptions options = {})
      : references_(references), out_(out), options_(options), pause_(options.round) {}
  /// This node's id. Before anything else.
  void start(NodeId self) { self_ = self; }

  // --- as owner
  /// Precondition: has_copies(object).
  void want(ProcessIndex process, const wire::Replicate& message, Time now);
  void on_kept(NodeId from, const wire::PeerKept& message);
  /// Nobody holds it any more. From the ReferenceTable: takes effect with carry_out().
  void over(ObjectId object) { over_.push_back(object); }
  /// There may be nodes that were not there.
  void nodes_changed();
  void process_died(ProcessIndex process);

  // --- as keeper
  void on_keep(NodeId from, const wire::PeerKeep& message, Time now);
  /// A PeerAwait of a copy: from who is to keep one, to the owner or another keeper.
  void on_await(NodeId from, ObjectId copy);
  void on_keeping(NodeId from, const wire::PeerKeeping& message);
  /// The ReferenceTable's answer to what on_keep() awaits; with carry_out().
  void arrived(ObjectId copy, const wire::Value& value) { arrived_.emplace_back(copy, value); }
  void on_find(NodeId from, ObjectId object);
  void on_unused(NodeId from, const wire::PeerUnused& message, Time now);
  void on_name(ObjectId object, bool has_one, Time now);

  // --- as reader
  /// The value of a lost owner's object is wanted, or its bytes; with carry_out().
  void look(ProcessIndex owner, ObjectId object);
  void fetch(ProcessIndex owner, ObjectId object, std::uint64_t bytes);
  /// A node's answer to PeerFind. The owner whose object gets the value that came with it; nullopt:
  /// that is not wanted (it is late, or known and only bytes are).
  std::optional<ProcessIndex> answered(NodeId from, ObjectId object, bool found);
  /// A pull from this node is over. False: it is the ReferenceTable's to know. An owner that cannot
  /// be reached may be lost in a moment: then copies are looked for, too.
  bool pulled(ObjectId copy, NodeId from);
  bool pull_failed(ObjectId pulled, NodeId from, const Error& error);
  void on_held(NodeId from, const wire::PeerHeld& message);
  /// From the ReferenceTable: somebody here names it, to whom it was unknown.
  void met(ObjectId object);

  /// A copy that is made anew is on its way here: nobody waits for it.
  bool is_coming(ObjectId object) const;

  // --- life
  /// After the ReferenceTable heard of it, and when index_of() names the node's next life: it may
  /// be asked again at once.
  void node_died(NodeId node, Time now);
  void carry_out(Time now);
  /// Something waits for carry_out().
  bool pending() const noexcept {
    return !over_.empty() || !arrived_.empty() || !fresh_.empty() || !untold_.empty();
  }
  Time next_deadline() const;

  /// Objects of which this node keeps copies, whose owners are alive or not.
  std::size_t kept() const noexcept { return kept_.size(); }
  std::size_t owned() const noexcept { return owned_.size(); }
  std::size_t searches() const noexcept { return searches_.size(); }
  /// Copies of lost owners' objects that other nodes are to make.
  std::size_t repairing() const noexcept { return making_; }

 private:
  struct Owned {
    std::uint32_t copies = 2;
    std::set<NodeId> asked, have, refused;
    std::optional<Error> why;  ///< the last refusal
    ProcessIndex process = 0;
    std::uint64_t request = 0;
    Time until{};
  };
  struct Kept {
    NodeId owner;            ///< zero: lost before this copy was asked for
    NodeId from;             ///< who asked for it
    ProcessIndex index = 0;  ///< of that one
    std::uint32_t copies = 2;
    bool here = false;
    bool nameless = false;  ///< since its owner was lost, and no node was lost after that
  };
  /// Of one that is kept here and whose owner is lost, or others say so.
  struct Orphan {
    std::set<NodeId> also;     ///< others that keep one
    std::set<NodeId> refused;  ///< to keep one
    NodeId asked{};            ///< to do so
    bool told = false;         ///< all nodes, of ours
    Time due = Time::max();    ///< when their number is looked at
  };
  struct Search {
    ProcessIndex owner = 0;
    std::optional<std::uint64_t> bytes;  ///< these are wanted, the value is known
    std::set<NodeId> asked;
    NodeId from{};      ///< who sends the bytes
    bool anew = false;  ///< and was let go of meanwhile: whoever wants it now asks for its value
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
  /// Those that nobody here has held since that node's question before.
  std::vector<ObjectId> unused(NodeId asker, const std::vector<ObjectId>& objects);
  std::uint64_t members();
  void begin_round(Time now);
  void end_round(Time now);

  ReferenceTable& references_;
  Out& out_;
  ReplicasOptions options_;
  NodeId self_;
  std::map<ObjectId, Owned> owned_;
  std::set<ObjectId> waiting_;  ///< whose process waits
  std::set<ObjectId> short_;    ///< of which there are too few, and no node is left
  std::vector<ObjectId> over_;
  std::map<ObjectId, Kept> kept_;
  std::vector<std::pair<ObjectId, wire::Value>> arrived_;
  std::map<ObjectId, Orphan> orphans_;
  std::vector<ObjectId> untold_;  ///< of them
  std::set<std::pair<Time, ObjectId>> orphans_due_;
  std::set<ObjectId> too_few_;  ///< and no node is left that could be asked
  std::size_t making_ = 0;      ///< of which a node is asked for one
  std::map<ObjectId, Search> searches_;
  std::set<ObjectId> fresh_;  ///< searches to be looked at
  Time search_due_ = Time::max();
  // Rounds of questions about copies whose owners are lost.
  Time round_due_ = Time::max();
  Duration pause_;
  std::uint64_t round_ = 0;
  std::size_t nodes_in_round_ = 0;
  std::set<NodeId> silent_;  ///< that have not answered
  bool in_round_ = false, spoilt_ = false, once_more_ = false;
  std::map<ObjectId, std::size_t> asked_about_;   ///< how many nodes have no use for it
  ObjectId last_asked_{};                         ///< of the round, by id
  std::map<NodeId, std::set<ObjectId>> watched_;  ///< by who asks; a zero id: this node
};

}  // namespace troupe::agent
