#include "troupe/runtime/base/error.hpp"

#include "troupe/runtime/base/short_name.hpp"
#include "troupe/runtime/base/stack_reader.hpp"
#include "troupe/runtime/base/visible_text.hpp"

#include <cxxabi.h>
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <utility>

namespace troupe {
namespace {

std::atomic<StackReader> g_stack_reader{nullptr};

struct CodeText {
  std::string_view name;
  std::string_view advice;
};

CodeText text_of(Code code) noexcept {
  switch (code) {
    case Code::internal:
      return {"internal", "this is a bug in troupe: please report it with the text above"};
    case Code::task_failed:
      return {"task_failed",
              "the function itself threw: fix it, or list the type in retry_on if it is transient"};
    case Code::actor_died: return {"actor_died", "spawn the actor anew, or give it max_restarts"};
    case Code::actor_unavailable:
      return {"actor_unavailable",
              "the actor may come back: get the same ref again, or call again, if the call may run "
              "twice"};
    case Code::object_lost:
      return {
          "object_lost",
          "compute the value again; values from put survive a node only with replicas >= 2 or a "
          "spill folder that all nodes share"};
    case Code::cancelled: return {"cancelled", "somebody asked for this; nothing to do"};
    case Code::timed_out:
      return {"timed_out", "the work goes on: get the same ref again, or cancel it"};
    case Code::overloaded: return {"overloaded", "wait for results before submitting more"};
    case Code::unavailable:
      return {"unavailable",
              "look at `troupe status`; the call may be repeated once the part is back"};
    case Code::invalid_argument: return {"invalid_argument", "correct the argument named above"};
    case Code::infeasible: return {"infeasible", "ask for less, or add a node that has it"};
    case Code::out_of_memory:
      return {"out_of_memory", "give the task a larger `memory`, or run fewer at once"};
    case Code::out_of_disk:
      return {"out_of_disk", "free space in the spill folder, or name another one"};
    case Code::no_space:
      return {"no_space", "free space in control's data folder; it accepts writes again by itself"};
    case Code::poison_task:
      return {"poison_task", "the function crashes its process: run it alone under a debugger"};
    case Code::worker_died:
      return {
          "worker_died",
          "give the task max_retries if it may run twice; look at the worker's log for the crash"};
  }
  return {"unknown", "this build does not know the code: the peer is newer"};
}

std::string describe(const ErrorInfo& info) {
  std::string text = info.message;
  std::string place;
  const auto add = [&place](const std::string& part) {
    if (part.empty()) return;
    if (!place.empty()) place += ", ";
    place += part;
  };
  add(short_name(info.origin.function));
  if (!info.origin.node.empty()) add("node " + info.origin.node);
  if (info.origin.pid != 0) add("pid " + std::to_string(info.origin.pid));
  if (info.origin.attempt > 1) add("attempt " + std::to_string(info.origin.attempt));
  if (!place.empty()) text += " [" + place + "]";
  return text;
}

/// Returns the text of the error, or of its first cause that has one.
const std::string& first_text(const ErrorInfo& info, std::string ErrorInfo::* text) noexcept {
  const ErrorInfo* one = &info;
  while ((one->*text).empty() && one->cause) one = one->cause.get();
  return one->*text;
}

/// Returns the lines with an indent, so that no control character reaches a terminal.
std::string indented(std::string_view lines) {
  std::string text;
  while (!lines.empty()) {
    const auto end = std::min(lines.find('\n'), lines.size());
    text.append("\n    ").append(visible_text(lines.substr(0, end)));
    lines.remove_prefix(std::min(end + 1, lines.size()));
  }
  return text;
}

}  // namespace

/// What an Error shares with its copies beside its contents.
struct Error::Texts {
  explicit Texts(std::string text) : what(std::move(text)) {}
  const std::string what;
  mutable std::once_flag read;
  mutable std::string stack;  ///< made readable at the first question
};

void set_stack_reader(StackReader reader) noexcept {
  g_stack_reader.store(reader);
}

std::string_view name_of(Code code) noexcept {
  return text_of(code).name;
}
std::string_view advice_for(Code code) noexcept {
  return text_of(code).advice;
}

std::string_view name_of(Outcome outcome) noexcept {
  switch (outcome) {
    case Outcome::not_executed: return "not_executed";
    case Outcome::executed: return "executed";
    case Outcome::unknown: return "unknown";
  }
  return "unknown";
}

Error::Error(ErrorInfo info)
    : info_(std::make_shared<const ErrorInfo>(std::move(info))),
      texts_(std::make_shared<const Texts>(describe(*info_))) {}

Error::Error(Code code, std::string message, Outcome outcome)
    : Error([&] {
        ErrorInfo info;
        info.code = code;
        info.outcome = outcome;
        info.message = std::move(message);
        return info;
      }()) {}

Error::~Error() = default;

const char* Error::what() const noexcept {
  return texts_->what.c_str();
}

const std::string& Error::remote_stack() const noexcept {
  const std::string& frames = first_text(*info_, &ErrorInfo::remote_stack);
  const StackReader reader = g_stack_reader.load();
  if (frames.empty() || reader == nullptr) return frames;
  try {
    std::call_once(texts_->read, [&] { texts_->stack = reader(frames); });
    return texts_->stack;
  } catch (...) {
    return frames;
  }
}

const std::string& Error::last_lines() const noexcept {
  return first_text(*info_, &ErrorInfo::last_lines);
}

std::shared_ptr<const Error> Error::cause() const {
  if (!info_->cause) return nullptr;
  return std::make_shared<const Error>(*info_->cause);
}

// clang-format off
#define TROUPE_EACH_ERROR(X) \
  X(task_failed, TaskFailed) \
  X(actor_died, ActorDied) \
  X(actor_unavailable, ActorUnavailable) \
  X(object_lost, ObjectLost) \
  X(cancelled, Cancelled) \
  X(timed_out, TimedOut) \
  X(overloaded, Overloaded) \
  X(unavailable, Unavailable) \
  X(invalid_argument, InvalidArgument) \
  X(infeasible, Infeasible) \
  X(out_of_memory, OutOfMemory) \
  X(out_of_disk, OutOfDisk) \
  X(no_space, NoSpace) \
  X(poison_task, PoisonTask) \
  X(worker_died, WorkerDied)
// clang-format on

#define TROUPE_KEY_FUNCTION(code, Name) Name::~Name() = default;
TROUPE_EACH_ERROR(TROUPE_KEY_FUNCTION)
#undef TROUPE_KEY_FUNCTION

void raise(const Error& error) {
  switch (error.code()) {
#define TROUPE_RAISE(code, Name) \
  case Code::code: throw Name(error.info());
    TROUPE_EACH_ERROR(TROUPE_RAISE)
#undef TROUPE_RAISE
    case Code::internal: break;
  }
  throw Error(error);
}

std::string explain(const Error& error) {
  std::string text = std::string(name_of(error.code())) + ": " + error.what();
  for (auto cause = error.cause(); cause; cause = cause->cause())
    text += "\n  caused by " + std::string(name_of(cause->code())) + ": " + cause->what();
  if (!error.remote_stack().empty()) text += "\n  remote stack:\n" + error.remote_stack();
  if (!error.last_lines().empty())
    text += "\n  last lines of the process:" + indented(error.last_lines());
  text += "\n  the work was " + std::string(name_of(error.outcome()));
  text += "\n  next: " + std::string(advice_for(error.code()));
  return text;
}

std::string readable_type(const char* mangled) {
  int status = 0;
  char* plain = abi::__cxa_demangle(mangled, nullptr, nullptr, &status);
  std::string text = status == 0 && plain != nullptr ? plain : mangled;
  std::free(plain);
  return text;
}

}  // namespace troupe
