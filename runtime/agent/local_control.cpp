#include "troupe/runtime/agent/local_control.hpp"

#include "troupe/runtime/wire/cases.hpp"

#include <utility>

namespace troupe::agent {
namespace {

constexpr Epoch kEpoch = 1;  ///< of the only node and of its control

using wire::Cases;

std::optional<Error> error_of(const std::shared_ptr<const ErrorInfo>& info) {
  return info ? std::optional<Error>(Error(*info)) : std::nullopt;
}

}  // namespace

LocalControl::LocalControl(NodeId self)
    : self_(self), directory_(control::DirectoryOptions{}, kEpoch) {
  directory_.start();  // the directory is empty, so this has no effects to carry out
}

std::vector<control::FromControl> LocalControl::poll(Time now) {
  std::vector<control::FromControl> answers;
  while (!inbox_.empty()) {
    control::ToControl message = std::move(inbox_.front());
    inbox_.pop_front();
    if (const auto* name = std::get_if<control::NameObject>(&message))
      carry_out(names_.on_message(*name, self_), answers);
    else
      carry_out(hear(message, now), answers);
  }
  if (const auto due = directory_.next_deadline(); due && *due <= now)
    carry_out(directory_.on_tick(now), answers);
  return answers;
}

control::Directory::Out LocalControl::hear(control::ToControl& message, Time now) {
  control::Directory& actors = directory_;
  using Out = control::Directory::Out;
  return std::visit(
      Cases{[&](control::SpawnActor& m) {
              m.from = self_;
              return actors.on_spawn(m, now);
            },
            [&](control::ActorStarted& m) {
              return actors.on_started(m.actor, m.incarnation, self_, kEpoch, m.worker, now);
            },
            [&](control::ActorStartFailed& m) {
              return actors.on_start_failed(m.actor, m.incarnation, error_of(m.error));
            },
            [&](control::ActorGone& m) {
              const Error cause = error_of(m.error).value_or(Error(Code::worker_died, "it ended"));
              return actors.on_died(m.actor, m.incarnation, cause, m.intended, now);
            },
            [&](control::KillActor& m) {
              return actors.on_kill(m.actor, m.may_restart, now, m.life);
            },
            [&](control::HandlesGone& m) { return actors.on_handles_gone(m.actor); },
            [&](control::FindActor& m) {
              return actors.on_find(self_, m.request, m.name_space, m.name);
            },
            [&](control::FinishJob& m) { return actors.on_job_ending(m.job, now); },
            [&](control::WatchActor& m) {
              if (m.on) return actors.on_watch(m.actor, self_, now);
              actors.on_unwatch(m.actor, self_);
              return Out{};
            },
            [](auto&) { return Out{}; }},
      message);
}

/// Carries out the directory's effects. Nothing is durable here, so effects that would wait for a
/// write take place at once. The only place for an actor is this node; its lease table refuses an
/// actor that it can never take.
void LocalControl::carry_out(control::Directory::Out out,
                             std::vector<control::FromControl>& answers) {
  std::deque<control::DirectoryEvent> events;
  const auto take = [&events](control::Directory::Out& from) {
    for (auto& event : from.at_once) events.push_back(std::move(event));
    for (auto& event : from.after_sync) events.push_back(std::move(event));
  };
  take(out);
  while (!events.empty()) {
    control::DirectoryEvent event = std::move(events.front());
    events.pop_front();
    std::visit(Cases{[&](control::PlaceActor& e) {
                       auto placed = directory_.on_placed(e.actor, e.incarnation, self_, kEpoch);
                       take(placed);
                     },
                     [&](control::ActorUpdateTo& e) { answers.push_back(std::move(e.location)); },
                     [&](control::ActorTrouble& e) { lines_.push_back(std::move(e.line)); },
                     [&](control::JobIdle& e) {
                       answers.push_back(control::JobEnded{e.job, control::JobState::finished, {}});
                     },
                     [&](auto& e) { answers.push_back(std::move(e)); }},
               event);
  }
}

void LocalControl::carry_out(control::ObjectNames::Out out,
                             std::vector<control::FromControl>& answers) {
  for (control::ObjectNameEvent& event : out.after_sync)
    std::visit([&](auto& one) { answers.push_back(std::move(one)); }, event);
}

}  // namespace troupe::agent
