/// Which objects of other nodes are fetched when: the pulling side of transfers. A plain state
/// machine.
///
/// An object of another node waits, is given memory (*reserved*), is asked for, and arrives: small
/// ones (up to kSmallObject) in a message of the Link, larger ones over the bulk connection of its
/// node. The shell carries out actions and tells what became of them.
///
///     plan.pull(node, object, bytes, Priority::get, now);
///     while (auto actions = plan.take_actions(); !actions.empty())
///       for (auto& action : actions) carry_out(action);      // Reserve: plan.reserved(...) ...
///     plan.arrived(transfer, bytes, now);                       // a PullData
///     plan.received(node, connection, object, now);             // over the bulk connection
///     plan.on_tick(now);                                        // at next_deadline()
///
/// A lost connection, or one on which no byte came for `silence`, is closed; only when its thread
/// has let go of all memory (connection_ended()) are its objects asked for again, from the byte on
/// that is missing, or given up: after `attempts` that brought nothing.
///
/// The owner may name another node (elsewhere()), which has the object or is getting it. If that
/// one does not deliver, the owner is asked again; after `detours` of these it is asked to send
/// itself.
///
/// Who asks for what is about to fail (its node died, or broke the protocol, or it had another
/// size) does not get that error: it is fetched anew once its memory is free, once per pull().
///
/// Invariants: FETCH-1 every pull ends in one Complete or one Failed. FETCH-2 reserved memory ends
/// in one Complete or one Discard, and never while a connection may write into it. FETCH-3 bytes
/// reserved stay within the bounds, but for one object that is larger than they are. FETCH-4 there
/// is at most one connection per node. FETCH-5 what is asked for from a byte on is of the life of
/// the object that the bytes before it are of.
#pragma once

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/error.hpp"
#include "troupe/runtime/base/ids.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace troupe::agent {

inline constexpr std::uint64_t kSmallObject = 256 << 10;  ///< larger ones go over bulk

/// Gets go before waits, waits before prefetches, each in the order of asking.
enum class Priority : std::uint8_t { get = 0, wait = 1, prefetch = 2 };

struct PlanOptions {
  std::uint64_t link_bytes = 4u << 20;    ///< small objects under way from one node
  std::uint64_t link_objects = 256;       ///< and how many
  std::uint64_t node_bytes = 128u << 20;  ///< reserved for large objects of one node
  std::uint64_t all_bytes = 512u << 20;   ///< reserved for large objects in all
  Duration silence{
      std::chrono::seconds(10)};            ///< a node that sends nothing for so long is given up
  Duration idle{std::chrono::seconds(30)};  ///< an unused connection is closed
  Duration patience{std::chrono::seconds(5)};     ///< how long a pull waits for memory
  Duration pause{std::chrono::milliseconds(50)};  ///< between two tries to get it
  int attempts = 2;
  int detours = 3;
};

class TransferPlan {
 public:
  // What the shell is to do, in this order.
  /// Get memory for this object; the answer is reserved() or no_memory(), now or later.
  struct Reserve {
    std::uint64_t pull = 0;
    std::uint64_t bytes = 0;
  };
  /// Open the door for a new bulk connection from this node and send it the BulkOffer.
  struct Offer {
    NodeId node;
    std::uint64_t connection = 0;
  };
  /// Send PullRequest{transfer, object}. connection: 0 for a small object; else its bytes go into
  /// the pull's memory when they come over that connection.
  struct Ask {
    NodeId node;
    std::uint64_t connection = 0;
    std::uint64_t transfer = 0;
    std::uint64_t pull = 0;
    ObjectId object;
    std::uint64_t have = 0;   ///< its bytes that are there, as kept() said
    std::uint64_t stamp = 0;  ///< of those
    NodeId without{};         ///< was named and did not deliver
    bool direct = false;      ///< no other node may be named
  };
  /// Close it; then say connection_ended(), when no thread touches the memory of its pulls any
  /// more.
  struct Close {
    NodeId node;
    std::uint64_t connection = 0;
    std::string why;
  };
  /// All bytes are there: seal the memory and report it; or, if nobody wants it, drop it.
  struct Complete {
    std::uint64_t pull = 0;
    NodeId node;
    ObjectId object;
    bool wanted = true;
  };
  /// Give the memory back.
  struct Discard {
    std::uint64_t pull = 0;
  };
  /// Report it. Follows its Discard.
  struct Failed {
    NodeId node;
    ObjectId object;
    Error error;
  };
  using Action = std::variant<Reserve, Offer, Ask, Close, Complete, Discard, Failed>;

  explicit TransferPlan(PlanOptions options = {}) : options_(options) {}

  /// Fetch this object from its owner. An object that is being fetched already is not fetched
  /// twice: its one end counts for both, and the higher priority holds.
  void pull(NodeId from, ObjectId object, std::uint64_t bytes, Priority priority, Time now);
  /// Nobody wants it any more: if its bytes are on their way they are dropped when they come. No
  /// report follows. Nothing happens when it is not being fetched.
  void cancel(ObjectId object, Time now);
  /// What is under way from it ends in ObjectLost; with `for_ever` all that is asked later too.
  void node_died(NodeId node, bool for_ever, Time now);

  // Answers to Reserve.
  void reserved(std::uint64_t pull, Time now);
  void no_memory(std::uint64_t pull, const Error& error, Time now);
  /// There may be some now: those who had none need not wait until they try again.
  void memory_came(Time now);

  // Messages. Of transfers that are not under way nothing is believed: they are late.
  /// The pull whose memory takes a PullData of this transfer that says `bytes`; 0: drop it.
  std::uint64_t expects(NodeId from, std::uint64_t transfer, std::uint64_t bytes) const;
  /// A PullData with everything in it has been copied into the pull's memory, or does not fit.
  void arrived(NodeId from, std::uint64_t transfer, bool fits, Time now);
  void on_bulk(NodeId from, std::uint64_t transfer, std::uint64_t bytes, Time now);
  /// `busy`: its memory is being written all the same.
  void refused(NodeId from, std::uint64_t transfer, const Error& error, Time now,
               bool busy = false);
  /// The owner names another node.
  void elsewhere(NodeId from, std::uint64_t transfer, NodeId node, Time now, bool busy = false);
  /// The large pull behind a transfer that is under way; 0: none.
  std::uint64_t large(NodeId from, std::uint64_t transfer) const;
  /// Whether such a refusal takes a large pull off its connection, rather than end that.
  bool takes_off(NodeId from, std::uint64_t transfer, const Error& error) const;

  // Connections. One that is not the node's current one is ignored.
  /// Bytes came over it at that time.
  void heard(NodeId node, std::uint64_t connection, Time at);
  /// An object of a pull has arrived whole.
  void received(NodeId node, std::uint64_t connection, std::uint64_t pull, Time now);
  /// So many of a pull's bytes are there and were checked, of the life of the object that the stamp
  /// names. Said before what ends its being asked for.
  void kept(std::uint64_t pull, std::uint64_t bytes, std::uint64_t stamp);
  /// It is gone, whoever ended it, and nothing touches the memory of its pulls.
  void connection_ended(NodeId node, std::uint64_t connection, const Error& why, Time now);

  void on_tick(Time now);
  Time next_deadline() const;
  std::vector<Action> take_actions() { return std::exchange(actions_, {}); }

  // Observe.
  std::size_t pulls() const noexcept { return pulls_.size(); }
  std::uint64_t reserved_bytes() const noexcept { return reserved_; }
  /// Broken invariants as text; empty when there are none. O(pulls).
  std::string check() const;

 private:
  enum class State : std::uint8_t {
    waiting,    ///< in its lane
    reserving,  ///< Reserve was said
    ready,      ///< has memory and waits for a connection
    asked,      ///< Ask was said
  };
  /// By priority, then in the order of asking (for memory: of the last try).
  using Place = std::pair<Priority, std::uint64_t>;
  /// What was asked for while the pull was about to fail.
  struct Again {
    NodeId from;
    std::uint64_t bytes = 0;
    Priority priority = Priority::get;
  };
  struct Pull {
    NodeId node;    ///< its owner
    NodeId source;  ///< who is asked: the owner, or whom it named
    ObjectId object;
    std::uint64_t bytes = 0;
    Priority priority = Priority::get;
    std::uint64_t order = 0;
    State state = State::waiting;
    bool wanted = true;
    bool has_memory = false;
    bool gone = false;  ///< its node died, or what was said to it is lost
    std::uint64_t transfer = 0;
    std::uint64_t have = 0, stamp = 0;
    std::uint64_t had_then = 0;       ///< when it was asked
    std::uint64_t finished_then = 0;  ///< the connection's count then
    int lost = 0;                     ///< attempts that ended without any progress
    int detours = 0;                  ///< nodes that were named and did not deliver
    NodeId without{};                 ///< the last of them
    std::optional<Error> broken;      ///< its node broke the protocol: no other attempt
    std::optional<Again> again;
    Time asked{};
    Time give_up = Time::max();  ///< without memory until then it fails
    bool small() const noexcept { return bytes <= kSmallObject; }
    Place place() const noexcept { return {priority, order}; }
  };
  struct Lane {
    std::map<Place, std::uint64_t> waiting;
    std::uint64_t running = 0;  ///< pulls that hold a share of it
    std::uint64_t bytes = 0;    ///< of those
    Time retry_at{};            ///< memory ran out: no Reserve before
  };
  struct Connection {
    std::uint64_t number = 0;  ///< 0: none
    bool closing = false;
    std::string why;             ///< of closing
    std::uint64_t finished = 0;  ///< objects that came over it
    Time heard{};                ///< a byte came, or it had nothing to do until then
    Time idle_since{};           ///< when it has nothing to do
    std::set<std::uint64_t> pulls;
  };
  struct Node {
    Lane link, bulk;
    std::set<std::uint64_t> asked;  ///< transfers in the link lane, oldest first
    Time heard{};                   ///< the last answer over the Link
    std::map<Place, std::uint64_t> ready;
    Connection connection;
  };

  Lane& lane(const Pull& pull);
  Pull* under_way(NodeId from, std::uint64_t transfer);
  void schedule(Time now);
  bool start_small(Node& node, Time now);
  bool start_large(Time now);
  void start(std::uint64_t number);
  void ask(std::uint64_t number, std::uint64_t connection, Time now);
  void ask_ready(NodeId id, Time now);
  void take_off(std::uint64_t number, Time now);
  void broken(std::uint64_t number, const std::string& why, Time now);
  void close(NodeId id, const std::string& why);
  void lose(std::uint64_t number, const Error& why, Time now);
  void join(std::uint64_t number, NodeId from, std::uint64_t bytes, Priority priority);
  void raise(std::uint64_t number, Priority priority);
  void add(NodeId from, ObjectId object, std::uint64_t bytes, Priority priority);
  void make_ready(std::uint64_t number, NodeId source);
  void back_to_owner(std::uint64_t number);
  void complete(std::uint64_t number);
  void fail(std::uint64_t number, const Error& error);
  void leave_lane(const Pull& pull);
  void erase(std::uint64_t number);
  void tick_node(NodeId id, Time now);
  void tidy(NodeId id);
  Time deadline_of(const Node& node) const;

  PlanOptions options_;
  std::map<NodeId, Node> nodes_;
  std::set<NodeId> dead_;  ///< for ever
  std::map<std::uint64_t, Pull> pulls_;
  std::map<ObjectId, std::uint64_t> by_object_;
  std::map<std::uint64_t, std::uint64_t> by_transfer_;
  std::uint64_t next_pull_ = 1, next_order_ = 1, next_transfer_ = 1, next_connection_ = 1;
  std::uint64_t reserved_ = 0;  ///< by large pulls
  std::vector<Action> actions_;
};

}  // namespace troupe::agent
