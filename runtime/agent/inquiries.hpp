/// Questions of observers and drivers that this node has passed on to control or to another node,
/// and answers that it owes to other nodes. A plain state machine of the agent.
///
///     const auto number = inquiries.note(process, request, node, now);  // then ask `node`
///     inquiries.on_answer(node, message, payload);  // passed on to the process, in pieces
///     inquiries.owe(node, request, bytes);          // sent as the network takes it
///
/// Invariants: INQUIRY-1 Each noted question ends once: with the last piece of its answer, with an
/// error, or with timed_out after 20 s. At most kMostOpen are open. INQUIRY-2 Only the node that was
/// asked may answer. INQUIRY-3 A node gets its answers whole and in order. At most eight wait for
/// one node; further ones are answered with overloaded.
#pragma once

#include "troupe/runtime/agent/asker.hpp"
#include "troupe/runtime/agent/outgoing.hpp"
#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/control/messages.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>

namespace troupe::agent {

class Inquiries {
 public:
  /// Most questions that wait for their answers.
  static constexpr std::size_t kMostOpen = 65536;

  explicit Inquiries(Outgoing& out) : out_(out) {}

  // --- questions that were passed on
  /// Returns the number that the next question gets. It names the question at control and nodes.
  std::uint64_t next_number() const noexcept { return next_; }
  /// Takes a number for a question of the agent itself: no process waits for its answer.
  std::uint64_t take_number() noexcept { return next_++; }
  /// Returns whether kMostOpen questions wait. A further one is to be refused.
  bool is_full() const noexcept { return inquiries_.size() >= kMostOpen; }
  /// Notes a question of the process that `node` (zero: control) is asked. Returns its number.
  std::uint64_t note(ProcessIndex from, std::uint64_t request, NodeId node, Time now);
  /// Handles control's answer to the question `number`. Others' answers change nothing.
  void on_reply(std::uint64_t number, const control::FromControl& message);
  void on_answer(NodeId from, const wire::PeerAnswer& message, BlobView payload);
  /// Refuses all questions that the node (zero: control) will not answer any more.
  void end(NodeId node, const Error& why);
  void expire(Time now);
  /// Returns when to call expire() at the latest.
  Time next_deadline() const noexcept { return due_; }

  // --- answers to whoever asked this node
  void answer(const Asker& to, Blob bytes);
  void refuse(const Asker& to, const Error& why);

  // --- answers to processes of this node
  /// Sends a whole answer, in pieces that fit a packet.
  void answer(ProcessIndex to, std::uint64_t request, BlobView bytes) {
    answer(to, request, bytes, 0, bytes.size());
  }
  void refuse(ProcessIndex to, std::uint64_t request, const Error& why);

  // --- answers to other nodes
  /// Sends the answer to the node as soon as the network takes it.
  void owe(NodeId to, std::uint64_t request, Blob bytes);
  /// Sends as much of what is owed to the node as the network takes now.
  void send_owed(NodeId to);
  /// Forgets what is owed to a node that is gone.
  void forget(NodeId node) { owed_.erase(node); }

 private:
  struct Inquiry {
    ProcessIndex process;
    std::uint64_t request = 0;
    NodeId node;   ///< that was asked; zero: control
    Time until{};  ///< the process gets an error at this time
  };
  struct Owed {
    std::uint64_t request = 0;
    Blob bytes;
    std::size_t sent = 0;
  };
  void answer(ProcessIndex to, std::uint64_t request, BlobView bytes, std::uint64_t offset,
              std::uint64_t whole);

  Outgoing& out_;
  std::uint64_t next_ = std::uint64_t{1} << 62;  ///< apart from ActorHost's numbers
  std::map<std::uint64_t, Inquiry> inquiries_;   ///< without an answer, by number
  Time due_ = Time::max();                       ///< the earliest `until`
  std::map<NodeId, std::deque<Owed>> owed_;
};

}  // namespace troupe::agent
