/// The agent's reference table: every ref of this node that has left its process, whether this
/// node owns the object or imports it from another. A plain state machine.
///
/// Holders are counted one by one: processes of this node, the agent itself (refs inside values)
/// and other nodes, each by its ProcessIndex. A sender registers the receiver before it publishes
/// the message that carries the ref; but rings and links are read in any order, so a count may be
/// zero or negative for a moment. An object is therefore freed only when *every* holder is at zero
/// (not the sum) and was already when settle() was called last.
///
///     references.hold(object, process, +1);
///     references.settle();  // after every ring was drained: frees what nobody has held since
///                       // the last settle()
///
/// Why every holder's zero is enough: take the earliest +1, in causal order, that has not been
/// read. Who sent it held the object then, so its own counts, all earlier, are read, and they are
/// one more than what it has given back.
///
/// Between nodes: an imported object is counted here holder by holder, and the whole node once at
/// the owner. Whoever passes a ref on keeps it until the receiver's count has reached the owner:
///
///     owner → node          the owner counts the node itself; a node that had the ref already
///                           returns the surplus
///     node → node           the sender's process counts the receiving node with its own agent; the
///                           receiver tells the owner (peer_hold with holder = the sender), which
///                           counts it and says so (the same with delta = -1); then, or when the
///                           owner is lost to it, the receiver tells the sender (peer_hold with
///                           holder = the owner), which lets go of that count
///     node → owner          nothing: the frame itself comes before the sender's release
///
/// So a node that dies takes its own counts along and nothing else: no count is lost, and none
/// stays that nobody will return. (Reference listing after Birrell et al., Network Objects, 1993,
/// with the dirty call's acknowledgement passed on to the sender.)
///
/// A value can be lost after it was known: its bytes were another node's, or a copy on disk has
/// gone bad. Who misses them says rebuild(); the value is then unknown once more, and whoever made
/// the object, the only one who can compute it again, says what it is now. Two who ask at once
/// cause one such question. An importer whose own copy is bad first fetches another from the owner,
/// whose bytes are good for all that is known; when the owner refuses them as lost, it asks that
/// one. When whoever made it has ended, another process takes its place if the call is kept
/// (lineage_cache.hpp). Who says so late, of bytes that others have replaced, costs no good ones:
/// ask_of_bytes().
///
/// Where nodes keep copies of what others hold (keep_copies()), the death of an owner leaves open
/// what was not known here: peer_await() and pull() then ask for its copy, and the answers come as
/// its own would have. An owner whose own bytes have gone bad reads its copy, too, before it asks
/// whoever made the object. A copy holds the refs inside by their names only: what of that we own
/// has copies as well, what others own may be gone with the dead owner's counts, and says so.
///
/// An object whose id says has_copies() outlives its owner in the same way. While its owner is lost
/// to us it is passed on as if that lived: the sender keeps its count until the receiver says that
/// it has the ref. So as long as a ref is left, be it on its way, some node has a record of it:
/// whoever keeps a copy can ask.
///
/// Invariants: REF-1 an object with a holder is never freed, unless the only node that had passed
/// it on, to the owner maybe, died before the owner knew of that: then it is lost, and says so.
/// REF-2 the dead hold nothing. REF-3 every Await is answered once: with the value, or an error;
/// only the Await of an imported object that its asker has let go of may go without.
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

/// A process of this node, a process of another node that this agent stands in for, or another
/// node as a whole; one counter gives them all out, and none is ever used again.
using ProcessIndex = std::uint64_t;
inline constexpr ProcessIndex kSelf = 0;  ///< the agent: refs inside values that it owns

class ReferenceTable {
 public:
  /// What follows; must not call back in, but for owner_of().
  class Out {
   public:
    virtual ~Out() = default;
    /// The refs inside are counted for the process. To a node (`process` is its index) a shared
    /// value goes as `remote`; refs inside that the receiver owns are not counted.
    virtual void ready(ProcessIndex process, ObjectId object, const wire::Value& value,
                       BlobView payload) = 0;
    virtual void free(const wire::Location& location) = 0;
    /// No handle of this actor is left anywhere.
    virtual void unreferenced(ActorId actor) = 0;
    /// PeerHold to this node; a holder that is kSelf is this node.
    virtual void peer_hold(ProcessIndex /*to*/, ObjectId /*object*/, ProcessIndex /*holder*/,
                           std::int32_t /*delta*/) {}
    /// PeerAwait to the owner; at most once as long as the ref is imported and its owner lives. To
    /// a dead one only with keep_copies() or has_copies(): ready_from_owner() is to answer, with an
    /// error if need be.
    virtual void peer_await(ProcessIndex /*owner*/, ObjectId /*object*/) {}
    /// The bytes of an imported object are wanted; once, until pulled() or pull_failed(). Of a dead
    /// owner, or of this node (kSelf), only with keep_copies() or has_copies(): those of its copy.
    virtual void pull(ProcessIndex /*owner*/, ObjectId /*object*/, std::uint64_t /*bytes*/) {}
    /// Rebuild to the process that made the object; answered by rebuilt(), or its death.
    virtual void rebuild(ProcessIndex /*maker*/, ObjectId /*object*/, ObjectId /*lost*/) {}
    /// PeerRebuild to the owner; answered by ready_from_owner(), or its death.
    virtual void peer_rebuild(ProcessIndex /*owner*/, ObjectId /*object*/, ObjectId /*lost*/) {}
    /// Nobody holds any more what the process kept lineage for; kSelf: what a kept call made.
    virtual void lineage_over(ProcessIndex /*maker*/, ObjectId /*object*/) {}
    /// With keep_copies(): another node holds an object of ours whose value is known, or one that
    /// names it: held_remotely(); may be said again.
    virtual void wants_copy(ObjectId /*object*/) {}
    /// With keep_copies(): that object, or this value of it, is no more.
    virtual void copy_over(ObjectId /*object*/) {}
    /// Nobody holds an object of ours any more that has copies at other nodes (has_copies()).
    virtual void copies_over(ObjectId /*object*/) {}
    /// An object that has copies is named here, where it was unknown.
    virtual void met(ObjectId /*object*/) {}
    /// A kept call made the object, whose maker has ended: somebody else is to compute it again.
    /// Answered by entrust() and a Rebuild to that one, or by gone(). `lost` as in rebuild().
    virtual void orphaned(ObjectId /*object*/, ObjectId /*lost*/) {}
  };

  explicit ReferenceTable(Out& out) : out_(out) {}
  /// Values may outlive their owner. Before anything else.
  void keep_copies() { copies_ = true; }
  /// Says whether bytes of this node can be read, as far as is known: who misses those that were
  /// there before them is told of these. Before anything else; without it everybody is believed.
  void ask_of_bytes(std::function<bool(const wire::Location&)> is_good) {
    is_good_ = std::move(is_good);
  }

  // --- from processes of this node

  /// The sender's record becomes ours, which counts the refs inside; the sender holds one count.
  /// For a pending one the sender will fulfil it.
  void promote(ProcessIndex from, ObjectId object, const wire::Value& value, BlobView payload);
  void fulfil(ObjectId object, const wire::Value& value, BlobView payload);
  /// `by`: the process that says so (kSelf: the agent). What it has counted for a node is its own
  /// until export_to(), so that it can be returned at its death.
  void hold(ObjectId object, ProcessIndex process, std::int32_t delta, ProcessIndex by = kSelf);
  /// Answered by ready(). Without `fetch` a large value at another node is answered as `remote`,
  /// without the refs inside. From other nodes: PeerAwait, with the node's index.
  void await(ObjectId object, ProcessIndex process, bool fetch = true);
  /// The bytes to which its value led are gone: those of the object `lost` that it was forwarded
  /// to, or its own. Answered as an await with `fetch`, once whoever made it has said rebuilt(); at
  /// once when its value leads elsewhere meanwhile. A node asks so, too, also of what we import: we
  /// had lost its owner when we passed it on.
  void rebuild(ObjectId object, ProcessIndex process, ObjectId lost);
  /// Its value from here on, whatever it was before: only whoever made it says so.
  void rebuilt(ProcessIndex from, ObjectId object, const wire::Value& value, BlobView payload);
  /// Whoever made it wants to hear when nobody holds it any more.
  void keeps_lineage(ProcessIndex from, ObjectId object);
  /// A call that the agent keeps made the object (see LineageCache). False: it is gone, or not the
  /// process's.
  bool made_by_kept_call(ProcessIndex from, ObjectId object);
  /// This process takes the place of the object's maker, which has ended. False: it is gone, or has
  /// a maker.
  bool entrust(ObjectId object, ProcessIndex process);
  /// Who made it, or has taken that one's place, if it lives.
  std::optional<ProcessIndex> maker_of(ObjectId object) const;
  /// Also by who holds none of it yet: with keep_copies() a copy is wanted as if a node held it.
  void may_be_found(ObjectId object);
  /// Nobody can compute it again.
  void gone(ObjectId object, const Error& why);
  /// The object stands for an actor: it is never ready, and its end is unreferenced().
  void stands_for(ObjectId lifetime, ActorId actor, ProcessIndex creator);
  /// Counts of the process go; what it was to fulfil ends in the error. Precondition: all that it
  /// published has been read.
  void process_died(ProcessIndex process, const Error& reason);
  /// Nothing that comes from here on names it, a process that has died.
  void forget(ProcessIndex process) { dead_.erase(process); }

  /// The node takes us for the owner of what we import, whose own is dead: we count nobody for it.
  void stands_in(ObjectId object, ProcessIndex node) { note_orphan(object, node); }

  // --- from other nodes. What comes from a dead one changes nothing.

  /// This index is a node. Before anything else names it.
  void add_node(ProcessIndex node) { nodes_.insert(node); }
  /// A ref leaves for this node, in a message that is sent next; `by` has counted or will count the
  /// node by hold(). The owner, for the message; kSelf: this node. (A message that is dropped
  /// instead: hold(object, to, -1, by) for each ref.)
  ProcessIndex export_to(ObjectId object, ProcessIndex to, ProcessIndex by = kSelf);
  /// A ref of that owner (kSelf: ours) arrived from this node, which called export_to() for it;
  /// then hold() it for whoever gets it. Also when nobody wants it any more: that relieves the
  /// sender. `from` kSelf: nobody counts us, it came from control.
  void import_from(ObjectId object, ProcessIndex owner, ProcessIndex from);
  /// A PeerHold; holder kSelf: this node. With a third party as holder: +1, that one has passed a
  /// ref of ours on to `from`; -1, `from` counts us for a ref that the holder passed on to us, or
  /// is counted by the holder for a ref that we passed on to it.
  void peer_hold(ProcessIndex from, ObjectId object, ProcessIndex holder, std::int32_t delta);
  /// Answers the node at once, by ready() under the other name: what the object is, or that it is
  /// not known here.
  void tell_as(ObjectId object, ObjectId name, ProcessIndex node);
  /// A PeerReady. Precondition: import_from() was called for its refs.
  void ready_from_owner(ProcessIndex from, ObjectId object, const wire::Value& value,
                        BlobView payload);
  /// The location is ours from now on.
  void pulled(ObjectId object, const wire::Location& location);
  /// Those who wait for the bytes end in the error; a later await pulls again.
  void pull_failed(ObjectId object, const Error& error);
  /// As holder and as owner: what waits for its objects ends in object_lost with the reason as its
  /// cause; values that are here stay good. Returns one that died so many deaths ago that it is
  /// forgotten: who names it anew gives it another index.
  std::optional<ProcessIndex> node_died(ProcessIndex node, const Error& reason);

  /// Everything published before the last input has been read. Returns true when something may be
  /// freed by another call.
  bool settle();

  /// The node that owns it; nullopt: ours, or unknown.
  std::optional<ProcessIndex> owner_of(ObjectId object) const;
  /// Whether refs to objects of this node are held here.
  bool imports_from(ProcessIndex node) const { return imported_.count(node) != 0; }
  /// The value of a ready object for the agent's own use (an actor's constructor, bytes that others
  /// pull), or nullptr.
  const wire::Value* value_of(ObjectId object) const;
  /// A ready object of ours that some other node holds, or may find inside one that it holds, as a
  /// copy of it says it; else null.
  struct HeldValue {
    const wire::Value* value = nullptr;
    BlobView payload;
  };
  HeldValue held_remotely(ObjectId object) const;
  /// A ready object, whoever owns it; else null.
  HeldValue held_here(ObjectId object) const;
  bool knows(ObjectId object) const { return records_.count(object) != 0; }
  /// Whether it was promoted here, stands for an actor, or is imported: not merely counted.
  bool is_made(ObjectId object) const;
  /// Whether an object of ours is known to be of another's making.
  bool is_anothers(ObjectId object, ProcessIndex who) const;
  bool is_node(ProcessIndex index) const { return nodes_.count(index) != 0; }
  /// It is a node, or a process, that has died.
  bool is_dead(ProcessIndex index) const { return dead_.count(index) != 0; }
  std::size_t size() const noexcept { return records_.size(); }
  /// Dead nodes and refs without an owner that are remembered; no more than kMostDeadNodes (but for
  /// owners of what is held here) and kMostOrphans.
  std::size_t dead_nodes() const noexcept { return dead_in_order_.size(); }
  std::size_t orphans() const noexcept { return orphans_.size() + older_orphans_.size(); }
  static constexpr std::size_t kMostDeadNodes = 4096;
  static constexpr std::size_t kMostOrphans = 65'536;
  /// A record as observers see it; borrowed from the table.
  struct Seen {
    ObjectId object;
    const wire::Value& value;
    bool ready = false;
    ProcessIndex owner = kSelf, producer = 0;
    const std::map<ProcessIndex, std::int64_t>& holders;
  };
  /// Each known object, in order of their ids; an actor's lifetime is none. O(records).
  void each(const std::function<void(const Seen&)>& look_at) const;
  /// Sum of all counts, for invariants.
  std::int64_t total_holds() const;
  /// Of the counts that the process took for nodes, those whose frames have not left: as many as
  /// refs are in what it has written and nobody has read.
  std::int64_t unsent(ProcessIndex by) const;
  /// The same of one object, for this node.
  std::int64_t unsent(ProcessIndex by, ProcessIndex node, ObjectId object) const;

 private:
  struct Waiting {
    ProcessIndex process = 0;
    bool fetch = true;
  };
  struct Record {
    wire::Value value;
    Blob payload;
    ProcessIndex owner = kSelf;  ///< a node, for an imported one
    bool known = false;          ///< promoted here or imported (counts may come first)
    bool ready = false;
    bool asked = false;        ///< imported: the owner will tell us the value
    bool pulling = false;      ///< imported: the bytes are on their way
    bool again = false;        ///< and instead of a copy that was bad
    bool has_lineage = false;  ///< the producer wants to hear of its end
    bool kept = false;         ///< the agent keeps the call that made it
    bool reachable = false;    ///< with copies: from a node that holds a value of ours
    ObjectId lost{};           ///< what was missed when it was to be computed again
    ProcessIndex producer = 0;
    bool producer_ended = false;  ///< a process, and nobody has taken its place
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
  /// For nodes, what becomes of those who wait for its objects; else null, until forget().
  std::map<ProcessIndex, std::shared_ptr<const ErrorInfo>> dead_;
  /// By process: what it has counted for a node, less what has left.
  std::map<ProcessIndex, std::map<std::pair<ProcessIndex, ObjectId>, std::int64_t>> passing_;
  /// By owner: what others passed on to us, and the owner has not said that it counts us; of each
  /// object in the order in which the owner was told. kSelf: who did so has died.
  std::map<ProcessIndex, std::multimap<ObjectId, ProcessIndex>> passed_by_;
  std::deque<ProcessIndex> dead_in_order_;  ///< the nodes of dead_
  /// By receiver: refs whose owner we had lost when they left. It may take us for the owner. Nobody
  /// says when it does not any more, so the older half goes when there are too many: what such a
  /// receiver says then makes a record that stays until the receiver dies.
  std::set<std::pair<ProcessIndex, ObjectId>> orphans_, older_orphans_;
  std::set<ObjectId> candidates_;
  /// Awaits that were read before the Promote that they follow: one more pass, then they are
  /// answered with an error.
  struct Early {
    ObjectId object;
    Waiting who;
    bool aged = false;
  };
  std::vector<Early> early_;
};

}  // namespace troupe::agent
