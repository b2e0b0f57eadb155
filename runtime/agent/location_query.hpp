/// Finds where the bytes of objects are: asks every node, and answers the process once. A plain
/// state machine.
///
///     query.ask(process, {request, objects}, now);     // → PeerLocate to all
///     query.answered(from, message, now);              // the last one → out.located()
///     query.carry_out(now);                            // at next_deadline()
///
/// An object's value may be that of another object (*forwarded*), and perhaps only one node knows
/// of that. All nodes are then asked again about the other object. After `patience` the answers so
/// far are the result.
#pragma once

#include "troupe/runtime/agent/reference_table.hpp"
#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/wire/peer.hpp"

#include <map>
#include <set>
#include <vector>

namespace troupe::agent {

class LocationQuery {
 public:
  /// Limit of the steps from an object to the one it is forwarded to: those that one node follows,
  /// and the rounds of a question.
  static constexpr int kMostSteps = 16;
  /// The effects. An implementation must not call into LocationQuery.
  class Out {
   public:
    virtual ~Out() = default;
    /// What this node knows of the object; `index` is not set.
    virtual wire::PeerPlace place_of(ObjectId object) = 0;
    virtual std::vector<NodeId> nodes_to_ask() = 0;
    virtual void ask_place(NodeId node, const wire::PeerLocate& message) = 0;
    virtual void located(ProcessIndex process, const wire::Located& answer) = 0;
  };
  explicit LocationQuery(Out& out, Duration patience = std::chrono::seconds(2))
      : out_(out), patience_(patience) {}
  void start(NodeId self) { self_ = self; }

  void ask(ProcessIndex process, const wire::Locate& message, Time now);
  void answered(NodeId from, const wire::PeerLocated& message);
  /// This node's answer to another's question.
  wire::PeerLocated answer_to(const wire::PeerLocate& message);
  void node_died(NodeId node);
  void process_died(ProcessIndex process);
  void carry_out(Time now);
  Time next_deadline() const;

 private:
  struct Place {
    ObjectId object;  ///< the object at the known end of the chain of forwards
    wire::ObjectPlace said;
    bool in_memory = false;  ///< at least at one of the nodes
  };
  struct Question {
    ProcessIndex process;
    std::uint64_t request = 0;
    Time until{};
    int steps = 0;
    std::vector<Place> places;
    std::vector<std::size_t> asked;  ///< indexes of the places that this round asks about
    std::set<std::size_t> moved;     ///< indexes of places to ask about in the next round
    std::set<NodeId> silent;         ///< nodes that have not answered in this round
  };
  using Questions = std::map<std::uint64_t, Question>;
  void next_round(std::uint64_t number, Question& question);
  void take(Question& question, std::size_t place, const wire::PeerPlace& said, NodeId from);
  /// Begins the next round or answers, if all nodes have answered. Returns the next question.
  Questions::iterator advance(Questions::iterator at);
  void answer(Question& question);

  Out& out_;
  const Duration patience_;
  NodeId self_;
  Questions questions_;
  std::uint64_t next_ = 0;
};

}  // namespace troupe::agent
