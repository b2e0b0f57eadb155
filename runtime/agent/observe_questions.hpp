/// The questions about rows that an agent has passed on: to its processes, and to the other nodes when
/// an observer of this node asks. It joins their answers. A source that is late is listed as
/// unanswered, so every question is answered in time. A plain state machine.
///
///     questions.ask({process, {}, request}, question, now);   // → out.ask_process(), out.ask_node()
///     questions.process_answered(process, message, payload);  // the last one: → out.answer()
///     questions.on_timer(now);                                // late sources: → out.answer()
#pragma once

#include "troupe/runtime/agent/asker.hpp"
#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/observe/answer.hpp"
#include "troupe/runtime/wire/messages.hpp"
#include "troupe/runtime/wire/peer.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace troupe::agent {

class ObserveQuestions {
 public:
  /// How long a process and another node may take. A verb waits 2 s.
  static constexpr Duration kProcessAnswers = std::chrono::seconds(1);
  static constexpr Duration kNodeAnswers = std::chrono::milliseconds(1500);
  static constexpr std::size_t kMostOpen = 64;
  struct ProcessSource {
    ProcessIndex process;
    std::int64_t pid = 0;
  };
  struct NodeSource {
    NodeId node;
    std::string name;
    std::string dead{};  ///< why it cannot be asked; empty: it can
    std::string late{};  ///< why it may not answer in time; empty: nothing is known
  };
  /// How far the agent's own rows are.
  struct Place {
    bool begun = false;
    ProcessIndex next;  ///< the first process that is not looked at
  };
  class Out {
   public:
    virtual ~Out() = default;
    virtual std::string node_name() = 0;
    /// The drivers and workers of this node.
    virtual std::vector<ProcessSource> processes() = 0;
    /// The other nodes of the cluster, with those that have died lately.
    virtual std::vector<NodeSource> other_nodes() = 0;
    virtual void ask_process(ProcessIndex process, const wire::AskRows& question) = 0;
    virtual void ask_node(NodeId node, const wire::PeerInquire& question) = 0;
    /// Adds rows that the agent itself knows, as many as one pass of its loop may take. Returns
    /// whether more follow behind `place`, in the next pass.
    virtual bool add_own(const observe::Query& query, observe::Selection& selection,
                         Place& place) = 0;
    virtual void answer(const Asker& asker, Blob bytes) = 0;
    virtual void refuse(const Asker& asker, const Error& why) = 0;
  };
  explicit ObserveQuestions(Out& out) : out_(out) {}

  void ask(const Asker& asker, const wire::ListQuestion& question, Time now);
  void process_answered(ProcessIndex from, const wire::GiveRows& message, BlobView payload);
  /// Returns false for an answer to a question of another part.
  bool node_answered(NodeId from, const wire::PeerAnswer& message, BlobView payload);
  /// The process has ended: what it did not tell is gone, and so are its own questions.
  void process_died(ProcessIndex process);
  void node_died(NodeId node, const std::string& why);
  void on_timer(Time now);
  Time next_deadline() const;
  std::size_t open() const noexcept { return open_.size(); }

 private:
  struct Source {
    std::string node;
    std::int64_t pid = 0;
    Time until{};
    Blob bytes{};
    std::uint64_t whole = 0;
    std::string late{};  ///< NodeSource::late
  };
  struct Open {
    Open(const Asker& who, observe::Query&& q)
        : asker(who), query(std::move(q)), own(query), merge(query, observe::Merge::Place::agent) {}
    Asker asker;
    observe::Query query;
    observe::Selection own;
    Place place;
    bool looks = true;  ///< at its own rows
    observe::Merge merge;
    std::map<ProcessIndex, Source> processes;  ///< that have not answered
    std::map<NodeId, Source> nodes;
  };
  using Opens = std::map<std::uint64_t, std::unique_ptr<Open>>;
  static bool add_piece(Open& open, Source& source, std::uint64_t offset, std::uint64_t whole,
                        BlobView piece);
  void look(Open& open);
  void finish(Opens::iterator at);

  Out& out_;
  /// By number, apart from the numbers of a node's other questions.
  Opens open_;
  std::uint64_t next_ = std::uint64_t{1} << 61;
};

}  // namespace troupe::agent
