#include "troupe/runtime/control/internal/actor_errors.hpp"

#include "troupe/runtime/base/back_off.hpp"
#include "troupe/runtime/base/short_name.hpp"

#include <utility>

namespace troupe::control::internal {
namespace {

std::string title(const ActorSpec& spec) {
  std::string text = spec.class_name.empty() ? "actor" : "actor " + short_name(spec.class_name);
  if (!spec.name.empty()) text += " \"" + spec.name + "\"";
  return text;
}

}  // namespace

std::shared_ptr<const ErrorInfo> error_of_death(const ActorSpec& spec, const std::string& why,
                                                const std::optional<Error>& cause, NodeId node) {
  ErrorInfo info;
  if (cause) {
    info.origin = cause->where();
    info.type = cause->info().type;
    info.cause = cause->shared_info();
  }
  info.code = Code::actor_died;
  info.outcome = Outcome::not_executed;  // the outcome of calls that waited for the actor
  info.message = title(spec) + " is dead: " + why;
  if (cause && cause->code() == Code::infeasible) {
    info.code = Code::infeasible;
    info.message = cause->message();
  }
  if (info.origin.function.empty()) info.origin.function = spec.class_name;
  if (info.origin.node.empty() && node) info.origin.node = node.str();
  return std::make_shared<const ErrorInfo>(std::move(info));
}

std::shared_ptr<const ErrorInfo> error_of_life(const ActorSpec& spec, const RestartPace& pace,
                                               const Error& cause, Time now) {
  ErrorInfo info;
  info.code = Code::actor_unavailable;
  info.outcome = Outcome::not_executed;
  info.message = title(spec) + " is in its " + ordinal(pace.count()) + " life, which " +
                 pace.describe_end(now) + " with: " + cause.message();
  info.origin = cause.where();
  info.type = cause.info().type;
  info.cause = cause.shared_info();
  return std::make_shared<const ErrorInfo>(std::move(info));
}

std::shared_ptr<const ErrorInfo> error_of_unknown() {
  return Error(Code::actor_died,
               "the actor is not known: it died long ago, or with its node while control was "
               "restarting, or nobody has created it",
               Outcome::unknown)
      .shared_info();
}

}  // namespace troupe::control::internal
