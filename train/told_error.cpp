#include "troupe/train/detail/told_error.hpp"

#include "troupe/runtime/callable.hpp"

namespace troupe::train::internal {

std::vector<ToldError> told(const Error& error) {
  constexpr std::size_t kMost = 16;
  std::vector<ToldError> list;
  for (const ErrorInfo* one = &error.info(); one != nullptr && list.size() < kMost;
       one = one->cause.get()) {
    ToldError& told = list.emplace_back();
    told.code = static_cast<std::uint16_t>(one->code);
    told.outcome = static_cast<std::uint8_t>(one->outcome);
    told.message = one->message;
    told.type = one->type;
    told.stack = one->remote_stack;
    told.node = one->origin.node;
    told.function = one->origin.function;
    told.pid = one->origin.pid;
    told.attempt = one->origin.attempt;
  }
  return list;
}

std::optional<Error> error_of(const std::vector<ToldError>& told) {
  std::shared_ptr<const ErrorInfo> outer;
  for (auto one = told.rbegin(); one != told.rend(); ++one) {
    ErrorInfo info;
    info.code = static_cast<Code>(one->code);
    info.outcome = static_cast<Outcome>(one->outcome);
    info.message = one->message;
    info.type = one->type;
    info.remote_stack = one->stack;
    info.origin = {one->node, one->pid, one->function, one->attempt};
    info.cause = std::move(outer);
    outer = std::make_shared<const ErrorInfo>(std::move(info));
  }
  if (!outer) return std::nullopt;
  return Error(*outer);
}

Error current_error(const char* loop) {
  try {
    throw;
  } catch (const Error& error) {
    return error;
  } catch (...) {
    return failure_of_current_exception(loop);
  }
}

}  // namespace troupe::train::internal
