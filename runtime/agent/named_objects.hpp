/// The objects of this node that have a name in the cluster: held here until control says that
/// nothing has the name any more. A plain state machine between processes, control and the
/// ReferenceTable.
///
///     named.ask(process, message, {.owner = node, .job = job, .bytes = n});  // NameObject leaves
///     named.replied(answer);                                // out.answer()
///     named.forgotten({{}, "weights", object});             // out.hold_named(object, -1)
///     named.registered();                                   // control may be another one
///
/// The object is held from the moment in which the name is asked for, so that whoever asked may let
/// go of it as soon as it has the answer. Control may write the name down and die before it has
/// said so, and may say of a name that it is gone while nobody hears it. So what has no answer is
/// asked again of each new control, and so is every name that is kept here: an object is let go of
/// when control knows its name no more, or for another.
///
/// Invariants: NAMED-1 an object is held here as long as control may have a name for it whose
/// keeper this node is. NAMED-2 what a process asks is answered once, if it lives.
#pragma once

#include "troupe/runtime/agent/reference_table.hpp"
#include "troupe/runtime/control/messages.hpp"

#include <map>
#include <optional>
#include <string>

namespace troupe::agent {

class NamedObjects {
 public:
  /// What follows; must not call back in.
  class Out {
   public:
    virtual ~Out() = default;
    /// The agent holds it once more, or once less.
    virtual void hold_named(ObjectId object, std::int32_t delta) = 0;
    virtual void to_control(const control::NameObject& message) = 0;
    /// `what`: the object that was found, which is counted for the process first.
    virtual void answer(ProcessIndex process, const wire::NamedObject& answer,
                        const control::ObjectName& what) = 0;
  };
  /// What the agent knows of an object that gets a name.
  struct Facts {
    NodeId owner;
    JobId job;
    std::uint64_t bytes = 0;
  };

  explicit NamedObjects(Out& out) : out_(out) {}
  /// This node's id. Before anything else.
  void start(NodeId self) { self_ = self; }

  /// `facts`: of the object, for detach. Precondition: it is known here then, and the process
  /// holds it.
  void ask(ProcessIndex process, const wire::NameObject& message, const Facts& facts);
  /// False: the question is another's.
  bool replied(const control::NamedObject& reply);
  void forgotten(const control::ObjectForgotten& message);
  /// With a control that may not have heard what the one before had been asked.
  void registered();

  /// Names that are kept here.
  std::size_t size() const noexcept { return kept_.size(); }

 private:
  struct Question {
    ProcessIndex process = kSelf;  ///< kSelf: whether a name that is kept here is still there
    std::uint64_t request = 0;     ///< of the process
    control::NameObject message;
    bool forgets = false;  ///< of a find: what it finds is to lose its name
    bool again = false;    ///< it was said more than once
  };
  void send(Question question);
  void keep(const std::string& name, ObjectId object, bool done);
  void let_go(const std::string& name, ObjectId object);

  Out& out_;
  NodeId self_;
  std::map<std::string, ObjectId> kept_;
  std::map<std::uint64_t, Question> questions_;  ///< in the order in which they were asked
  /// Apart from the numbers of other questions to control.
  std::uint64_t next_request_ = std::uint64_t{1} << 61;
};

}  // namespace troupe::agent
