#include "troupe/runtime/client/run_in_place.hpp"

#include "troupe/runtime/client/run.hpp"
#include "troupe/runtime/os/throw_stack.hpp"

#include <unistd.h>
#include <optional>
#include <string>
#include <utility>

namespace troupe::client {
namespace {

/// Keeps the results of one call until it has ended.
class Results final : public detail::ResultSink {
 public:
  Results(ClientEngine& engine, const detail::Callable& callable)
      : engine_(engine), callable_(callable), rooms_(callable.results), values_(callable.results) {}

  std::span<std::byte> allocate(std::size_t index, std::size_t size) override {
    ValueRoom& room = rooms_.at(index);
    if (size > wire::kInlineValue || room.allocation) {
      room = engine_.value_bytes().make_room(size, {callable_.name});
    } else {
      room.size = size;
      room.inline_bytes.resize(size);
    }
    return room.bytes();
  }
  void publish(std::size_t index, std::span<const detail::ObjectHandle> refs) override {
    values_.at(index) = engine_.value_bytes().finish_room(std::move(rooms_.at(index)), refs);
    ++published_;
  }
  void forward(std::size_t index, const detail::ObjectHandle& object) override {
    values_.at(index).kind = wire::Value::Kind::forwarded;
    values_.at(index).forward = object;
    ++published_;
  }
  void fail(const Error& error) override {
    if (finished()) return;
    for (OutgoingValue& value : values_) {
      if (value.kind != wire::Value::Kind::pending) continue;
      value.kind = wire::Value::Kind::error;
      value.error = error.shared_info();
    }
    published_ = values_.size();
  }
  bool finished() const noexcept { return published_ == values_.size(); }
  std::vector<OutgoingValue>& values() noexcept { return values_; }

 private:
  ClientEngine& engine_;
  const detail::Callable& callable_;
  std::vector<ValueRoom> rooms_;
  std::vector<OutgoingValue> values_;
  std::size_t published_ = 0;
};

/// The bytes and refs of a call's inline arguments. Views keep this alive, so the call's record
/// may go.
struct Kept {
  SmallBuffer<72> bytes;
  std::vector<detail::ObjectHandle> refs;
};

/// Opens the arguments of a task that runs in place. Throws the error that the task must end in.
void open(ClientEngine& engine, const detail::Call& call, Arguments& arguments) {
  if (call.arguments.empty()) return;
  auto kept = std::allocate_shared<Kept>(FreeListAllocator<Kept>());
  kept->bytes = BlobView(call.bytes);
  kept->refs = call.refs;
  arguments.values.reserve(call.arguments.size());
  arguments.views.reserve(call.arguments.size());
  for (const detail::Argument& argument : call.arguments) {
    if (argument.object) {  // get() computes lost bytes again: this process has the call
      arguments.values.push_back(engine.get(argument.object, detail::kNoTimeout));
      continue;
    }
    arguments.values.push_back(
        {BlobView(kept->bytes).subspan(argument.offset, argument.size),
         std::span(kept->refs).subspan(argument.first_ref, argument.ref_count), kept});
  }
}

/// Returns whether an error of the chain has a stack. Only the innermost one, where the first
/// error was thrown, is kept: stacks of each level of a deep nesting would leave no room for it.
bool has_stack(const ErrorInfo& error) noexcept {
  for (const ErrorInfo* one = &error; one != nullptr; one = one->cause.get())
    if (!one->remote_stack.empty()) return true;
  return false;
}

}  // namespace

StackRoom StackRoom::of_this_thread() noexcept {
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return {};
  void* low = nullptr;
  std::size_t size = 0;
  const bool known = pthread_attr_getstack(&attributes, &low, &size) == 0;
  pthread_attr_destroy(&attributes);
  return known ? StackRoom(reinterpret_cast<std::uintptr_t>(low), size) : StackRoom{};
}

Error located_here(const ClientEngine& engine, const Error& error, const char* function,
                   std::uint32_t attempt) {
  ErrorInfo info = error.info();
  info.origin.node = engine.identity().node_name;
  info.origin.pid = ::getpid();
  if (info.origin.function.empty()) info.origin.function = function;
  info.origin.attempt = static_cast<int>(attempt);
  if (info.code == Code::task_failed && !has_stack(info)) info.remote_stack = os::thrown_stack();
  return Error(std::move(info));
}

bool InPlaceRuns::is_allowed() noexcept {
  if (pthread_equal(thread_, pthread_self()) == 0 || !allowed_) return false;
  if (!stack_) stack_ = StackRoom::of_this_thread();
  return stack_->is_enough(reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0)));
}

void InPlaceRuns::run(Task& task) noexcept {
  const detail::Callable& callable = *task.call.callable;
  const auto results = std::make_shared<Results>(engine_, callable);
  const std::shared_ptr<detail::ResultSink> sink = results;
  const os::NoteThrows noting;
  Arguments arguments;
  try {
    open(engine_, task.call, arguments);
    Run run(engine_, arguments, nullptr, false, sink);
    if (const std::optional<Error> error = detail::run_thunk(callable, run)) {
      end_if_fork(engine_, 1);
      results->fail(located_here(engine_, *error, callable.name, task.attempt));
    } else if (!results->finished()) {
      results->fail(Error(Code::internal, std::string(callable.name) + " ended without a result"));
    }
  } catch (...) {
    end_if_fork(engine_, 1);
    const Error error =
        detail::error_from_current_exception(callable.name, detail::Phase::arguments);
    results->fail(located_here(engine_, error, callable.name, task.attempt));
  }
  engine_.ended_here(task, results->values());
}

}  // namespace troupe::client
