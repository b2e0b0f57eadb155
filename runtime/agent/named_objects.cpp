#include "troupe/runtime/agent/named_objects.hpp"

#include "troupe/runtime/base/buggify.hpp"

#include <utility>

namespace troupe::agent {

using Verb = control::NameObject::Verb;

void NamedObjects::ask(ProcessIndex process, const wire::NameObject& message, const Facts& facts) {
  Question question;
  question.process = process;
  question.request = message.request;
  control::ObjectName& what = question.message.what;
  what.name = message.name;
  switch (message.verb) {
    case wire::NameObject::Verb::detach:
      question.message.verb = Verb::detach;
      what.object = message.object;
      what.owner = facts.owner;
      what.keeper = self_;
      what.fingerprint = message.fingerprint;
      what.type = message.type;
      what.job = facts.job;
      what.bytes = facts.bytes;
      out_.hold_named(what.object, +1);
      break;
    case wire::NameObject::Verb::forget:
      // First finds what has the name now, then forgets that very object: a repeated `forget`
      // cannot take the name from an object that got it meanwhile.
      question.forgets = true;
      [[fallthrough]];
    case wire::NameObject::Verb::find: question.message.verb = Verb::find; break;
  }
  send(std::move(question));
}

void NamedObjects::send(Question question) {
  question.message.request = ++next_request_;
  const auto at = questions_.emplace(question.message.request, std::move(question)).first;
  out_.to_control(at->second.message);
}

bool NamedObjects::replied(const control::NamedObject& reply) {
  auto gone = questions_.extract(reply.request);
  if (!gone) return false;
  const auto& [process, request, message, forgets, again] = gone.mapped();
  const ObjectId object = message.what.object;
  if (process == kSelf) {
    const bool is_ours =
        reply.done && reply.what.object == object && reply.what.keeper == message.what.keeper;
    if (!is_ours && !reply.error) let_go(message.what.name, object);
    return true;
  }
  if (forgets && message.verb == Verb::find && reply.done) {
    gone.mapped().message.verb = Verb::forget;
    gone.mapped().message.what.object = reply.what.object;
    gone.mapped().again = false;  // only the `find` may have been sent twice
    send(std::move(gone.mapped()));
    return true;
  }
  if (message.verb == Verb::detach) keep(message.what.name, object, reply.done);
  wire::NamedObject answer;
  answer.request = request;
  // A repeated `forget` may find no such name, since an earlier control has carried it out: done.
  answer.found = reply.done || (message.verb == Verb::forget && again && !reply.error);
  answer.error = reply.error;
  if (message.verb == Verb::find && reply.done) {
    answer.object = reply.what.object;
    answer.fingerprint = reply.what.fingerprint;
    answer.type = reply.what.type;
  }
  out_.answer(process, answer, reply.what);
  return true;
}

/// Ends a `detach`. The object has been held since ask(): that count is kept for a new name.
/// Otherwise one count is released: the object's own if it was detached twice or in vain, else that
/// of the object that had the name before, whose ObjectForgotten may have been lost.
void NamedObjects::keep(const std::string& name, ObjectId object, bool done) {
  ObjectId let_go = object;
  if (done) {
    const auto [at, fresh] = kept_.try_emplace(name, object);
    if (fresh) return;
    let_go = std::exchange(at->second, object);
  }
  out_.hold_named(let_go, -1);
}

void NamedObjects::forgotten(const control::ObjectForgotten& message) {
  let_go(message.name, message.object);
}

void NamedObjects::let_go(const std::string& name, ObjectId object) {
  const auto at = kept_.find(name);
  if (at == kept_.end() || at->second != object || TROUPE_MUTANT("named.keeps_forgotten")) return;
  kept_.erase(at);
  out_.hold_named(object, -1);
}

void NamedObjects::registered() {
  std::erase_if(questions_, [](const auto& entry) { return entry.second.process == kSelf; });
  for (auto& [request, question] : questions_) {
    question.again = true;
    out_.to_control(question.message);
  }
  for (const auto& [name, object] : kept_) {
    Question question;
    question.message.verb = Verb::find;
    question.message.what.name = name;
    question.message.what.object = object;
    question.message.what.keeper = self_;
    send(std::move(question));
  }
}

}  // namespace troupe::agent
