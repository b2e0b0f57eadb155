/// The program of a simulated worker: it opens arguments, runs tasks and methods, waits for
/// children and answers.
#include "tests/simulation/cluster/program.hpp"

#include <algorithm>

namespace troupe::sim::cluster {
namespace {
using namespace std::chrono_literals;
constexpr Duration kBlockGrace = 100us;
}  // namespace

void Program::run() {
  if (is_driver_) return drive();
  while (current_ || take_next()) {
    const auto stage = current_->stage;
    advance();
    if (current_ && current_->stage == stage) return;
  }
}

bool Program::take_next() {
  if (process_.shutdown_) return false;
  if (!process_.starts_.empty()) {
    current_.emplace(Current{});
    current_->start = std::move(process_.starts_.front());
    process_.starts_.pop_front();
    process_.begin_actor_lease();
    open_arguments(current_->start->first.creation, current_->start->second);
    return true;
  }
  if (process_.incoming_.empty()) return false;
  current_.emplace(Current{});
  current_->call = std::move(process_.incoming_.front());
  process_.incoming_.pop_front();
  const Incoming& call = *current_->call;
  if (auto* peer = process_.peer_of(call.from)) {
    peer->started = std::max(peer->started, call.call.sequence);
    peer->end.count_started(peer->started);
  }
  open_arguments(call.call, call.payload);
  return true;
}

void Program::open_arguments(const wire::Call& call, BlobView payload) {
  Current& now = *current_;
  now.waits_since = process_.machine().now();
  for (std::size_t i = 0; i < call.arguments.size(); ++i) {
    const wire::Value& argument = call.arguments[i];
    if (i == 0 && argument.kind == Kind::inline_bytes)
      now.spec = spec_of(payload.subspan(argument.payload_offset, argument.payload_size));
    if (argument.kind == Kind::forwarded) {
      now.values.push_back(std::move(process_.adopt_refs({argument.forward}).front()));
      process_.need(entry_of(now.values.back()), true);
      continue;
    }
    if (argument.kind == Kind::error) now.bad = argument.error;
    if (argument.kind == Kind::shared)
      process_.machine().truth().check(
          process_.machine().store().find(argument.location) != nullptr,
          "an argument was freed while its call was under way");
    for (ObjectHandle& ref : process_.adopt_refs(argument.refs)) now.refs.push_back(std::move(ref));
  }
}

bool Program::all_here(const std::vector<ObjectHandle>& objects) {
  return std::all_of(objects.begin(), objects.end(), [&](const ObjectHandle& object) {
    const Entry& entry = entry_of(object);
    return process_.is_here(entry) || process_.fetch_failed(entry);
  });
}

/// Returns whether all objects are here. If not, the worker gives its CPU back after kBlockGrace.
bool Program::wait_or_block(const std::vector<ObjectHandle>& objects) {
  if (all_here(objects)) {
    process_.block(false);
    return true;
  }
  for (const auto& object : objects) process_.need(entry_of(object), true);
  const Duration waited = process_.machine().now() - current_->waits_since;
  if (waited >= kBlockGrace)
    process_.block(true);
  else
    process_.machine().wake(process_.index(), kBlockGrace);
  return false;
}

void Program::advance() {
  Current& now = *current_;
  switch (now.stage) {
    case Current::Stage::arguments:
      if (!now.bad && !wait_or_block(now.values)) return;
      return begin_running();
    case Current::Stage::running:
      if (process_.machine().now() < now.until)
        return process_.machine().wake(process_.index(), now.until - process_.machine().now());
      return act();
    case Current::Stage::children: {
      if (!wait_or_block(now.children)) return;
      std::shared_ptr<const ErrorInfo> failed;
      for (const auto& child : now.children)
        if (const Opened opened = process_.open(child); opened.error) failed = opened.error;
      if (failed) return answer_error(Code::task_failed, "child", Outcome::executed, failed);
      return answer(value_of(now.spec));
    }
  }
}

void Program::begin_running() {
  Current& now = *current_;
  Truth& truth = process_.machine().truth();
  for (const auto& value : now.values) {
    if (now.bad) break;
    const Opened opened = process_.open(value);
    now.bad = opened.error;
    for (const auto& ref : opened.nested) now.refs.push_back(ref);
  }
  if (now.bad) {
    if (now.call) return answer_error(now.bad->code, now.bad->type, Outcome::not_executed, now.bad);
    const Error error(*now.bad);
    process_.created(now.start->first.actor, now.start->first.incarnation, &error);
    return end_call();
  }
  if (now.call && now.call->call.actor_low != 0) {
    if (!created_ || now.call->call.actor_low != actor_.low)
      return answer_error(Code::actor_died, "", Outcome::not_executed);
    Machine& machine = process_.machine();
    if (truth.began(actor_, incarnation_, now.spec) && machine.lives_beside(actor_))
      truth.mark(Mark::two_lives);
    if (machine.stands_still()) truth.mark(Mark::served_beside_stopped);
  } else if (now.call) {
    truth.began(now.spec, now.call->call.attempt);
  }
  now.stage = Current::Stage::running;
  now.begun = process_.machine().now();
  now.until = now.begun + Duration(static_cast<Duration::rep>(now.spec.run_ns));
  process_.machine().wake(process_.index(), now.until - now.begun);
}

Outgoing Program::value_of(const Spec& spec) {
  Outgoing value;
  value.kind = Kind::inline_bytes;
  value.content = content_of(spec);
  const std::uint64_t bytes = spec.kind == Spec::Kind::large  ? 8 << 10
                              : spec.kind == Spec::Kind::bulk ? 1 << 20
                                                              : 0;
  if (bytes == 0) return value;
  value.kind = Kind::shared;
  value.location = process_.machine().store().add(process_.index(), value.content, bytes);
  return value;
}

void Program::act() {
  Current& now = *current_;
  if (now.start) {
    const wire::StartActor& start = now.start->first;
    if (now.spec.kind == Spec::Kind::throwing) {
      ErrorInfo info;
      info.code = Code::task_failed;
      info.type = "user";
      const Error error(info);
      process_.created(start.actor, start.incarnation, &error);
      return end_call();
    }
    actor_ = start.actor;
    incarnation_ = start.incarnation;
    created_ = true;
    process_.machine().truth().lives(
        actor_, incarnation_,
        mixed(process_.machine().node().high * 1'000'003 + process_.machine().node().low,
              process_.index().value));
    process_.created(actor_, incarnation_, nullptr);
    return end_call();
  }
  const std::uint32_t attempt = now.call->call.attempt;
  now.stage = Current::Stage::children;
  now.waits_since = process_.machine().now();
  switch (now.spec.kind) {
    case Spec::Kind::throwing: return answer_error(Code::task_failed, "user", Outcome::executed);
    case Spec::Kind::flaky:
      if (attempt == 1) return answer_error(Code::task_failed, "flaky", Outcome::executed);
      return answer(value_of(now.spec));
    case Spec::Kind::nested:
      for (std::uint64_t i = 0; i < now.spec.fanout; ++i) {
        std::vector<ObjectHandle> refs;
        if (!now.refs.empty() && i % 2 == 0) refs.push_back(now.refs[i % now.refs.size()]);
        const Spec child = child_of(now.spec, i);
        now.children.push_back(
            process_.submit(child, {}, std::move(refs), key_of_child(child), -1));
      }
      return;
    case Spec::Kind::forward: {
      Outgoing value;
      value.kind = Kind::forwarded;
      const Spec child = child_of(now.spec, 0);
      value.forward = process_.submit(child, {}, {}, key_of_child(child), -1);
      return answer(value);
    }
    case Spec::Kind::bundle: {
      Outgoing value = value_of(now.spec);
      for (std::uint64_t i = 0; i < now.spec.fanout; ++i) {
        const std::uint64_t content = mixed(now.spec.id, 100 + i);
        if (i == 0) {
          value.refs.push_back(process_.put(content, content % 2 == 0 ? 4096 : 0, {}));
          continue;
        }
        const Spec child = child_of(now.spec, i);
        value.refs.push_back(process_.submit(child, {}, {}, key_of_child(child), -1));
      }
      for (std::size_t i = 0; i < now.refs.size() && i < 2; ++i) value.refs.push_back(now.refs[i]);
      return answer(value);
    }
    case Spec::Kind::unwrap: now.children = now.refs; return;
    default: return answer(value_of(now.spec));
  }
}

std::string Program::describe() const {
  if (!current_) return created_ ? "an idle actor" : "idle";
  const Current& now = *current_;
  std::string text = now.start ? "constructor" : "kind " + std::to_string(int(now.spec.kind));
  text += " in stage " + std::to_string(int(now.stage));
  const auto add = [&](const char* what, const std::vector<ObjectHandle>& objects) {
    for (const auto& object : objects) {
      const Entry& entry = entry_of(object);
      if (process_.is_here(entry)) continue;
      text += std::string(", ") + what + " " + object.id().str().substr(0, 6) + ":" +
              std::to_string(object.id().low) + (entry.ready ? " remote" : " pending") +
              (entry.promoted ? " promoted" : "") + (entry.fulfil ? " ours" : "") +
              (entry.awaited ? " awaited" : "") + (entry.fetching ? " fetching" : "") +
              (entry.source ? " forwarded" : "");
    }
  };
  add("value", now.values);
  if (now.stage == Current::Stage::children) add("child", now.children);
  return text;
}

/// Returns the demand of a child. A third of all children prefer a node of their own.
LeaseKey Program::key_of_child(const Spec& child) {
  if (child.id / 100 % 3 != 0) return LeaseKey::of(child.id / 300 % 2);
  const std::vector<NodeId> nodes = process_.machine().nodes();
  return process_.key_of(nodes[child.id / 600 % nodes.size()], true);
}

void Program::answer(const Outgoing& value) {
  if (current_->call->call.actor_low != 0 && created_)
    process_.machine().truth().answers(actor_, incarnation_);
  process_.reply(*current_->call, value, process_.machine().now() - current_->begun);
  end_call();
}

void Program::answer_error(Code code, const std::string& type, Outcome outcome,
                           std::shared_ptr<const ErrorInfo> cause) {
  ErrorInfo info;
  info.code = code;
  info.type = type;
  info.outcome = outcome;
  info.message = "simulated";
  info.cause = std::move(cause);
  Outgoing value;
  value.kind = Kind::error;
  value.error = std::make_shared<const ErrorInfo>(std::move(info));
  answer(value);
}

void Program::end_call() {
  process_.block(false);
  current_.reset();
}

}  // namespace troupe::sim::cluster
