/// The objects that this node holds since they have a name in the cluster. Each is held until
/// control says that the name is gone. A plain state machine between processes, control and the
/// ReferenceTable.
///
///     named.ask(process, message, {.owner = node, .job = job, .bytes = n});  // NameObject leaves
///     named.replied(answer);                                // out.answer()
///     named.forgotten({{}, "weights", object});             // out.hold_named(object, -1)
///     named.registered();                                   // control may be another one
///
/// An object is held from the moment at which its name is asked for, so that the asking process may
/// release it on the answer. Control may die after it has made a name durable and before its answer
/// is sent; an ObjectForgotten may be lost with control too. So each new control gets again all
/// questions without an answer, and one `find` for each name that is kept here. An object is
/// released when control does not know its name, or knows it for another object or keeper.
///
/// Invariants: NAMED-1 an object is held here as long as control may have a name for it whose
/// keeper this node is. NAMED-2 each question of a process is answered once, if the process lives.
#pragma once

#include "troupe/runtime/agent/reference_table.hpp"
#include "troupe/runtime/control/messages.hpp"

#include <map>
#include <optional>
#include <string>

namespace troupe::agent {

class NamedObjects {
 public:
  /// The effects of this state machine. A function must not call back into NamedObjects.
  class Out {
   public:
    virtual ~Out() = default;
    /// Adds `delta` to the agent's own count of the object.
    virtual void hold_named(ObjectId object, std::int32_t delta) = 0;
    virtual void to_control(const control::NameObject& message) = 0;
    /// Sends the answer. `what`: the object that was found; the process is first counted as its
    /// holder.
    virtual void answer(ProcessIndex process, const wire::NamedObject& answer,
                        const control::ObjectName& what) = 0;
  };
  /// The agent's knowledge of an object that gets a name.
  struct Facts {
    NodeId owner;
    JobId job;
    std::uint64_t bytes = 0;
  };

  explicit NamedObjects(Out& out) : out_(out) {}
  /// Sets this node's id. Call it before anything else.
  void start(NodeId self) { self_ = self; }

  /// Asks control for a process. `facts`: about the object, for `detach` only. Precondition of
  /// detach: the object is known here, and the process holds it.
  void ask(ProcessIndex process, const wire::NameObject& message, const Facts& facts);
  /// Handles control's answer. Returns false if the question was not asked by this.
  bool replied(const control::NamedObject& reply);
  void forgotten(const control::ObjectForgotten& message);
  /// Asks again: the node has registered with a control that may not know the earlier questions.
  void registered();

  /// Returns how many names are kept here.
  std::size_t size() const noexcept { return kept_.size(); }

 private:
  struct Question {
    ProcessIndex process = kSelf;  ///< kSelf: registered() asks whether a kept name still exists
    std::uint64_t request = 0;     ///< of the process
    control::NameObject message;
    bool forgets = false;  ///< a `find` that a `forget` of the object follows
    bool again = false;    ///< it was sent more than once
  };
  void send(Question question);
  void keep(const std::string& name, ObjectId object, bool done);
  void let_go(const std::string& name, ObjectId object);

  Out& out_;
  NodeId self_;
  std::map<std::string, ObjectId> kept_;
  std::map<std::uint64_t, Question> questions_;  ///< by request, so in the order of asking
  /// From 2^61 on: apart from the requests of ActorHost and Node.
  std::uint64_t next_request_ = std::uint64_t{1} << 61;
};

}  // namespace troupe::agent
