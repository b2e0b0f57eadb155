/// Names of objects for a simulation: control's ObjectNames, the NamedObjects of each node, and
/// the messages between them, which a reset loses.
///
///     names.detach(node, object, owner);      // → host.hold_named(), later host.found()
///     names.move(node, calm);                 // delivers some messages
///     names.reset(node);                      // starts its connection with control anew
#pragma once

#include "troupe/runtime/agent/named_objects.hpp"
#include "troupe/runtime/base/random.hpp"
#include "troupe/runtime/control/object_names.hpp"

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <variant>
#include <vector>

namespace troupe::simulation {

class PlayedNames final {
 public:
  class Host {
   public:
    virtual ~Host() = default;
    virtual void hold_named(std::size_t node, ObjectId object, std::int32_t delta) = 0;
    /// The object was found by its name; the process that asked gets a handle.
    virtual void found(std::size_t node, const control::ObjectName& what) = 0;
    /// Answers ask_name_of().
    virtual void on_name(std::size_t node, ObjectId object, bool has_one) = 0;
    /// The object has no name any more. A process may have found it just before.
    virtual void forgotten(ObjectId object) = 0;
  };

  PlayedNames(Host& host, std::size_t nodes, Random& random) : host_(host), random_(random) {
    for (std::size_t n = 0; n < nodes; ++n) {
      nodes_.push_back(std::make_unique<Node>(*this, n));
      nodes_.back()->named.start(id_of(n));
    }
  }
  static NodeId id_of(std::size_t node) { return {7, node + 1}; }

  void detach(std::size_t node, ObjectId object, NodeId owner) {
    ask(node, wire::NameObject::Verb::detach, object, {.owner = owner, .job = {}, .bytes = 1});
  }
  void find(std::size_t node, ObjectId object) {
    ask(node, wire::NameObject::Verb::find, object, {});
  }
  void forget(std::size_t node, ObjectId object) {
    ask(node, wire::NameObject::Verb::forget, object, {});
  }
  void ask_name_of(std::size_t node, ObjectId object) {
    control::NameObject question{++questions_, control::NameObject::Verb::whose, {}};
    question.what.object = object;
    nodes_[node]->whose[question.request] = object;
    nodes_[node]->said.push_back(question);
  }
  void move(std::size_t node, bool calm) {
    Node& at = *nodes_[node];
    if (!at.alive) return;
    while (!at.said.empty() && (calm || random_.chance(0.6))) {
      const control::NameObject question = at.said.front();
      at.said.pop_front();
      hear(question, node);
    }
    while (!at.heard.empty() && (calm || random_.chance(0.6))) {
      const control::ObjectNameEvent event = at.heard.front();
      at.heard.pop_front();
      tell(at, event);
    }
  }
  /// Plays a broken connection to control, or a new control.
  void reset(std::size_t node) {
    Node& at = *nodes_[node];
    at.said.clear();
    at.heard.clear();
    at.whose.clear();
    at.named.registered();
  }
  /// The node learns of another node's death. Its open questions will be asked again.
  void noticed(std::size_t node) { nodes_[node]->whose.clear(); }
  void died(std::size_t node) {
    reset(node);
    nodes_[node]->alive = false;
  }
  const std::map<std::string, control::ObjectName>& all() const { return control_.all(); }
  bool has(ObjectId object) const { return control_.all().count(name_of(object)) != 0; }
  std::size_t kept(std::size_t node) const { return nodes_[node]->named.size(); }

 private:
  struct Node final : agent::NamedObjects::Out {
    Node(PlayedNames& n, std::size_t i) : names(n), self(i) {}
    PlayedNames& names;
    std::size_t self;
    bool alive = true;
    agent::NamedObjects named{*this};
    std::deque<control::NameObject> said;        // to control
    std::deque<control::ObjectNameEvent> heard;  // from it
    std::map<std::uint64_t, ObjectId> whose;

    void hold_named(ObjectId object, std::int32_t delta) override {
      names.host_.hold_named(self, object, delta);
    }
    void to_control(const control::NameObject& message) override { said.push_back(message); }
    void answer(ProcessIndex, const wire::NamedObject& answer,
                const control::ObjectName& what) override {
      if (answer.object) names.host_.found(self, what);
    }
  };

  static std::string name_of(ObjectId object) { return object.str(); }
  void ask(std::size_t node, wire::NameObject::Verb verb, ObjectId object,
           const agent::NamedObjects::Facts& facts) {
    nodes_[node]->named.ask(1, {0, verb, name_of(object), object, 0, ""}, facts);
  }
  void hear(const control::NameObject& question, std::size_t from) {
    control::ObjectNames::Out out = control_.on_message(question, id_of(from));
    for (control::ObjectNameEvent& event : out.after_sync) {
      const NodeId to = std::visit([](const auto& one) { return one.to; }, event);
      if (const auto* gone = std::get_if<control::ObjectForgotten>(&event))
        host_.forgotten(gone->object);
      Node& node = *nodes_[to.low - 1];
      if (node.alive) node.heard.push_back(std::move(event));
    }
  }
  void tell(Node& node, const control::ObjectNameEvent& event) {
    if (const auto* gone = std::get_if<control::ObjectForgotten>(&event))
      return node.named.forgotten(*gone);
    const auto& reply = std::get<control::NamedObject>(event);
    if (node.named.replied(reply)) return;
    if (const auto asked = node.whose.extract(reply.request))
      host_.on_name(node.self, asked.mapped(), reply.done);
  }

  Host& host_;
  Random& random_;
  control::ObjectNames control_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::uint64_t questions_ = 0;
};

}  // namespace troupe::simulation
