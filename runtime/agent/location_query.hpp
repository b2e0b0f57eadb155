/// Where the bytes of objects are: asked of every node, answered once. A plain state machine.
///
///     query.ask(process, {request, objects}, now);     // → PeerLocate to all
///     query.answered(from, message, now);              // the last one → out.located()
///     query.carry_out(now);                            // at next_deadline()
///
/// A value may be another object's (*forwarded*), which only some node knows; then all are asked
/// again, of that one. Who does not answer within `patience` is not waited for: what the others
/// said is the answer.
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
  /// From a value to whose it is, at one node and from node to node.
  static constexpr int kMostSteps = 16;
  /// What follows; must not call back in.
  class Out {
   public:
    virtual ~Out() = default;
    /// What this node knows of the object; `index` is left alone.
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
    ObjectId object;  ///< whose value it is, as far as that is known
    wire::ObjectPlace said;
    bool in_memory = false;  ///< at one of the nodes
  };
  struct Question {
    ProcessIndex process = 0;
    std::uint64_t request = 0;
    Time until{};
    int steps = 0;
    std::vector<Place> places;
    std::vector<std::size_t> asked;  ///< of the places: what this round is about
    std::set<std::size_t> moved;     ///< found to be another's value meanwhile
    std::set<NodeId> silent;
  };
  using Questions = std::map<std::uint64_t, Question>;
  void next_round(std::uint64_t number, Question& question);
  void take(Question& question, std::size_t place, const wire::PeerPlace& said, NodeId from);
  /// Ends it when all have answered.
  Questions::iterator advance(Questions::iterator at);
  void answer(Question& question);

  Out& out_;
  const Duration patience_;
  NodeId self_;
  Questions questions_;
  std::uint64_t next_ = 0;
};

}  // namespace troupe::agent
