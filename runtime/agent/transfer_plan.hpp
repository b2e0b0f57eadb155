/// The order in which objects of other nodes are fetched: the pulling side of Transfers. A plain
/// state machine.
///
/// An object of another node waits, is given memory (*reserved*), is asked for, and arrives. Small
/// objects (up to kSmallObject) arrive in a message of the Link, larger ones over the bulk
/// connection of their node. The caller (Transfers) carries out the plan's actions and reports
/// their results.
///
///     plan.pull(node, object, bytes, Priority::get, now);
///     while (auto actions = plan.take_actions(); !actions.empty())
///       for (auto& action : actions) carry_out(action);      // Reserve: plan.reserved(...) ...
///     plan.arrived(transfer, bytes, now);                       // a PullData
///     plan.received(node, connection, object, now);             // over the bulk connection
///     plan.on_tick(now);                                        // at next_deadline()
///
/// A connection that breaks, or on which no byte came for `silence`, is closed. Its objects wait
/// until its thread no longer uses their memory (connection_ended()). They are then asked for
/// again from the first missing byte on. An object fails after `attempts` that brought no byte.
///
/// The owner may name another node (elsewhere()) that has the object or is getting it. If that
/// node does not deliver, the owner is asked again. After `detours` such nodes the owner is asked
/// to send the object itself.
///
/// A pull() of an object whose fetch is about to fail does not end in that failure. (The node died
/// or broke the protocol, or the size differs.) The object is fetched anew when its memory is
/// free, once per pull().
///
/// Invariants: FETCH-1 Every pull ends in one Complete or one Failed. FETCH-2 Reserved memory ends
/// in one Complete or one Discard, and never while a connection may write into it. FETCH-3
/// Reserved bytes stay within the bounds, except for one object that is larger than they are.
/// FETCH-4 There is at most one connection per node. FETCH-5 An object that is asked for from a
/// byte on is of the same life as the bytes that are here.
#pragma once

#include "troupe/runtime/agent/transfer_ids.hpp"
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

/// Gets precede waits, and waits precede prefetches. Within one priority the order of pull()
/// holds.
enum class Priority : std::uint8_t { get = 0, wait = 1, prefetch = 2 };

struct PlanOptions {
  std::uint64_t link_bytes = 4u << 20;    ///< bytes of small objects under way from one node
  std::uint64_t link_objects = 256;       ///< small objects under way from one node
  std::uint64_t node_bytes = 128u << 20;  ///< reserved for large objects of one node
  std::uint64_t all_bytes = 512u << 20;   ///< reserved for large objects of all nodes
  Duration silence{
      std::chrono::seconds(10)};  ///< a node or connection without a byte for this long has failed
  Duration idle{std::chrono::seconds(30)};        ///< an unused connection is closed after this
  Duration patience{std::chrono::seconds(5)};     ///< how long a pull waits for memory
  Duration pause{std::chrono::milliseconds(50)};  ///< between two tries to reserve memory
  int attempts = 2;                               ///< see above
  int detours = 3;                                ///< see above
};

class TransferPlan {
 public:
  // Actions, which the caller carries out in the order of take_actions().
  /// Reserve memory for this object. The answer is reserved() or no_memory(), now or later.
  struct Reserve {
    PullId pull = 0;
    std::uint64_t bytes = 0;
  };
  /// Expect a new bulk connection from this node and send it the BulkOffer.
  struct Offer {
    NodeId node;
    ConnectionId connection = 0;
  };
  /// Send PullRequest{transfer, object}. `connection` is 0 for a small object. Otherwise bytes
  /// that come over that connection go into the pull's memory.
  struct Ask {
    NodeId node;
    ConnectionId connection = 0;
    TransferId transfer = 0;
    PullId pull = 0;
    ObjectId object;
    std::uint64_t have = 0;   ///< bytes that are here, as last told by kept()
    std::uint64_t stamp = 0;  ///< the life of the object that they are of
    NodeId without{};         ///< the node that the owner named and that did not deliver
    bool direct = false;      ///< the owner may name no other node
  };
  /// Close the connection. Call connection_ended() when no thread uses the memory of its pulls any
  /// more.
  struct Close {
    NodeId node;
    ConnectionId connection = 0;
    std::string why;
  };
  /// All bytes are here: seal the memory and report it. If it is not wanted, drop it.
  struct Complete {
    PullId pull = 0;
    NodeId node;
    ObjectId object;
    bool wanted = true;
  };
  /// Return the memory.
  struct Discard {
    PullId pull = 0;
  };
  /// Report the failure. It follows the pull's Discard.
  struct Failed {
    NodeId node;
    ObjectId object;
    Error error;
  };
  using Action = std::variant<Reserve, Offer, Ask, Close, Complete, Discard, Failed>;

  explicit TransferPlan(PlanOptions options = {}) : options_(options) {}

  /// Fetches this object from its owner. An object that is being fetched already is not fetched
  /// twice: one end serves both calls, and the higher priority holds.
  void pull(NodeId from, ObjectId object, std::uint64_t bytes, Priority priority, Time now);
  /// Ends the wish for an object without a report; bytes on their way are dropped when they come.
  /// Has no effect if the object is not being fetched.
  void cancel(ObjectId object, Time now);
  /// Ends all pulls from the node in ObjectLost; with `for_ever` all later pulls as well.
  void node_died(NodeId node, bool for_ever, Time now);

  // Answers to Reserve.
  void reserved(PullId pull, Time now);
  void no_memory(PullId pull, const Error& error, Time now);
  /// Lets pulls without memory try again at once instead of after `pause`.
  void memory_came(Time now);

  // Messages. Those of a transfer that is not under way are late and have no effect.
  /// The pull whose memory takes a PullData of this transfer and size; 0: drop the message.
  PullId expects(NodeId from, TransferId transfer, std::uint64_t bytes) const;
  /// Handles a PullData: it was copied whole into the pull's memory, or it does not fit.
  void arrived(NodeId from, TransferId transfer, bool fits, Time now);
  /// Handles a PullOnBulk.
  void on_bulk(NodeId from, TransferId transfer, std::uint64_t bytes, Time now);
  /// Handles a PullRefused. `busy`: a thread is writing into the pull's memory nevertheless.
  void refused(NodeId from, TransferId transfer, const Error& error, Time now, bool busy = false);
  /// Handles a PullElsewhere, in which the owner names another node. `busy` as in refused().
  void elsewhere(NodeId from, TransferId transfer, NodeId node, Time now, bool busy = false);
  /// The large pull of a transfer that is under way; 0 if there is none.
  PullId large(NodeId from, TransferId transfer) const;
  /// Whether a refusal with this error takes one large pull off its connection. Otherwise the
  /// refusal closes the connection.
  bool takes_off(NodeId from, TransferId transfer, const Error& error) const;

  // Connections. Calls about another than the node's current connection have no effect.
  /// Bytes came over the connection at that time.
  void heard(NodeId node, ConnectionId connection, Time at);
  /// The object of a pull has arrived whole.
  void received(NodeId node, ConnectionId connection, PullId pull, Time now);
  /// So many bytes of a pull are here and were checked; `stamp` names the life of the object that
  /// they are of. Call it before the call that ends the transfer.
  void kept(PullId pull, std::uint64_t bytes, std::uint64_t stamp);
  /// The connection has ended, on either side, and nothing uses the memory of its pulls.
  void connection_ended(NodeId node, ConnectionId connection, const Error& why, Time now);

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
    reserving,  ///< Reserve was emitted
    ready,      ///< has memory and waits for a connection
    asked,      ///< Ask was emitted
  };
  /// Priority, then the order of pull(), or of the last vain try for memory.
  using Place = std::pair<Priority, std::uint64_t>;
  /// A pull() that came while the fetch of the object was about to fail.
  struct Again {
    NodeId from;
    std::uint64_t bytes = 0;
    Priority priority = Priority::get;
  };
  struct Pull {
    NodeId node;    ///< the owner
    NodeId source;  ///< the node that is asked: the owner, or one that it named
    ObjectId object;
    std::uint64_t bytes = 0;
    Priority priority = Priority::get;
    std::uint64_t order = 0;
    State state = State::waiting;
    bool wanted = true;
    bool has_memory = false;
    bool gone = false;  ///< its node died, or messages to it may be lost
    TransferId transfer = 0;
    std::uint64_t have = 0, stamp = 0;
    std::uint64_t had_then = 0;       ///< `have` at the last Ask
    std::uint64_t finished_then = 0;  ///< the connection's `finished` at the last Ask
    int lost = 0;                     ///< attempts that ended without any progress
    int detours = 0;                  ///< nodes that were named and did not deliver
    NodeId without{};                 ///< the last of these nodes
    std::optional<Error> broken;      ///< the owner broke the protocol: no further attempt
    std::optional<Again> again;
    Time asked{};
    Time give_up = Time::max();  ///< the pull fails if it has no memory by then
    bool small() const noexcept { return bytes <= kSmallObject; }
    Place place() const noexcept { return {priority, order}; }
  };
  struct Lane {
    std::map<Place, PullId> waiting;
    std::uint64_t running = 0;  ///< pulls that left `waiting` and have not ended
    std::uint64_t bytes = 0;    ///< their bytes
    Time retry_at{};            ///< memory ran out: no Reserve before this time
  };
  struct Connection {
    ConnectionId number = 0;  ///< 0: none
    bool closing = false;
    std::string why;             ///< the reason of closing
    std::uint64_t finished = 0;  ///< objects that came over it
    Time heard{};                ///< of the last byte, or of the first Ask after an idle time
    Time idle_since{};           ///< valid while `pulls` is empty
    std::set<PullId> pulls;
  };
  struct Node {
    Lane link, bulk;
    std::set<TransferId> asked;  ///< transfers in the link lane, oldest first
    Time heard{};                ///< the last answer over the Link
    std::map<Place, PullId> ready;
    Connection connection;
  };

  Lane& lane(const Pull& pull);
  Pull* under_way(NodeId from, TransferId transfer);
  void schedule(Time now);
  bool start_small(Node& node, Time now);
  bool start_large(Time now);
  void start(PullId number);
  void ask(PullId number, ConnectionId connection, Time now);
  void ask_ready(NodeId id, Time now);
  void take_off(PullId number, Time now);
  void broken(PullId number, const std::string& why, Time now);
  void close(NodeId id, const std::string& why);
  void lose(PullId number, const Error& why, Time now);
  void join(PullId number, NodeId from, std::uint64_t bytes, Priority priority);
  void raise(PullId number, Priority priority);
  void add(NodeId from, ObjectId object, std::uint64_t bytes, Priority priority);
  void make_ready(PullId number, NodeId source);
  void back_to_owner(PullId number);
  void complete(PullId number);
  void fail(PullId number, const Error& error);
  void leave_lane(const Pull& pull);
  void erase(PullId number);
  void tick_node(NodeId id, Time now);
  void tidy(NodeId id);
  Time deadline_of(const Node& node) const;

  PlanOptions options_;
  std::map<NodeId, Node> nodes_;
  std::set<NodeId> dead_;  ///< for ever
  std::map<PullId, Pull> pulls_;
  std::map<ObjectId, PullId> by_object_;
  std::map<TransferId, PullId> by_transfer_;
  PullId next_pull_ = 1;
  std::uint64_t next_order_ = 1;
  TransferId next_transfer_ = 1;
  ConnectionId next_connection_ = 1;
  std::uint64_t reserved_ = 0;  ///< by large pulls
  std::vector<Action> actions_;
};

}  // namespace troupe::agent
