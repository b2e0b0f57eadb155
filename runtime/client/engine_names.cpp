/// Named objects of the cluster, and where the bytes of objects are.
#include "troupe/runtime/client/engine.hpp"
#include "troupe/runtime/client/wait_reasons.hpp"

#include <algorithm>
#include <utility>

namespace troupe::client {
namespace {

using namespace std::chrono_literals;

/// How long to wait for the agent, and for control behind it, which may be restarting.
constexpr Duration kControlAnswers = 30s, kNodesAnswer = 10s;

}  // namespace

wire::NamedObject ClientEngine::ask_named(Guard& lock, wire::NameObject question) {
  const std::uint64_t request = question.request = questions_.ask<wire::NamedObject>();
  tell(question);
  waits_.block_until(
      lock, [&] { return questions_.is_answered(request); }, steady_now() + kControlAnswers);
  auto answer = questions_.take<wire::NamedObject>(request);
  if (!answer)
    throw Unavailable(Code::unavailable,
                      "control did not answer within 30 s what is to become of the object '" +
                          question.name + "'",
                      Outcome::unknown);
  if (answer->error) {
    gate_.unlock_and_collect(lock);
    raise(Error(*answer->error));
  }
  return std::move(*answer);
}

void ClientEngine::detach(const detail::ObjectHandle& object, const std::string& name,
                          std::uint64_t fingerprint, const char* type, Duration timeout) {
  values_.expect_ours(object);
  if (wait({&object, 1}, 1, timeout).empty()) {
    std::string what = "the value that was to be named '" + name + "' is not there";
    if (timeout > Duration::zero()) {
      Guard lock = gate_.guard();
      const std::string why =
          WaitReasons(*this, calls_, questions_, waits_).why(lock, entry_of(object));
      gate_.unlock_and_collect(lock);
      if (!why.empty()) what += ": " + why;
    }
    throw TimedOut(Code::timed_out, std::move(what), Outcome::not_executed);
  }
  Guard lock = gate_.guard();
  Entry& entry = entry_of(object);
  if (entry.kind == wire::Value::Kind::error) {
    const Error error(*entry.error);
    gate_.unlock_and_collect(lock);
    raise(error);
  }
  values_.promote(entry);
  wire::NameObject question;
  question.name = name;
  question.object = entry.id;
  question.fingerprint = fingerprint;
  question.type = type;
  ask_named(lock, std::move(question));
  gate_.unlock_and_collect(lock);
}

detail::ObjectHandle ClientEngine::find_object(const std::string& name, std::uint64_t fingerprint,
                                               const char* type) {
  Guard lock = gate_.guard();
  wire::NameObject question;
  question.verb = wire::NameObject::Verb::find;
  question.name = name;
  const wire::NamedObject found = ask_named(lock, std::move(question));
  if (!found.found) {
    gate_.unlock_and_collect(lock);
    return {};
  }
  detail::ObjectHandle handle = values_.adopt_one(found.object);
  gate_.unlock_and_collect(lock);
  if (found.fingerprint != fingerprint)
    throw InvalidArgument(Code::invalid_argument,
                          "the object '" + name + "' is a " + found.type + ", not a " + type);
  return handle;
}

bool ClientEngine::forget_object(const std::string& name) {
  Guard lock = gate_.guard();
  wire::NameObject question;
  question.verb = wire::NameObject::Verb::forget;
  question.name = name;
  const bool found = ask_named(lock, std::move(question)).found;
  gate_.unlock_and_collect(lock);
  return found;
}

/// Objects that only this process knows are answered here; the agent is asked for the others.
std::vector<detail::ObjectLocation> ClientEngine::locations(
    std::span<const detail::ObjectHandle> objects) {
  using State = detail::ObjectLocation::State;
  std::vector<detail::ObjectLocation> answer(objects.size());
  std::vector<std::size_t> asked;
  Guard lock = gate_.guard();
  for (std::size_t i = 0; i < objects.size(); ++i) {
    if (is_foreign(entry_of(objects[i]))) continue;
    const Entry& entry = origin_of(entry_of(objects[i]));
    detail::ObjectLocation& at = answer[i];
    if (entry.promoted) {
      asked.push_back(i);
    } else if (!entry.ready.load(std::memory_order_relaxed)) {
      at.state = State::pending;
    } else if (entry.kind == wire::Value::Kind::error) {
      at.state = State::failed;
    } else {
      const bool large = entry.kind == wire::Value::Kind::shared;
      at.state = large ? State::large : State::small;
      at.size = Bytes{large         ? (*entry.location).length
                      : entry.value ? entry.value->bytes.size()
                                    : 0};
      at.nodes.push_back(self_.node);
    }
  }
  for (std::size_t from = 0; from < asked.size(); from += wire::kMaxRefs) {
    const std::size_t count = std::min(wire::kMaxRefs, asked.size() - from);
    wire::Locate question{questions_.ask<wire::Located>(), {}};
    for (std::size_t i = 0; i < count; ++i)
      question.objects.push_back(origin_of(entry_of(objects[asked[from + i]])).id);
    tell(question);
    waits_.block_until(
        lock, [&] { return questions_.is_answered(question.request); },
        steady_now() + kNodesAnswer);
    const auto located = questions_.take<wire::Located>(question.request);
    if (!located)
      throw Unavailable(Code::unavailable, "the node's agent did not answer within 10 s");
    for (const wire::ObjectPlace& place : located->places) {
      if (place.index >= count) continue;
      detail::ObjectLocation& at = answer[asked[from + place.index]];
      at.state = static_cast<State>(place.state);
      at.size = Bytes{place.bytes};
      at.spilled = place.spilled;
      at.nodes = place.nodes;
    }
  }
  gate_.unlock_and_collect(lock);
  return answer;
}

}  // namespace troupe::client
