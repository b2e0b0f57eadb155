#include "troupe/runtime/engine/engine.hpp"

#include "troupe/runtime/base/words.hpp"

#include <cxxabi.h>
#include <atomic>
#include <string>

namespace troupe::detail {
namespace {

/// The number of causes that an error keeps. Nested tasks wrap the same error again at each
/// level; this bound, together with words_of(), keeps size and message bounded at any depth of
/// nesting.
constexpr int kMostCauses = 8;

std::string words_of(const Error& inner) {
  if (inner.code() == Code::task_failed && inner.info().cause) return inner.message();
  return std::string(name_of(inner.code())) + " inside: " + inner.message();
}
std::shared_ptr<const ErrorInfo> bounded_cause(const Error& inner) {
  int depth = 0;
  for (const ErrorInfo* one = &inner.info(); one != nullptr; one = one->cause.get()) ++depth;
  return depth > kMostCauses ? inner.info().cause : inner.shared_info();
}

std::atomic<const EngineHooks*> g_hooks{nullptr};

}  // namespace

Engine::~Engine() = default;

void install(const EngineHooks* hooks) noexcept {
  g_hooks.store(hooks, std::memory_order_release);
}

Engine* Engine::current() noexcept {
  const EngineHooks* hooks = g_hooks.load(std::memory_order_acquire);
  return hooks == nullptr ? nullptr : hooks->current();
}

void release_object(ObjectEntry* entry) noexcept {
  const EngineHooks* hooks = g_hooks.load(std::memory_order_acquire);
  if (hooks != nullptr) hooks->release(entry);
}

Error error_from_current_exception(const char* function, Phase phase) noexcept {
  ErrorInfo info;
  info.code = Code::task_failed;
  info.outcome = phase == Phase::arguments ? Outcome::not_executed : Outcome::executed;
  info.origin.function = function;
  try {
    throw;
  } catch (const Error& error) {
    if (phase != Phase::running) {
      ErrorInfo same = error.info();
      same.outcome = info.outcome;
      if (same.origin.function.empty()) same.origin.function = function;
      return Error(std::move(same));
    }
    info.message = words_of(error);
    info.type = typeid(error).name();
    info.cause = bounded_cause(error);
  } catch (...) {
    const std::type_info* type = abi::__cxa_current_exception_type();
    info.type = type != nullptr ? type->name() : "";
    info.message = words_of_current_exception();
  }
  return Error(std::move(info));
}

std::optional<Error> run_thunk(const Callable& callable, Invocation& invocation) noexcept {
  try {
    callable.thunk(invocation);
    return std::nullopt;
  } catch (...) {
    return error_from_current_exception(callable.name, invocation.phase());
  }
}

}  // namespace troupe::detail
