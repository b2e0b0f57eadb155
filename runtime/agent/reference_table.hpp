/// The agent's reference table: every ref of this node that has left its process, whether this
/// node owns the object or imports it from another. A plain state machine.
///
/// The table counts each holder by its ProcessIndex: processes of this node, the agent itself
/// (refs inside values) and other nodes. A sender registers the receiver before it publishes the
/// message that carries the ref. The agent reads rings and links in any order, so a count may be
/// zero or negative for a moment. An object is therefore freed only when *every* holder is at zero
/// (not the sum), and was at zero already at the last call of settle().
///
///     references.hold(object, process, +1);
///     references.settle();  // after every ring was drained: frees what nobody has held since
///                       // the last settle()
///
/// Zero at every holder is enough for this reason. Take the earliest +1, in causal order, that the
/// agent has not read. Its sender held the object then. The sender's own counts are all earlier,
/// so the agent has read them, and they are one more than the sender has returned.
///
/// Between nodes: an importing node counts an imported object holder by holder, and the owner
/// counts the importing node once. A node that passes a ref on keeps its count until the owner has
/// counted the receiver:
///
///     owner → node          The owner counts the node itself. A node that had the ref already
///                           returns the surplus.
///     node → node           The sender's process counts the receiving node at its own agent. The
///                           receiver sends PeerHold to the owner (holder = the sender, +1). The
///                           owner counts the receiver and answers with the same and -1. Then, or
///                           when it loses the owner, the receiver sends PeerHold to the sender
///                           (holder = the owner, -1), which drops its count of the receiver.
///     node → owner          Nothing is sent: the frame itself comes before the sender's release.
///
/// So the death of a node ends that node's own counts and no others: no count is lost, and every
/// count that stays has somebody who returns it. (Reference listing after Birrell et al., Network
/// Objects, 1993, with the dirty call's acknowledgement passed on to the sender.)
///
/// A value can be lost after it was known: its bytes were on a node that is gone, or a copy on
/// disk has gone bad. A process that misses the bytes calls for rebuild(). The value is then
/// unknown again, until the object's maker, which alone can compute it again, reports the new
/// value with rebuilt(). Requests at the same time cause one such question. An importer whose own
/// copy is bad first fetches another copy from the owner. It sends PeerRebuild when the owner
/// refuses the fetch as lost. When the maker has ended and its call is kept (lineage_cache.hpp),
/// another process takes its place. A late rebuild() about bytes that were replaced meanwhile
/// drops no good bytes: ask_of_bytes().
///
/// With keep_copies(), nodes keep copies of what others hold. The death of an owner then leaves
/// open the values that are not known here: peer_await() and pull() ask for its copy, and the
/// answers come as the owner's would have come. An owner whose own bytes have gone bad also reads
/// its copy before it asks the maker. A copy names the refs inside it and does not count them.
/// Objects of the copy's owner among those have copies as well. Objects of other owners may be
/// gone with the dead owner's counts; they end in an error.
///
/// An object whose id says has_copies() outlives its owner in the same way. A node that has lost
/// its owner passes it on as if the owner lived: the sender keeps its count until the receiver
/// says that it has the ref. So some node has a record as long as a ref is left, even one on its
/// way. A keeper of a copy can therefore ask all nodes whether the object is still held.
///
/// Invariants: REF-1 An object with a holder is never freed. Exception: the only node that had
/// passed it on (possibly to the owner) died before the owner knew; the object is then lost and
/// ends in an error. REF-2 A dead process or node holds nothing. REF-3 Every Await is answered
/// once, with the value or an error; only the Await of an imported object that its asker has
/// released may stay unanswered.
#pragma once

#include "troupe/runtime/wire/messages.hpp"

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace troupe::agent {

inline constexpr ProcessIndex kSelf;  ///< the agent: refs inside values that it owns

class ReferenceTable {
 public:
  /// The table's effects. An implementation must not call into the table, except owner_of().
  class Out {
   public:
    virtual ~Out() = default;
    /// Answers an await. The refs inside are counted for the process already. If `process` is a
    /// node, the implementation sends a shared value as `remote`; refs inside that the receiving
    /// node owns are not counted.
    virtual void ready(ProcessIndex process, ObjectId object, const wire::Value& value,
                       BlobView payload) = 0;
    virtual void free(const wire::Location& location) = 0;
    /// No handle of this actor is left anywhere.
    virtual void unreferenced(ActorId actor) = 0;
    /// Sends PeerHold to the node `to`; kSelf as `holder` means this node.
    virtual void peer_hold(ProcessIndex /*to*/, ObjectId /*object*/, ProcessIndex /*holder*/,
                           std::int32_t /*delta*/) {}
    /// Sends PeerAwait to the owner; at most once as long as the ref is imported and its owner
    /// lives. The owner is dead only with keep_copies() or has_copies(): the implementation then
    /// looks for a copy and answers with ready_from_owner(), with an error if it finds none.
    virtual void peer_await(ProcessIndex /*owner*/, ObjectId /*object*/) {}
    /// Fetches the bytes of an imported object; called once, until pulled() or pull_failed(). The
    /// owner is dead, or this node (kSelf), only with keep_copies() or has_copies(): fetches the
    /// bytes of a copy then.
    virtual void pull(ProcessIndex /*owner*/, ObjectId /*object*/, std::uint64_t /*bytes*/) {}
    /// Sends Rebuild to the process that made the object. Answered by rebuilt(), or by the death
    /// of that process.
    virtual void rebuild(ProcessIndex /*maker*/, ObjectId /*object*/, ObjectId /*lost*/) {}
    /// Sends PeerRebuild to the owner. Answered by ready_from_owner(), or by the owner's death.
    virtual void peer_rebuild(ProcessIndex /*owner*/, ObjectId /*object*/, ObjectId /*lost*/) {}
    /// No holder is left of an object for which the process `maker` keeps lineage (kSelf: of an
    /// object that a kept call made).
    virtual void lineage_over(ProcessIndex /*maker*/, ObjectId /*object*/) {}
    /// With keep_copies(): another node holds an object of this node whose value is known, or
    /// holds a value that names the object. held_remotely() gives the value. May be called
    /// repeatedly.
    virtual void wants_copy(ObjectId /*object*/) {}
    /// With keep_copies(): that object, or this value of it, has ended.
    virtual void copy_over(ObjectId /*object*/) {}
    /// No holder is left of an object of this node that has copies at other nodes (has_copies()).
    virtual void copies_over(ObjectId /*object*/) {}
    /// An object that has copies is named at this node, which had no record of it.
    virtual void met(ObjectId /*object*/) {}
    /// Asks for another process to compute the object again: a kept call made it, and its maker
    /// has ended. Answered by entrust() and a Rebuild to that process, or by gone(). `lost` is as
    /// in rebuild().
    virtual void orphaned(ObjectId /*object*/, ObjectId /*lost*/) {}
  };

  explicit ReferenceTable(Out& out) : out_(out) {}
  /// Lets values outlive their owner: nodes keep copies. Precondition: nothing else was called
  /// yet.
  void keep_copies() { copies_ = true; }
  /// Sets the test of whether bytes of this node are readable, as far as is known. A rebuild() of
  /// an object whose present bytes pass it is answered with those. Without it, every rebuild()
  /// drops the present bytes. Precondition: nothing else was called yet.
  void ask_of_bytes(std::function<bool(const wire::Location&)> is_good) {
    is_good_ = std::move(is_good);
  }

  // --- from processes of this node

  /// Takes over the sender's record. The table counts the refs inside, and the sender holds one
  /// count. If the value is pending, the sender calls fulfil() later.
  void promote(ProcessIndex from, ObjectId object, const wire::Value& value, BlobView payload);
  void fulfil(ObjectId object, const wire::Value& value, BlobView payload);
  /// Changes a holder's count. `by` is the process that asks for it (kSelf: the agent). Counts
  /// that `by` takes for a node belong to `by` until export_to(); its death before that returns
  /// them.
  void hold(ObjectId object, ProcessIndex process, std::int32_t delta, ProcessIndex by = kSelf);
  /// Asks for the value; ready() answers. Without `fetch`, a large value at another node is
  /// answered as `remote`, without the refs inside. For a PeerAwait, `process` is the index of the
  /// node.
  void await(ObjectId object, ProcessIndex process, bool fetch = true);
  /// Reports that the bytes to which the object's value led are gone: those of `lost`, which is
  /// the object itself or the one it was forwarded to. The process is answered as by await() with
  /// `fetch`: after the maker's rebuilt(), or at once if the value leads elsewhere meanwhile.
  /// Other nodes ask so too, even about an object that this node imports: this node had lost its
  /// owner when it passed the ref on.
  void rebuild(ObjectId object, ProcessIndex process, ObjectId lost);
  /// Replaces the object's value. It has no effect unless `from` is the object's maker.
  void rebuilt(ProcessIndex from, ObjectId object, const wire::Value& value, BlobView payload);
  /// Asks for lineage_over() to the maker `from` when the object has no holder any more; at once
  /// if the object is gone.
  void keeps_lineage(ProcessIndex from, ObjectId object);
  /// Notes that a call which the agent keeps made the object (see LineageCache). Returns false
  /// when the object is gone or `from` is not its maker.
  bool made_by_kept_call(ProcessIndex from, ObjectId object);
  /// Puts the process in the place of the object's maker, which has ended. Returns false when the
  /// object is gone or has a maker.
  bool entrust(ObjectId object, ProcessIndex process);
  /// The process that made the object or has taken the maker's place, if it lives.
  std::optional<ProcessIndex> maker_of(ObjectId object) const;
  /// Notes that nodes without a count may find the object: with keep_copies(), a copy is wanted as
  /// if a node held it.
  void may_be_found(ObjectId object);
  /// Ends the object in the error, since no process can compute it again.
  void gone(ObjectId object, const Error& why);
  /// Makes the object stand for an actor: it is never ready, and its end is unreferenced().
  void stands_for(ObjectId lifetime, ActorId actor, ProcessIndex creator);
  /// Removes the counts of the process; the objects that it was to fulfil end in the error.
  /// Precondition: everything that it published has been read.
  void process_died(ProcessIndex process, const Error& reason);
  /// Forgets a process that has died. Precondition: no later call names it.
  void forget(ProcessIndex process) { dead_.erase(process); }

  /// Notes that the node takes this node for the owner of an imported object whose own owner is
  /// dead. The node is not counted for it.
  void stands_in(ObjectId object, ProcessIndex node) { note_orphan(object, node); }

  // --- from other nodes. Messages from a dead node change nothing.

  /// Makes this index a node. Precondition: no other call has named it.
  void add_node(ProcessIndex node) { nodes_.insert(node); }
  /// Notes that a ref leaves for this node in a message that is sent next, and returns the owner
  /// to name in that message (kSelf: this node). `by` has counted or will count the node by
  /// hold(). If the message is dropped instead, the caller calls hold(object, to, -1, by) for each
  /// ref.
  ProcessIndex export_to(ObjectId object, ProcessIndex to, ProcessIndex by = kSelf);
  /// Records a ref of `owner` (kSelf: this node) that arrived from the node `from`, which called
  /// export_to() for it. The caller then calls hold() for the receiver. The call is necessary even
  /// when no process wants the ref any more, since it releases the sender's count. If `from` is
  /// kSelf, the ref came from control, and nobody counts this node for it yet.
  void import_from(ObjectId object, ProcessIndex owner, ProcessIndex from);
  /// Handles a PeerHold; kSelf as `holder` means this node. If `holder` is a third party, +1 says
  /// that `holder` has passed a ref of this node's object on to `from`. -1 says that `from` counts
  /// this node for a ref that `holder` passed on to it, or that `holder` counts `from` for a ref
  /// that this node passed on to `from`.
  void peer_hold(ProcessIndex from, ObjectId object, ProcessIndex holder, std::int32_t delta);
  /// Answers the node at once by ready() under the id `name`: with the object's value, or with an
  /// error if the value is not here.
  void tell_as(ObjectId object, ObjectId name, ProcessIndex node);
  /// Handles a PeerReady. Precondition: import_from() was called for its refs.
  void ready_from_owner(ProcessIndex from, ObjectId object, const wire::Value& value,
                        BlobView payload);
  /// Ends a pull with bytes. The table owns the location from now on.
  void pulled(ObjectId object, const wire::Location& location);
  /// Ends a pull without bytes. Processes that wait for the bytes get the error, unless the bytes
  /// can be computed again; a later await pulls again.
  void pull_failed(ObjectId object, const Error& error);
  /// Ends the node as holder and as owner. Waits for its objects end in object_lost with the
  /// reason as cause; values that are here stay good. When more than kMostDeadNodes are dead,
  /// forgets the oldest and returns it: a later mention of that node gets another index.
  std::optional<ProcessIndex> node_died(ProcessIndex node, const Error& reason);

  /// Frees what has had no holder since the last call. Returns true when another call may free
  /// more. Precondition: everything published before the last input has been read.
  bool settle();

  /// The node that owns the object; nullopt when this node owns it or does not know it.
  std::optional<ProcessIndex> owner_of(ObjectId object) const;
  /// Whether refs to objects of this node are held here.
  bool imports_from(ProcessIndex node) const { return imported_.count(node) != 0; }
  /// The value of a ready object for the agent's own use (an actor's constructor, bytes that others
  /// pull), or nullptr.
  const wire::Value* value_of(ObjectId object) const;
  /// The value of a ready object of this node that another node holds, or may find inside a value
  /// that it holds; else null. A copy carries this value.
  struct HeldValue {
    const wire::Value* value = nullptr;
    BlobView payload;
  };
  HeldValue held_remotely(ObjectId object) const;
  /// The value of a ready object of any owner; else null.
  HeldValue held_here(ObjectId object) const;
  bool knows(ObjectId object) const { return records_.count(object) != 0; }
  /// Whether it was promoted here, stands for an actor, or is imported: not merely counted.
  bool is_made(ObjectId object) const;
  /// Whether this node owns the object and another process than `who` made it.
  bool is_anothers(ObjectId object, ProcessIndex who) const;
  bool is_node(ProcessIndex index) const { return nodes_.count(index) != 0; }
  /// Whether the index is a node or process that has died and is not forgotten.
  bool is_dead(ProcessIndex index) const { return dead_.count(index) != 0; }
  std::size_t size() const noexcept { return records_.size(); }
  /// Dead nodes and refs without an owner that are remembered. At most kMostDeadNodes (plus the
  /// owners of what is held here) and kMostOrphans.
  std::size_t dead_nodes() const noexcept { return dead_in_order_.size(); }
  std::size_t orphans() const noexcept { return orphans_.size() + older_orphans_.size(); }
  static constexpr std::size_t kMostDeadNodes = 4096;
  static constexpr std::size_t kMostOrphans = 65'536;
  /// A record as observers see it. Its references are into the table, valid during the call.
  struct Seen {
    ObjectId object;
    const wire::Value& value;
    bool ready = false;
    ProcessIndex owner = kSelf, producer;
    const std::map<ProcessIndex, std::int64_t>& holders;
  };
  /// Visits each known object, in order of their ids; skips lifetime objects. O(records).
  void each(const std::function<void(const Seen&)>& look_at) const;
  /// Sum of all counts, for invariants.
  std::int64_t total_holds() const;
  /// Counts that the process took for nodes and whose frames have not left. It is the number of
  /// refs in frames that the process has written and the agent has not read.
  std::int64_t unsent(ProcessIndex by) const;
  /// The same for one object and one receiving node.
  std::int64_t unsent(ProcessIndex by, ProcessIndex node, ObjectId object) const;

 private:
  struct Waiting {
    ProcessIndex process;
    bool fetch = true;
  };
  struct Record {
    wire::Value value;
    Blob payload;
    ProcessIndex owner = kSelf;  ///< a node, for an imported one
    bool known = false;          ///< promoted here or imported (counts may come first)
    bool ready = false;
    bool asked = false;        ///< imported: PeerAwait was sent to the owner
    bool pulling = false;      ///< imported: the bytes are on their way
    bool again = false;        ///< the bytes on their way replace a copy that was bad
    bool has_lineage = false;  ///< the producer gets lineage_over() at its end
    bool kept = false;         ///< the agent keeps the call that made it
    bool reachable = false;    ///< keep_copies(): a value that another node holds may name it
    ObjectId lost{};           ///< the argument `lost` of the last rebuild()
    ProcessIndex producer;
    bool producer_ended = false;  ///< the producer has died, and none has taken its place
    ActorId actor;
    std::map<ProcessIndex, std::int64_t> holders;  ///< none is zero
    std::vector<Waiting> waiting;
    bool aged = false;  ///< without holders when settle() was called last
  };
  bool outlives_owner(ObjectId object) const;
  static bool takes_us_for_owner(const Record& record, ProcessIndex asker);
  Record& record_of(ObjectId object);
  void drop_value(Record& record);
  void pull_again(ObjectId object, Record& record);
  void make_again(ObjectId object, Record& record);
  void set_value(ObjectId object, Record& record, const wire::Value& value, BlobView payload);
  void want_copies(ObjectId object, const Record& record);
  void answer_waiting(ObjectId object, Record& record);
  void answer(ObjectId object, Record& record, const Waiting& to);
  void answer_error(ObjectId object, ProcessIndex process, const wire::Value& error);
  void count(ObjectId object, Record& record, ProcessIndex process, std::int64_t delta);
  void touch(ObjectId object, Record& record);
  void drop_counts(ProcessIndex process);
  void note_passing(ObjectId object, ProcessIndex to, ProcessIndex by, std::int64_t delta);
  void return_unsent(ProcessIndex by);
  void owner_died(ProcessIndex node, const wire::Value& lost);
  void forget_passed_on(ProcessIndex owner);
  bool ends_here(ObjectId object, ProcessIndex to) const;
  static bool stays_counted(ObjectId object);
  bool was_passed_on(ObjectId object, const Record& record, ProcessIndex to) const;
  void note_orphan(ObjectId object, ProcessIndex to);
  bool is_orphan(ObjectId object) const;
  bool was_imported(ObjectId object) const;
  std::optional<ProcessIndex> forget_oldest_death();
  void hold_inner(const wire::Value& value);
  void drop_inner(const wire::Value& value);
  void let_go(const wire::Value& value);
  void release(ObjectId object, const Record& record);
  void settle_early();
  bool relieve(ProcessIndex owner, ProcessIndex sender, ObjectId object);
  void relieve_all(ProcessIndex owner);
  bool has_remote_holders(const Record& record) const;
  void look_for_copy(ObjectId object, Record& record);

  Out& out_;
  bool copies_ = false;
  std::function<bool(const wire::Location&)> is_good_;
  std::map<ObjectId, Record> records_;
  std::map<ProcessIndex, std::set<ObjectId>> held_by_;
  std::map<ProcessIndex, std::size_t> imported_;  ///< by owner, how many; none is zero
  std::set<ProcessIndex> nodes_;
  /// The dead. For a node, the error in which waits for its objects end. For a process null, until
  /// forget().
  std::map<ProcessIndex, std::shared_ptr<const ErrorInfo>> dead_;
  /// By process: the counts that it took for nodes, less the refs that have left for them.
  std::map<ProcessIndex, std::map<std::pair<ProcessIndex, ObjectId>, std::int64_t>> passing_;
  /// By owner: refs that other nodes passed on to this one and for which the owner has not yet
  /// confirmed its count, with the node that sent each. Entries of one object are in the order of
  /// the PeerHolds to the owner. kSelf as sender: the sender has died.
  std::map<ProcessIndex, std::multimap<ObjectId, ProcessIndex>> passed_by_;
  std::deque<ProcessIndex> dead_in_order_;  ///< the nodes of dead_
  /// By receiver: refs whose owner this node had lost when they left, so that the receiver may
  /// take this node for the owner. No message ends such an entry. The older half is therefore
  /// dropped when there are too many; a later PeerHold of such a receiver makes a record that
  /// stays until the receiver dies.
  std::set<std::pair<ProcessIndex, ObjectId>> orphans_, older_orphans_;
  std::set<ObjectId> candidates_;
  /// An Await that was read before the Promote it depends on. It waits for one more pass and is
  /// then answered with an error.
  struct Early {
    ObjectId object;
    Waiting who;
    bool aged = false;
  };
  std::vector<Early> early_;
};

}  // namespace troupe::agent
