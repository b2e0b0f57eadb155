#include "troupe/runtime/client/calls.hpp"

#include "troupe/runtime/client/demand.hpp"
#include "troupe/runtime/client/failed_tell.hpp"

#include <utility>

namespace troupe::client {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kMaxTasks = 4 << 20;
constexpr Duration kTick = 1ms;
constexpr Duration kSlowTick = 50ms;  ///< while no call waits behind another
/// A thread that only sends calls assist() once in so many calls. With 256 calls in flight at a
/// worker, that is often enough to keep it busy.
constexpr std::uint32_t kSendsPerLook = 16;

/// Undoes watch_arguments() for `who`.
void unwatch_arguments(const detail::Call& call, const void* who) {
  for (const auto& argument : call.arguments) {
    Entry* blocker = argument.object ? blocker_of(entry_of(argument.object)) : nullptr;
    if (blocker != nullptr && blocker->waiters.written())
      std::erase_if(blocker->waiters.edit(),
                    [who](const Waiter& waiter) { return waiter.who == who; });
  }
}

/// Returns the error of an argument that has ended in one; nullptr: none has.
const ErrorInfo* failed_argument(const detail::Call& call) {
  for (const auto& argument : call.arguments) {
    if (!argument.object) continue;
    const Entry& entry = entry_of(argument.object);
    if (!entry.ready.load(std::memory_order_acquire)) continue;
    const Entry& origin = origin_of(entry);
    if (origin.ready.load(std::memory_order_acquire) && origin.kind == wire::Value::Kind::error)
      return origin.error.get();
  }
  return nullptr;
}

bool has_objects(const detail::Call& call) {
  return std::any_of(call.arguments.begin(), call.arguments.end(),
                     [](const auto& argument) { return static_cast<bool>(argument.object); });
}

/// Adds the name of the called function to the error of a call that ended without a reply of its
/// worker. A lost argument arose elsewhere and stays as it is.
Error located(const Error& reason, const detail::Call& call, const detail::Request* request,
              int attempt) {
  if (!reason.where().function.empty() || reason.code() == Code::object_lost ||
      call.callable == nullptr)
    return reason;
  ErrorInfo info = reason.info();
  info.origin.function = place_of(call, request);
  info.origin.attempt = attempt;
  return Error(std::move(info));
}

}  // namespace

// --- making calls

LeaseKey Calls::key_for(const detail::Request* options) {
  if (options == nullptr) return 0;
  return classes_.key_for(demand_of(*options, 1));
}

bool Calls::names_objects(const detail::Call& call) const {
  bool takes = false;
  for (const detail::Argument& argument : call.arguments) {
    if (!argument.object) continue;
    takes = true;
    values_.expect_ours(argument.object);
  }
  for (const auto& ref : call.refs) values_.expect_ours(ref);
  return takes;
}

void Calls::submit(detail::Call&& call, const detail::Request* options,
                   std::span<detail::ObjectHandle> results, bool takes_objects) {
  if (tasks_.live() >= kMaxTasks)
    throw Overloaded(Code::overloaded, "4,194,304 tasks of this process wait already");
  const bool plain = options == nullptr && !takes_objects;
  const ProcessIndex worker = plain ? tasks_.open_way(0) : 0;
  const std::uint64_t sequence = sender_.send_ahead<Task>(worker, call, 0, results.size());
  std::unique_ptr<Task> owned(new Task{{}, std::move(call)});
  Task* task = owned.get();
  if (options != nullptr) {
    task->request = std::make_unique<const detail::Request>(*options);
    task->retries_left = options->max_retries;
  }
  for (auto& result : results) result = values_.objects().create();
  if (const ErrorInfo* error = takes_objects ? failed_argument(task->call) : nullptr) {
    for (auto& result : results)
      values_.settle_error(entry_of(result), of_call_not_run(Error(*error)));
    return;
  }
  for (const auto& result : results) {
    task->results.push_back(result);
    entry_of(result).task = task;
  }
  task->key = static_cast<std::uint32_t>(key_for(options).value);
  task->sequence = sequence;
  task->light = sequence != 0 && results.size() == 1;
  if (takes_objects) task->waiting = static_cast<std::uint16_t>(watch_arguments(*task));
  start(std::move(owned), sequence != 0 ? worker : 0);
  look_around();
}

void Calls::call(const detail::ActorHandle& actor, detail::Call&& call,
                 std::span<detail::ObjectHandle> results, bool takes_objects) {
  const ProcessIndex worker = takes_objects ? 0 : actors_.open_way(actor.id);
  const std::uint64_t sequence =
      sender_.send_ahead<ActorCall>(worker, call, actor.id.low, results.size());
  if (sequence == 0) actors_.check_room(actor.id);  // before anything points at the call
  std::unique_ptr<ActorCall> owned(new ActorCall{{}, actor.id, std::move(call)});
  ActorCall* pending = owned.get();
  pending->lifetime = actor.lifetime;
  pending->sequence = sequence;
  pending->light = sequence != 0 && results.size() == 1;
  for (auto& result : results) result = values_.objects().create();
  for (const auto& result : results) pending->results.push_back(result);
  if (takes_objects) {
    if (const ErrorInfo* error = failed_argument(pending->call))
      pending->argument_error = std::make_shared<const Error>(*error);
    pending->waiting = watch_arguments(*pending);
  }
  if (sequence != 0) {
    actors_.sent(std::move(owned));
  } else {
    try {
      actors_.submit(std::move(owned));
    } catch (...) {
      if (owned) unwatch_arguments(owned->call, pending);
      throw;
    }
  }
  if (next_look_ == Time::max()) look_later();
  look_around();
}

std::uint32_t Calls::watch_arguments(const detail::Call& call, Waiter waiter) try {
  std::uint32_t waiting = 0;
  for (const auto& argument : call.arguments) {
    if (!argument.object) continue;
    entry_of(argument.object).argued = true;
    Entry* blocker = blocker_of(entry_of(argument.object));
    if (blocker == nullptr) continue;
    ++waiting;
    blocker->waiters.edit().push_back(waiter);
    values_.need(entry_of(argument.object), false);
  }
  return waiting;
} catch (...) {  // out of memory: some may be watched
  unwatch_arguments(call, waiter.who);
  throw;
}

std::uint32_t Calls::watch_arguments(Task& task) {
  const auto fire = [](Calls& calls, void* who, Entry& entry) {
    auto& waiting = *static_cast<Task*>(who);
    if (entry.kind == wire::Value::Kind::error)
      calls.tasks_.argument_failed(waiting, Error(*entry.error));
    else
      calls.tasks_.argument_ready(waiting, steady_now());
  };
  return watch_arguments(task.call, {fire, &task});
}

std::uint32_t Calls::watch_arguments(ActorCall& call) {
  const auto fire = [](Calls& calls, void* who, Entry& entry) {
    auto& waiting = *static_cast<ActorCall*>(who);
    if (entry.kind == wire::Value::Kind::error)
      calls.actors_.argument_failed(waiting, Error(*entry.error));
    else
      calls.actors_.argument_ready(waiting);
  };
  return watch_arguments(call.call, {fire, &call});
}

void Calls::run_again(std::unique_ptr<Task> task) {
  if (const ErrorInfo* error = failed_argument(task->call)) {
    fail(*task, TaskManager::of_all_attempts(*task, of_call_not_run(Error(*error))));
    return;
  }
  task->key = static_cast<std::uint32_t>(key_for(task->request.get()).value);
  task->waiting = static_cast<std::uint16_t>(watch_arguments(*task));
  start(std::move(task));
}

/// Hands a task to the TaskManager: it is sent as soon as its arguments are ready. `sent_to`: the
/// worker that send_ahead() has sent it to, or 0. Precondition: its arguments are watched.
void Calls::start(std::unique_ptr<Task>&& owned, ProcessIndex sent_to) {
  const LazyTime now(&steady_now);
  if (sent_to != 0) {
    tasks_.sent(std::move(owned), sent_to, now);
  } else {
    try {
      tasks_.submit(std::move(owned), now);
    } catch (...) {
      if (owned) unwatch_arguments(owned->call, owned.get());
      throw;
    }
  }
  // A lone task has no task behind it that could be handed back. A near timer would cost each of
  // its waits, so it gets a later one.
  next_tick_ = std::min(next_tick_, now() + (tasks_.live() > 1 ? kTick : kSlowTick));
  set_timer();
}

/// Sets the timer for let_go_of_unwanted(). No event says that only calls still hold an actor or
/// a result, so it has to be checked now and then.
void Calls::look_later() {
  next_look_ = steady_now() + ActorCalls::kUnwantedLook;
  next_tick_ = std::min(next_tick_, next_look_);
  set_timer();
}

/// Called after a send. The call is recorded by now, so an error here must not count as the
/// call's: noexcept. (A reply for which there is no memory ends the process, as in the I/O
/// thread.)
void Calls::look_around() noexcept {
  if (++sent_since_look_ < kSendsPerLook) return;
  sent_since_look_ = 0;
  if (loop_ != nullptr) loop_->assist();
}

bool Calls::is_own(const Entry& entry) const {
  if (!sender_.loopback().on_actor_thread()) return false;
  for (const Entry* at = &entry; at != nullptr; at = next_of(*at))
    if (!at->ready.load(std::memory_order_relaxed) && actors_.owes(sender_.loopback().actor(), *at))
      return true;
  return false;
}

// --- leases and workers

void Calls::request_lease(LeaseKey key, std::uint32_t backlog) {
  const SchedulingClasses::Class& cls = classes_.at(key);
  out_.tell(wire::RequestLease{key, backlog, cls.demand, cls.near, cls.bytes}, {});
  // Also needed when the arguments became ready long after the submission and the last tick.
  next_tick_ = std::min(next_tick_, steady_now() + TaskManager::kAskAgain);
}

/// Chooses the key of the node with most bytes of the task's large arguments. It is a preference:
/// the task runs elsewhere if there is no room.
void Calls::placed(Task& task) {
  if (task.key == 0 && !has_objects(task.call)) return;  // mostly
  Nearest most;
  for (const auto& argument : task.call.arguments) {
    if (!argument.object) continue;
    const Entry& origin = origin_of(entry_of(argument.object));
    if (!origin.ready.load(std::memory_order_acquire)) continue;
    const bool far = origin.kind == wire::Value::Kind::remote &&
                     origin.fetched.load(std::memory_order_acquire) == nullptr;
    if (far)
      most.add(classes_.node(origin.location->segment), origin.location->length);
    else if (origin.kind == wire::Value::Kind::shared || origin.kind == wire::Value::Kind::remote)
      most.add(self_.node, origin.location->length);
  }
  if (most.bytes() != 0 || classes_.at(lease_key(task)).bytes != 0)
    task.key = static_cast<std::uint32_t>(classes_.place(lease_key(task), most, self_.node).value);
}

bool Calls::send(ProcessIndex worker, ActorCall& call) {
  if (worker != self_.process) return sender_.send(worker, call);
  sender_.deliver_here(call);
  notify();
  return true;
}

void Calls::fail(Task& task, const Error& reason) {
  Error error = located(reason, task.call, task.request.get(), static_cast<int>(task.attempt));
  if (task.spec != nullptr) {
    recovery_.lineage().failed(*std::exchange(task.spec, nullptr), Spec::End::failed);
    error = Recovery::cannot_run_again(task, error);
  }
  for (const auto& result : task.results)
    if (!entry_of(result).ready.load(std::memory_order_relaxed))
      values_.settle_error(entry_of(result), error);
}

void Calls::fail(ActorCall& call, const Error& reason) {
  const Error error = located(reason, call.call, nullptr, 0);
  if (call.results.empty()) log_failed_tell(call, error);
  for (const auto& result : call.results)
    if (!entry_of(result).ready.load(std::memory_order_relaxed))
      values_.settle_error(entry_of(result), error);
}

}  // namespace troupe::client
