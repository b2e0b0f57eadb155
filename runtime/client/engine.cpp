#include "troupe/runtime/client/engine.hpp"

#include "troupe/runtime/base/build_id.hpp"
#include "troupe/runtime/base/version.hpp"
#include "troupe/runtime/base/wait.hpp"
#include "troupe/runtime/client/current_engine.hpp"
#include "troupe/runtime/client/failed_tell.hpp"
#include "troupe/runtime/client/log_printer.hpp"
#include "troupe/runtime/client/session_engine.hpp"
#include "troupe/runtime/engine/registry.hpp"
#include "troupe/runtime/os/process_title.hpp"
#include "troupe/runtime/wire/peer.hpp"

#include <sys/socket.h>
#include <unistd.h>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace troupe::client {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kMaxInlineArguments =
    8 * 1024;  ///< all inline arguments of a call; larger ones become objects
constexpr std::size_t kSmallCall = 256;  ///< fits in any case, with few arguments and no refs
constexpr std::size_t kMaxCallArguments = 200;
constexpr std::size_t kMaxTasks = 4 << 20;
constexpr Duration kTick = 1ms;
constexpr Duration kSlowTick = 50ms;  ///< while no call waits behind another
constexpr Duration kAgentAnswers = 10s;

wire::ResourceDemand demand_of(const detail::Request& request, double default_cpus) {
  const auto fixed = [](double amount) {
    return static_cast<std::int64_t>(std::llround(amount * 10'000));
  };
  wire::ResourceDemand demand;
  demand.cpus = fixed(request.cpus.value_or(default_cpus));
  demand.gpus = fixed(request.gpus);
  demand.memory_bytes = request.memory.count;
  for (const auto& [name, amount] : request.resources)
    demand.resources.emplace_back(name, fixed(amount));
  demand.labels = request.labels;
  demand.placement = static_cast<std::uint8_t>(request.placement);
  demand.node = request.node;
  demand.soft = request.soft;
  return demand;
}

/// Refuses amounts that would overflow, or round to nothing: no later stage checks them.
void check_amounts(const detail::Request& request) {
  constexpr double kMost = 1e9, kLeast = 0.0001;
  const auto check = [](const char* what, double amount) {
    if (amount == 0 || (amount >= kLeast && amount <= kMost)) return;
    char text[32];
    std::snprintf(text, sizeof text, "%.6g", amount);
    throw InvalidArgument(Code::invalid_argument,
                          std::string("option '") + what + "' is " + text +
                              ": give 0, or a number from 0.0001 to 1e9",
                          Outcome::not_executed);
  };
  check("cpus", request.cpus.value_or(0));
  check("gpus", request.gpus);
  for (const auto& [name, amount] : request.resources) check(name.c_str(), amount);
  if (request.max_restarts < -1 || request.max_retries < -1)
    throw InvalidArgument(
        Code::invalid_argument,
        "options 'max_restarts' and 'max_retries' are -1 (without limit), 0 or more, not " +
            std::to_string(std::min(request.max_restarts, request.max_retries)),
        Outcome::not_executed);
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

/// Reads the limit of kept lineage. A worker ignores a malformed text, since its driver refuses
/// it.
Bytes lineage_limit_of(wire::ProcessKind kind) {
  try {
    return wire::lineage_limit(Environment());
  } catch (const InvalidArgument&) {
    if (kind == wire::ProcessKind::driver) throw;
    return wire::kDefaultLineage;
  }
}

}  // namespace

CurrentEngine current_engine;

ClientEngine* ClientEngine::current() noexcept {
  return current_engine.any.load(std::memory_order_acquire);
}

void ClientEngine::gets_visits() noexcept {
  current_engine.unvisited.store(nullptr, std::memory_order_seq_cst);
}

ClientEngine::ClientEngine(Start start)
    : kind_(start.kind),
      recovery_(static_cast<Recovery::Out&>(*this), values_, classes_,
                start.kind == wire::ProcessKind::worker, lineage_limit_of(start.kind)),
      abandon_(start.abandon) {
  agent_.connect(std::move(start.socket));
  try {
    begin(start);
  } catch (const Error& error) {
    // Tell the agent what was missing; it tells those who wait for this worker.
    if (kind_ == wire::ProcessKind::worker && error.code() == Code::out_of_memory)
      (void)agent_.socket().send(writer_.encode(wire::NodeMessage(wire::Shutdown{error.message()})),
                                 {});
    throw;
  }
}

void ClientEngine::begin(const Start& start) {
  peers_.bell() = ring::Doorbell::create().value();
  say_hello(start);
  io_loop_.reset(new IoLoop(static_cast<IoLoop::Host&>(*this), peers_.bell(), lock_));
  // A message may have arrived already. Holding the lock keeps the I/O thread from handling it
  // until current_engine is set: handles that it drops must be released by this engine. Without an
  // engine they would be deleted although others still know the objects.
  const Guard lock = guard();
  io_loop_->start();
  tell_agent(wire::StoreAttached{});  // from here on the agent may lease a worker out
  store_.begin(*this);
  current_engine.any.store(this, std::memory_order_seq_cst);
  current_engine.unvisited.store(this, std::memory_order_seq_cst);
}

ClientEngine::~ClientEngine() {
  stop();
  store_.end();
  {
    const Guard lock = guard();
    recovery_.lineage().clear();
  }
  // No agent is left to tell: just delete entries that were released while the engine stopped.
  for (Entry* entry = released_.exchange(nullptr); entry != nullptr;) {
    Entry* next = entry->next_released;
    delete entry;
    entry = next != nullptr ? next : released_.exchange(nullptr);
  }
  for (Resume* resume : resumes_) delete resume;
}

void ClientEngine::say_hello(const Start& start) {
  wire::Hello hello = start.hello;
  hello.protocol = kProtocolVersion;
  hello.build = executable_build_id();
  hello.kind = start.kind;
  hello.pid = static_cast<std::uint32_t>(::getpid());
  hello.token = start.token;
  const int descriptors[] = {peers_.bell().memory_fd(), peers_.bell().event_fd()};
  if (!agent_.socket().send(writer_.encode(wire::NodeMessage(hello)), descriptors))
    throw Unavailable(Code::unavailable, "the node's agent closed the connection at once");
  const Time deadline = steady_now() + kAgentAnswers;
  while (!values_.has_begun() || !store_.is_attached()) {
    auto received = agent_.socket().receive(frame_);
    if (received.kind == os::Received::Kind::closed)
      throw Unavailable(Code::unavailable,
                        "the node's agent closed the connection before it answered");
    if (received.kind == os::Received::Kind::starved) raise(DescriptorLack::error());
    if (received.kind == os::Received::Kind::empty) {
      pollfd entry{agent_.socket().fd(), POLLIN, 0};
      const Duration left = deadline - steady_now();
      if (left <= Duration(0) || wait_for({&entry, 1}, left) == 0)
        throw Unavailable(Code::unavailable, "the node's agent did not answer within 10 s");
      continue;
    }
    auto decoded = wire::decode_node(BlobView(frame_.data(), received.size));
    if (!decoded) raise(decoded.error());
    if (auto* shutdown = std::get_if<wire::Shutdown>(&decoded->message))
      throw Unavailable(Code::unavailable, "the node's agent refused: " + shutdown->why);
    if (auto* welcome = std::get_if<wire::Welcome>(&decoded->message))
      be_welcomed(*welcome, std::move(received.descriptors));
    else if (auto* tables = std::get_if<wire::StoreTables>(&decoded->message);
             tables && values_.has_begun())
      store_.attach(*tables, std::move(received.descriptors));
    else
      throw Unavailable(Code::unavailable,
                        "the node's agent answered with something else than a welcome");
  }
}

void ClientEngine::be_welcomed(const wire::Welcome& welcome, std::vector<Fd> descriptors) {
  if (welcome.protocol != kProtocolVersion)
    throw Unavailable(Code::unavailable,
                      "the node speaks protocol " + std::to_string(welcome.protocol) +
                          ", this program protocol " + std::to_string(kProtocolVersion) +
                          ": use the same troupe on both sides");
  agent_.attach(std::move(descriptors), welcome.agent_slot, welcome.my_slot);
  node_ = welcome.node;
  if (kind_ == wire::ProcessKind::worker)
    os::show_title("troupe: worker " + welcome.node_name + " job " +
                   welcome.job.str().substr(0, 8));
  node_name_ = welcome.node_name;
  job_ = welcome.job;
  process_ = welcome.process;
  work_.belongs_to(process_);
  recovery_.belongs_to(process_);
  std::uint64_t high = 0, unused = 0;
  detail::random_id(high, unused);
  values_.begin(process_, high, static_cast<std::uint8_t>(serial_));
}

void ClientEngine::finish(bool failed) {
  if (!stopping_.load()) {
    Guard lock = guard();
    io_loop_->wait(
        lock, [this] { return agent_.is_lost() || actors_.live() == 0; },
        steady_now() + kLastCalls);
    tell_agent(wire::Shutdown{failed ? "" : "its driver is done"});
    awaits_end_of_job_ = !agent_.is_lost();
    unlock_and_collect(lock);
    if (log_printer_ != nullptr) log_printer_->finish(!awaits_end_of_job_);
  }
  stop();
}

void ClientEngine::print_logs(LogPrinter& printer) {
  const Guard lock = guard();
  log_printer_ = &printer;
}

void ClientEngine::ask_agent(const wire::NodeMessage& message) {
  Guard lock = guard();
  if (!agent_.is_lost()) tell_agent(message);
  unlock_and_collect(lock);
}

void ClientEngine::on_log(detail::OnLog take) {
  if (kind_ != wire::ProcessKind::driver)
    throw InvalidArgument(Code::invalid_argument,
                          "on_log is for the driver of a job: a task or actor writes lines");
  if (log_printer_ != nullptr) log_printer_->on_log(std::move(take));
}

/// Closes this side of the connection and waits until the agent closes the other, at most
/// kJobEnds.
void ClientEngine::await_end_of_job() {
  (void)agent_.socket().flush();
  ::shutdown(agent_.socket().fd(), SHUT_WR);
  const Time deadline = steady_now() + kJobEnds;
  for (;;) {
    const auto received = agent_.socket().receive(frame_);
    if (received.kind == os::Received::Kind::closed) return;
    if (received.kind == os::Received::Kind::packet) continue;
    if (received.kind == os::Received::Kind::starved) {  // nothing reads it any more
      agent_.socket().skip();
      continue;
    }
    const Duration left = deadline - steady_now();
    pollfd entry{agent_.socket().fd(), POLLIN, 0};
    if (left <= Duration(0) || wait_for({&entry, 1}, left) == 0) return;
  }
}

void ClientEngine::stop() {
  if (stopping_.exchange(true)) return;
  io_loop_->stop();
  if (awaits_end_of_job_) await_end_of_job();
  // close() is not enough: a fork of this process may have it open. A worker's connection ends with
  // its process, since the agent kills a worker that closes it.
  if (kind_ != wire::ProcessKind::worker) agent_.socket().shut_down();
  // With the lock held nothing arrives any more: the leader of the I/O loop has seen its end.
  // Only then may handles be dropped without an engine (current_engine is null below).
  const Guard lock = guard();
  drop_spent();
  end_following();
  current_engine.unvisited.store(nullptr, std::memory_order_seq_cst);
  current_engine.any.store(nullptr, std::memory_order_seq_cst);
  give_up_notices();  // after current_engine is null, since callbacks ask for it
}

// --- handles
// ---------------------------------------------------------------------------------------------------------

void ClientEngine::collect_and_unlock(Guard& guard) {
  do {
    collect_released();
    guard.unlock();
  } while (has_leftovers() && lock_.try_lock() && (guard = Guard(lock_, std::adopt_lock), true));
}

void ClientEngine::release(Entry* entry) noexcept {
  if (is_alone(*entry)) {
    delete entry;
    return;
  }
  Entry* head = released_.load(std::memory_order_relaxed);
  do {
    entry->next_released = head;
  } while (!released_.compare_exchange_weak(head, entry, std::memory_order_seq_cst));
  // This thread pushes first and then tries the lock; the holder unlocks first and then checks
  // has_leftovers() (unlock_and_collect()). So one of the two sees the other, and no entry is
  // left behind.
  if (lock_.held_by_this_thread() || !lock_.try_lock())
    return;  // the holder collects when it unlocks
  Guard guard(lock_, std::adopt_lock);
  unlock_and_collect(guard);
}

// --- calls
// -----------------------------------------------------------------------------------------------------------

std::uint32_t ClientEngine::watch_arguments(const detail::Call& call, Waiter waiter) try {
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

/// Undoes watch_arguments() for `who`.
void ClientEngine::unwatch_arguments(const detail::Call& call, const void* who) {
  for (const auto& argument : call.arguments) {
    Entry* blocker = argument.object ? blocker_of(entry_of(argument.object)) : nullptr;
    if (blocker != nullptr && blocker->waiters.written())
      std::erase_if(blocker->waiters.edit(),
                    [who](const Waiter& waiter) { return waiter.who == who; });
  }
}

const ErrorInfo* ClientEngine::failed_argument(const detail::Call& call) {
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

void ClientEngine::shrink_arguments(detail::Call& call) {
  if (call.arguments.size() > kMaxCallArguments)
    throw InvalidArgument(Code::invalid_argument,
                          "a call takes at most 200 arguments: put them into a vector");
  if (call.arguments.size() <= wire::kPlainArguments && call.refs.empty() &&
      call.bytes.size() < kSmallCall)
    return;
  // In the message an argument takes its bytes, aligned, and the ids of its refs.
  const auto room_for = [](const detail::Argument& argument) {
    return argument.size + 16 + argument.ref_count * sizeof(ObjectId);
  };
  const auto put_one = [&](detail::Argument& argument) {
    argument.object = put(BlobView(call.bytes).subspan(argument.offset, argument.size),
                          std::span(call.refs).subspan(argument.first_ref, argument.ref_count),
                          {call.callable->name});
    argument.size = 0;
    argument.ref_count = 0;
  };
  // Each argument also has a header.
  const std::size_t limit =
      std::min(kMaxInlineArguments, ring::kMaxFrame - 1024 - 72 * call.arguments.size());
  std::size_t total = 0;
  for (auto& argument : call.arguments) {
    if (argument.object) continue;
    if (argument.size > wire::kInlineValue || argument.ref_count > wire::kMaxRefs)
      put_one(argument);
    else
      total += room_for(argument);
  }
  // Make objects of the larger arguments first, until the rest fits.
  for (const std::size_t at_least : {std::size_t{272}, std::size_t{64}, std::size_t{0}})
    for (auto& argument : call.arguments) {
      if (total <= limit) return;
      if (argument.object || room_for(argument) < at_least) continue;
      total -= room_for(argument);
      put_one(argument);
    }
}

/// Returns whether objects are among the arguments. Throws for objects of another session.
bool ClientEngine::takes_objects(const detail::Call& call) const {
  bool takes = false;
  for (const detail::Argument& argument : call.arguments) {
    if (!argument.object) continue;
    takes = true;
    expect_ours(argument.object);
  }
  for (const auto& ref : call.refs) expect_ours(ref);
  return takes;
}

void ClientEngine::expect_ours(const detail::ObjectHandle& object) const {
  if (object && is_foreign(entry_of(object))) raise(of_another_session());
}

Error ClientEngine::of_another_session() {
  return Error(Code::invalid_argument,
               "this Ref, or handle of an actor, is of a session that has ended, and what it named "
               "went with that",
               Outcome::not_executed);
}

LeaseKey ClientEngine::key_for(const detail::Request* options) {
  if (options == nullptr) return 0;
  return classes_.key_for(demand_of(*options, 1));
}

void ClientEngine::submit(detail::Call&& call, const detail::Request* options,
                          std::span<detail::ObjectHandle> results) {
  if (options != nullptr) check_amounts(*options);
  shrink_arguments(call);
  const bool objects = takes_objects(call);
  Guard lock = guard();
  if (agent_.is_lost()) raise(agent_.why_lost());
  if (tasks_.live() >= kMaxTasks)
    throw Overloaded(Code::overloaded, "4,194,304 tasks of this process wait already");
  const bool plain = options == nullptr && !objects;
  const ProcessIndex worker = plain ? tasks_.open_way(0) : 0;
  const std::uint64_t sequence = send_ahead<Task>(worker, call, 0, results.size());
  std::unique_ptr<Task> owned(new Task{{}, std::move(call)});
  Task* task = owned.get();
  if (options != nullptr) {
    task->request = std::make_unique<const detail::Request>(*options);
    task->retries_left = options->max_retries;
  }
  for (auto& result : results) result = values_.objects().create();
  if (const ErrorInfo* error = objects ? failed_argument(task->call) : nullptr) {
    for (auto& result : results)
      values_.settle_error(entry_of(result), of_call_not_run(Error(*error)));
    unlock_and_collect(lock);
    return;
  }
  for (const auto& result : results) {
    task->results.push_back(result);
    entry_of(result).task = task;
  }
  task->key = static_cast<std::uint32_t>(key_for(options).value);
  task->sequence = sequence;
  task->light = sequence != 0 && results.size() == 1;
  if (objects) watch_arguments(*task);
  start(std::move(owned), sequence != 0 ? worker : 0);
  look_around();
  unlock_and_collect(lock);
}

Waiter ClientEngine::waiter_of(Task& task) {
  return {[](ClientEngine& engine, void* who, Entry& entry) {
            auto* t = static_cast<Task*>(who);
            TaskManager& tasks = engine.tasks_;
            if (entry.kind == wire::Value::Kind::error)
              tasks.argument_failed(*t, Error(*entry.error));
            else
              tasks.argument_ready(*t, steady_now());
          },
          &task};
}

void ClientEngine::watch_arguments(Task& task) {
  task.waiting = static_cast<std::uint16_t>(watch_arguments(task.call, waiter_of(task)));
}

/// Submits a task once more, to compute a lost value. Its old key may be forgotten.
void ClientEngine::run_again(std::unique_ptr<Task> task) {
  if (const ErrorInfo* error = failed_argument(task->call)) {
    fail(*task, TaskManager::of_all_attempts(*task, of_call_not_run(Error(*error))));
    return;
  }
  task->key = static_cast<std::uint32_t>(key_for(task->request.get()).value);
  watch_arguments(*task);
  start(std::move(task));
}

/// Hands a task to the TaskManager: it is sent as soon as its arguments are ready. `sent_to`: the
/// worker that send_ahead() has sent it to, or 0. Precondition: its arguments are watched. Under
/// the lock.
void ClientEngine::start(std::unique_ptr<Task>&& owned, ProcessIndex sent_to) {
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
  if (io_loop_) io_loop_->set_timer(next_tick_);
}

detail::ActorHandle ClientEngine::spawn(detail::Call&& call, const detail::Request* options) {
  detail::Request request;
  if (options != nullptr) {
    check_amounts(*options);
    request = *options;
  }
  if (request.get_if_exists && request.name.empty())
    throw InvalidArgument(Code::invalid_argument, "get_if_exists needs a name");
  if (request.detached && request.name.empty())
    throw InvalidArgument(Code::invalid_argument,
                          "a detached actor needs a name: nobody could find it again");
  shrink_arguments(call);
  takes_objects(call);
  Guard lock = guard();
  if (agent_.is_lost()) raise(agent_.why_lost());
  collect_released();  // the name may be that of an actor whose last handle was just dropped
  wire::CreateActor message;
  // No object has this id: a person names both by their ids.
  message.actor = ActorId{values_.objects().high(), values_.objects().next_low()};
  detail::ObjectHandle lifetime = values_.objects().create();
  values_.objects().mark_promoted(entry_of(lifetime));
  message.lifetime = lifetime.id();
  message.name = request.name;
  message.name_space = request.name_space;
  message.class_name = call.callable->class_name;
  message.detached = request.detached;
  message.get_if_exists = request.get_if_exists;
  message.max_restarts = request.max_restarts;
  message.restart_window_ns = static_cast<std::uint64_t>(request.restart_window.count());
  message.demand = demand_of(request, 0);
  // The agent keeps the creation call, so it becomes the owner of all that the call names.
  const std::size_t beside = writer_.encode(wire::NodeMessage(message)).size();
  message.creation = call_that_fits(
      call, {.holder = kAgentProcess, .by_reference = true, .recovers = true}, beside);
  if (request.name.empty()) {
    tell_agent(wire::NodeMessage(message), payload_);
    unlock_and_collect(lock);
    return {message.actor, std::move(lifetime)};
  }
  // The name may be taken: the answer decides which actor the handle names.
  const ActorId id = message.actor;
  const std::uint64_t number = message.request = questions_.ask<wire::FoundActor>();
  const wire::FoundActor found = ask_for_name(lock, std::move(message), payload_, number);
  if (!found.found)
    throw InvalidArgument(Code::invalid_argument,
                          "no actor could be made under the name '" + request.name + "'");
  if (found.actor != id && !request.get_if_exists) {
    bool fresh = false;
    const detail::ObjectHandle other = values_.adopt(found.lifetime, fresh);
    if (!fresh) tell_agent(wire::Hold{found.lifetime, process_, -1});
    unlock_and_collect(lock);
    throw InvalidArgument(
        Code::invalid_argument,
        "an actor named '" + request.name + "' exists already: use find, or get_if_exists");
  }
  bool fresh = false;
  detail::ObjectHandle held = values_.adopt(found.lifetime, fresh);
  if (!fresh) tell_agent(wire::Hold{found.lifetime, process_, -1});
  unlock_and_collect(lock);
  return {found.actor, std::move(held)};
}

/// Sends the question with this number, which a FoundActor answers, and waits for the answer.
wire::FoundActor ClientEngine::ask_for_name(Guard& lock, const wire::NodeMessage& question,
                                            BlobView payload, std::uint64_t request) {
  tell_agent(question, payload);
  block_until(
      lock, [&] { return questions_.is_answered(request); }, steady_now() + kAgentAnswers);
  auto answer = questions_.take<wire::FoundActor>(request);
  if (!answer) throw Unavailable(Code::unavailable, "the node's agent did not answer within 10 s");
  if (answer->error) {
    unlock_and_collect(lock);
    raise(Error(*answer->error));
  }
  return std::move(*answer);
}

std::optional<detail::ActorHandle> ClientEngine::find(const std::string& name,
                                                      const char* class_name) {
  Guard lock = guard();
  const std::uint64_t request = questions_.ask<wire::FoundActor>();
  const wire::FoundActor found =
      ask_for_name(lock, wire::FindActor{request, name, ""}, {}, request);
  if (!found.found) {
    unlock_and_collect(lock);
    return std::nullopt;
  }
  bool fresh = false;
  detail::ObjectHandle lifetime = values_.adopt(found.lifetime, fresh);
  if (!fresh) tell_agent(wire::Hold{found.lifetime, process_, -1});
  unlock_and_collect(lock);
  if (found.class_name != class_name)
    throw InvalidArgument(Code::invalid_argument, "the actor '" + name + "' is a " +
                                                      found.class_name + ", not a " + class_name);
  return detail::ActorHandle{found.actor, std::move(lifetime)};
}

void ClientEngine::kill(const detail::ActorHandle& actor, bool may_restart) {
  Guard lock = guard();
  tell_agent(wire::KillActor{actor.id, may_restart});
  if (may_restart)
    actors_.ending_life(actor.id);
  else
    actors_.killed(actor.id);
  unlock_and_collect(lock);
}

detail::ActorHandle ClientEngine::adopt_actor(ActorId id, detail::ObjectHandle lifetime) {
  return {id, std::move(lifetime)};
}

detail::ActorHandle ClientEngine::self(ActorId actor, ObjectId lifetime) {
  Guard lock = guard();
  bool fresh = false;
  detail::ObjectHandle handle = values_.adopt(lifetime, fresh);
  if (fresh) tell_agent(wire::Hold{lifetime, process_, +1});
  unlock_and_collect(lock);
  return {actor, std::move(handle)};
}

void ClientEngine::call(const detail::ActorHandle& actor, detail::Call&& call,
                        std::span<detail::ObjectHandle> results) {
  if (!actor)
    throw InvalidArgument(Code::invalid_argument, "call through an empty Actor: it was moved from");
  expect_ours(actor.lifetime);
  shrink_arguments(call);
  const bool objects = takes_objects(call);
  Guard lock = guard();
  if (agent_.is_lost()) raise(agent_.why_lost());
  const ProcessIndex worker = objects ? 0 : actors_.open_way(actor.id);
  const std::uint64_t sequence = send_ahead<ActorCall>(worker, call, actor.id.low, results.size());
  if (sequence == 0) actors_.check_room(actor.id);  // before anything points at the call
  std::unique_ptr<ActorCall> owned(new ActorCall{{}, actor.id, std::move(call)});
  ActorCall* pending = owned.get();
  pending->lifetime = actor.lifetime;
  pending->sequence = sequence;
  pending->light = sequence != 0 && results.size() == 1;
  for (auto& result : results) result = values_.objects().create();
  for (const auto& result : results) pending->results.push_back(result);
  if (objects) watch_arguments(*pending);
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
  unlock_and_collect(lock);
}

/// Sets the timer for let_go_of_unwanted(). No event says that only calls still hold an actor or
/// a result, so it has to be checked now and then.
void ClientEngine::look_later() {
  next_look_ = steady_now() + ActorCalls::kUnwantedLook;
  next_tick_ = std::min(next_tick_, next_look_);
  if (io_loop_) io_loop_->set_timer(next_tick_);
}

void ClientEngine::watch_arguments(ActorCall& call) {
  ActorCall* pending = &call;
  if (const ErrorInfo* error = failed_argument(pending->call))
    pending->argument_error = std::make_shared<const Error>(*error);
  pending->waiting =
      watch_arguments(pending->call, {[](ClientEngine& engine, void* who, Entry& entry) {
                                        auto* c = static_cast<ActorCall*>(who);
                                        ActorCalls& actors = engine.actors_;
                                        if (entry.kind == wire::Value::Kind::error)
                                          actors.argument_failed(*c, Error(*entry.error));
                                        else
                                          actors.argument_ready(*c);
                                      },
                                      pending});
}

// --- where am I
// ------------------------------------------------------------------------------------------------------

std::vector<detail::NodeInfo> ClientEngine::nodes() {
  Guard lock = guard();
  const std::uint64_t request = questions_.ask<wire::Nodes>();
  tell_agent(wire::ListNodes{request});
  block_until(
      lock, [&] { return questions_.is_answered(request); }, steady_now() + kAgentAnswers);
  const auto answer = questions_.take<wire::Nodes>(request);
  unlock_and_collect(lock);
  if (!answer) throw Unavailable(Code::unavailable, "the node's agent did not answer within 10 s");
  std::vector<detail::NodeInfo> rows;
  for (const auto& row : answer->rows) {
    const auto plain = [](std::int64_t fixed) { return static_cast<double>(fixed) / 10'000; };
    detail::NodeInfo info;
    info.id = row.id;
    info.name = row.name;
    info.alive = row.alive;
    info.cpus = plain(row.cpus);
    info.cpus_free = plain(row.cpus_free);
    info.gpus = plain(row.gpus);
    info.gpus_free = plain(row.gpus_free);
    info.memory = Bytes{row.memory};
    info.store_capacity = Bytes{row.store_capacity};
    info.store_used = Bytes{row.store_used};
    info.workers = static_cast<int>(row.workers);
    for (const auto& [name, amount] : row.resources)
      info.resources.emplace_back(name, plain(amount));
    info.draining = row.draining;
    info.suspect = row.suspect;
    info.address = row.address;
    rows.push_back(std::move(info));
  }
  return rows;
}

std::vector<int> ClientEngine::gpu_ids() {
  Guard lock = guard();
  return lease_.devices();
}

// --- TaskManager::Out, ActorCalls::Out
// -------------------------------------------------------------------------------

wire::Call ClientEngine::encode_call(const detail::Call& call, const Receiver& to, Blob& payload) {
  wire::Call message;
  message.function = engine::Registry::instance().key_of(call.callable);
  message.arguments.reserve(call.arguments.size());
  for (const auto& argument : call.arguments) {
    if (argument.object) {
      message.arguments.push_back(values_.outgoing(argument.object, to, payload));
      continue;
    }
    wire::Value value;
    value.kind = wire::Value::Kind::inline_bytes;
    append_inline(value, BlobView(call.bytes).subspan(argument.offset, argument.size), payload);
    for (std::uint32_t i = 0; i < argument.ref_count; ++i) {
      const auto& ref = call.refs[argument.first_ref + i];
      values_.share(ref, to);
      value.refs.push_back(ref.id());
    }
    message.arguments.push_back(std::move(value));
  }
  return message;
}

/// Encodes a call with its payload in payload_, so that both fit a frame with `beside` other
/// bytes. Small values travel along when there is room for all of them; otherwise all objects
/// travel as references.
wire::Call ClientEngine::call_that_fits(const detail::Call& call, Receiver to, std::size_t beside) {
  for (;; to.only_references = true) {
    payload_.clear();
    wire::Call message = encode_call(call, to, payload_);
    if (fits(message, beside)) return message;
    take_back(message, to);
    if (!to.only_references) continue;
    refuse(message);
    payload_.clear();
    return message;
  }
}

/// Returns whether the call fits a frame. An upper bound of its size decides mostly; only a call
/// near the limit is encoded to learn its size.
bool ClientEngine::fits(const wire::Call& message, std::size_t beside) {
  std::size_t most = beside + payload_.size() + 256;
  for (const wire::Value& argument : message.arguments)
    most += argument.kind == wire::Value::Kind::error
                ? ring::kMaxFrame
                : sizeof(wire::Location) + 64 + argument.refs.size() * sizeof(ObjectId);
  if (most <= ring::kMaxFrame) return true;  // mostly
  if (most > wire::kMaxMessage) return false;
  return writer_.encode(wire::CallMessage(message)).size() + payload_.size() + beside <=
         ring::kMaxFrame;
}

/// Returns the counts of a message that the receiver will not get.
void ClientEngine::take_back(const wire::Call& message, const Receiver& to) {
  if (to.holder == kAgentProcess) return;
  for (const wire::Value& argument : message.arguments)
    wire::for_each_ref(argument, [&](ObjectId id) {
      tell_agent(wire::Hold{id, to.holder, -1, to.frame, to.waiting});
    });
}

/// Replaces the arguments of a call that does not fit by an error, so that it ends as every call
/// does.
void ClientEngine::refuse(wire::Call& message) {
  ErrorInfo info;
  info.code = Code::invalid_argument;
  info.outcome = Outcome::not_executed;
  info.message =
      "the arguments of one call hold too many refs or small values to travel together: put some "
      "of them into one object";
  wire::Value refused;
  refused.kind = wire::Value::Kind::error;
  refused.error = std::make_shared<const ErrorInfo>(std::move(info));
  message.arguments = {std::move(refused)};
}

bool ClientEngine::send_call(ProcessIndex worker, const detail::Call& call, std::uint64_t actor_low,
                             std::uint32_t attempt, std::uint32_t results, std::uint64_t& sequence,
                             bool& plain) {
  Peer* peer = peers_.of(worker);
  TROUPE_ASSERT(peer != nullptr, "a call goes to a worker with a channel");
  if (peer->channel.waiting() > 0) return false;
  plain = send_plain(*peer, call, actor_low, attempt, results);
  if (plain) {
    sequence = ++peer->sent;
    return true;
  }
  Receiver receiver = peer->receiver();
  receiver.recovers = actor_low != 0;
  wire::Call message = call_that_fits(call, receiver, 0);
  message.sequence = peer->sent + 1;
  message.actor_low = actor_low;
  message.attempt = attempt;
  message.results = results;
  settle_agent_queue();
  const BlobView head = writer_.encode(wire::CallMessage(std::move(message)));
  // The counts for the receiver are taken already (RUN-4). So the frame waits behind a full ring;
  // building it again would count twice.
  peer->channel.send(head, payload_);
  sequence = ++peer->sent;
  return true;
}

bool ClientEngine::send(ProcessIndex worker, Task& task) {
  bool plain = false;
  const bool sent =
      send_call(worker, task.call, 0, task.attempt, static_cast<std::uint32_t>(task.results.size()),
                task.sequence, plain);
  task.light = plain && task.results.size() == 1 && task.request == nullptr;
  return sent;
}

/// Delivers a call to the actor of this process, to which no ring leads.
void ClientEngine::deliver_here(ActorCall& call) {
  auto incoming = std::allocate_shared<Incoming>(FreeListAllocator<Incoming>());
  incoming->call = call_that_fits(call.call, {.holder = process_, .recovers = true}, 0);
  incoming->from = process_;
  incoming->payload = BlobView(payload_);
  incoming->call.sequence = call.sequence = loopback_.next();
  incoming->call.actor_low = call.actor.low;
  incoming->call.attempt = 1;
  incoming->call.results = static_cast<std::uint32_t>(call.results.size());
  call.light = false;
  work_.take(std::move(incoming), false);
  io_loop_->notify();
}

bool ClientEngine::send(ProcessIndex worker, ActorCall& call) {
  if (worker == process_) return deliver_here(call), true;
  bool plain = false;
  const bool sent =
      send_call(worker, call.call, call.actor.low, 1,
                static_cast<std::uint32_t>(call.results.size()), call.sequence, plain);
  call.light = plain && call.results.size() == 1;
  return sent;
}

void ClientEngine::request_lease(LeaseKey key, std::uint32_t backlog) {
  const SchedulingClasses::Class& cls = classes_.at(key);
  tell_agent(wire::RequestLease{key, backlog, cls.demand, cls.near, cls.bytes});
  // Also needed when the arguments became ready long after the submission and the last tick.
  next_tick_ = std::min(next_tick_, steady_now() + TaskManager::kAskAgain);
}
/// Chooses the key of the node with most bytes of the task's large arguments. It is a preference:
/// the task runs elsewhere if there is no room.
void ClientEngine::placed(Task& task) {
  if (task.key == 0 && !takes_objects(task.call)) return;  // mostly
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
      most.add(node_, origin.location->length);
  }
  if (most.bytes() != 0 || classes_.at(lease_key(task)).bytes != 0)
    task.key = static_cast<std::uint32_t>(classes_.place(lease_key(task), most, node_).value);
}
void ClientEngine::return_lease(LeaseId lease) {
  tell_agent(wire::LeaseReturned{lease});
}
void ClientEngine::recall(ProcessIndex worker) {
  if (Peer* peer = peers_.of(worker))
    peer->channel.send(writer_.encode(wire::CallMessage(wire::Recall{})));
}
bool ClientEngine::may_come_back(ProcessIndex worker, std::uint64_t sequence) {
  const Peer* peer = peers_.of(worker);
  if (peer == nullptr || peer->remote) return false;
  const bool is_own = worker == process_;
  return (is_own ? peer->started : peer->channel.peer_progress().started) < sequence;
}
void ClientEngine::fail(Task& task, const Error& reason) {
  Error error = located(reason, task.call, task.request.get(), static_cast<int>(task.attempt));
  if (task.spec != nullptr) {
    recovery_.lineage().failed(*std::exchange(task.spec, nullptr), Spec::End::failed);
    error = Recovery::cannot_run_again(task, error);
  }
  for (const auto& result : task.results)
    if (!entry_of(result).ready.load(std::memory_order_relaxed))
      values_.settle_error(entry_of(result), error);
}
void ClientEngine::watch(ActorId actor) {
  tell_agent(wire::WatchActor{actor});
}
void ClientEngine::fail(ActorCall& call, const Error& reason) {
  const Error error = located(reason, call.call, nullptr, 0);
  if (call.results.empty()) log_failed_tell(call, error);
  for (const auto& result : call.results)
    if (!entry_of(result).ready.load(std::memory_order_relaxed))
      values_.settle_error(entry_of(result), error);
}

}  // namespace troupe::client

namespace troupe::detail {
namespace {

/// Deletes an entry without an engine, after the session. One after another: each may hold the
/// next, and a chain must not recurse.
void delete_later(client::Entry* entry) noexcept {
  static thread_local client::Entry* pending = nullptr;
  static thread_local bool deleting = false;
  entry->next_released = std::exchange(pending, entry);
  if (std::exchange(deleting, true)) return;
  while (pending != nullptr) {
    client::Entry* next = pending;
    pending = next->next_released;
    delete next;
  }
  deleting = false;
}

Engine* session_or_engine() noexcept {
  if (Engine* front = client::SessionEngine::current()) return front;
  return client::ClientEngine::current();
}

/// Kept out of release(), which needs nothing of it in a worker.
[[gnu::noinline]] void release_in_session(client::Entry* record) noexcept {
  const client::SessionEngine::Visit visit = client::SessionEngine::visit();
  auto* engine = client::ClientEngine::current();
  if (engine != nullptr && engine->in_fork()) return;  // the count belongs to the parent process
  if (engine != nullptr && !engine->is_foreign(*record))
    engine->release(record);
  else
    delete_later(record);
}

void release(ObjectEntry* entry) noexcept {
  auto* record = static_cast<client::Entry*>(entry);
  auto* engine = client::current_engine.unvisited.load(std::memory_order_acquire);
  if (engine == nullptr || engine->is_foreign(*record)) return release_in_session(record);
  if (!engine->in_fork()) engine->release(record);
}

constexpr EngineHooks kHooks{.current = &session_or_engine, .release = &release};
[[maybe_unused]] const bool g_installed = (install(&kHooks), true);

}  // namespace
}  // namespace troupe::detail
