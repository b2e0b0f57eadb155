#include "troupe/runtime/client/engine.hpp"

#include "troupe/runtime/base/build_id.hpp"
#include "troupe/runtime/base/version.hpp"
#include "troupe/runtime/base/wait.hpp"
#include "troupe/runtime/client/current_engine.hpp"
#include "troupe/runtime/client/demand.hpp"
#include "troupe/runtime/client/log_printer.hpp"
#include "troupe/runtime/client/session_engine.hpp"
#include "troupe/runtime/client/shrink_arguments.hpp"
#include "troupe/runtime/engine/registry.hpp"
#include "troupe/runtime/os/process_title.hpp"
#include "troupe/runtime/wire/peer.hpp"

#include <unistd.h>
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace troupe::client {
namespace {

using namespace std::chrono_literals;

constexpr Duration kAgentAnswers = 10s;

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
    : self_{.kind = start.kind},
      recovery_(static_cast<Recovery::Out&>(*this), values_, calls_.classes(),
                start.kind == wire::ProcessKind::worker, lineage_limit_of(start.kind)),
      abandon_(start.abandon) {
  agent_.connect(std::move(start.socket));
  try {
    begin(start);
  } catch (const Error& error) {
    // Tell the agent what was missing; it tells those who wait for this worker.
    if (self_.kind == wire::ProcessKind::worker && error.code() == Code::out_of_memory)
      (void)agent_.socket().send(
          wire::FrameWriter().encode(wire::NodeMessage(wire::Shutdown{error.message()})), {});
    throw;
  }
}

void ClientEngine::begin(const Start& start) {
  peers_.bell() = ring::Doorbell::create().value();
  say_hello(start);
  io_loop_.reset(new IoLoop(static_cast<IoLoop::Host&>(*this), peers_.bell(), gate_.lock()));
  calls_.begin(*io_loop_);
  callers_.begin(*io_loop_);
  waits_.begin(*io_loop_);
  // A message may have arrived already. Holding the lock keeps the I/O thread from handling it
  // until current_engine is set: handles that it drops must be released by this engine. Without an
  // engine they would be deleted although others still know the objects.
  const Guard lock = gate_.guard();
  io_loop_->start();
  tell(wire::StoreAttached{});  // from here on the agent may lease a worker out
  store_asks_.begin(*io_loop_);
  current_engine.any.store(this, std::memory_order_seq_cst);
  current_engine.unvisited.store(this, std::memory_order_seq_cst);
}

ClientEngine::~ClientEngine() {
  stop();
  store_.end();
  {
    const Guard lock = gate_.guard();
    recovery_.lineage().clear();
  }
  gate_.drop();  // no agent is left to tell
  resumes_.clear();
  callers_.work().clear();
}

void ClientEngine::say_hello(const Start& start) {
  wire::Hello hello = start.hello;
  hello.protocol = kProtocolVersion;
  hello.build = executable_build_id();
  hello.kind = start.kind;
  hello.pid = static_cast<std::uint32_t>(::getpid());
  hello.token = start.token;
  const int descriptors[] = {peers_.bell().memory_fd(), peers_.bell().event_fd()};
  if (!agent_.socket().send(wire::FrameWriter().encode(wire::NodeMessage(hello)), descriptors))
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
  self_.node = welcome.node;
  if (self_.kind == wire::ProcessKind::worker)
    os::show_title("troupe: worker " + welcome.node_name + " job " +
                   welcome.job.str().substr(0, 8));
  self_.node_name = welcome.node_name;
  self_.job = welcome.job;
  self_.process = welcome.process;
  callers_.work().belongs_to(self_.process);
  recovery_.belongs_to(self_.process);
  std::uint64_t high = 0, unused = 0;
  detail::random_id(high, unused);
  values_.begin(self_.process, high, static_cast<std::uint8_t>(self_.engine));
}

void ClientEngine::finish(bool failed) {
  bool job_ends = false;
  if (!waits_.is_over()) {
    Guard lock = gate_.guard();
    io_loop_->wait(
        lock, [this] { return agent_.is_lost() || calls_.actors().live() == 0; },
        steady_now() + kLastCalls);
    tell(wire::Shutdown{failed ? "" : "its driver is done"});
    settle_agent_queue();  // nobody flushes it once stop() has ended the I/O thread
    job_ends = !agent_.is_lost();
    gate_.unlock_and_collect(lock);
    if (log_printer_ != nullptr) log_printer_->finish(!job_ends);
  }
  stop(job_ends);
}

void ClientEngine::print_logs(LogPrinter& printer) {
  Guard lock = gate_.guard();
  log_printer_ = &printer;
  gate_.unlock_and_collect(lock);
}

void ClientEngine::ask_agent(const wire::NodeMessage& message) {
  Guard lock = gate_.guard();
  if (!agent_.is_lost()) tell(message);
  gate_.unlock_and_collect(lock);
}

void ClientEngine::on_log(detail::OnLog take) {
  if (self_.kind != wire::ProcessKind::driver)
    throw InvalidArgument(Code::invalid_argument,
                          "on_log is for the driver of a job: a task or actor writes lines");
  if (log_printer_ != nullptr) log_printer_->on_log(std::move(take));
}

void ClientEngine::stop(bool job_ends) {
  if (!waits_.end()) return;
  io_loop_->stop();
  if (job_ends) agent_.await_close(kJobEnds);
  // close() is not enough: a fork of this process may have it open. A worker's connection ends with
  // its process, since the agent kills a worker that closes it.
  if (self_.kind != wire::ProcessKind::worker) agent_.socket().shut_down();
  // With the lock held nothing arrives any more: the leader of the I/O loop has seen its end.
  // Only then may handles be dropped without an engine (current_engine is null below).
  const Guard lock = gate_.guard();
  calls_.drop_spent();
  end_following();
  current_engine.unvisited.store(nullptr, std::memory_order_seq_cst);
  current_engine.any.store(nullptr, std::memory_order_seq_cst);
  resumes_.give_up_notices();  // after current_engine is null, since callbacks ask for it
}

// --- calls
// -----------------------------------------------------------------------------------------------------------

void ClientEngine::submit(detail::Call&& call, const detail::Request* options,
                          std::span<detail::ObjectHandle> results) {
  if (options != nullptr) check_amounts(*options);
  shrink_arguments(call, *this);
  const bool objects = calls_.names_objects(call);
  Guard lock = gate_.guard();
  if (agent_.is_lost()) raise(agent_.why_lost());
  calls_.submit(std::move(call), options, results, objects);
  gate_.unlock_and_collect(lock);
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
  shrink_arguments(call, *this);
  calls_.names_objects(call);
  Guard lock = gate_.guard();
  if (agent_.is_lost()) raise(agent_.why_lost());
  gate_.collect();  // the name may be that of an actor whose last handle was just dropped
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
  const std::size_t beside =
      calls_.sender().encoder().writer().encode(wire::NodeMessage(message)).size();
  message.creation = calls_.sender().encoder().encode(
      call, {.holder = kAgentProcess, .by_reference = true, .recovers = true}, beside);
  if (request.name.empty()) {
    tell(wire::NodeMessage(message), calls_.sender().encoder().payload());
    gate_.unlock_and_collect(lock);
    return {message.actor, std::move(lifetime)};
  }
  // The name may be taken: the answer decides which actor the handle names.
  const ActorId id = message.actor;
  const std::uint64_t number = message.request = questions_.ask<wire::FoundActor>();
  const wire::FoundActor found =
      ask_for_name(lock, std::move(message), calls_.sender().encoder().payload(), number);
  if (!found.found)
    throw InvalidArgument(Code::invalid_argument,
                          "no actor could be made under the name '" + request.name + "'");
  if (found.actor != id && !request.get_if_exists) {
    const detail::ObjectHandle other = values_.adopt_one(found.lifetime);
    gate_.unlock_and_collect(lock);
    throw InvalidArgument(
        Code::invalid_argument,
        "an actor named '" + request.name + "' exists already: use find, or get_if_exists");
  }
  detail::ObjectHandle held = values_.adopt_one(found.lifetime);
  gate_.unlock_and_collect(lock);
  return {found.actor, std::move(held)};
}

/// Sends the question with this number, which a FoundActor answers, and waits for the answer.
wire::FoundActor ClientEngine::ask_for_name(Guard& lock, const wire::NodeMessage& question,
                                            BlobView payload, std::uint64_t request) {
  tell(question, payload);
  waits_.block_until(
      lock, [&] { return questions_.is_answered(request); }, steady_now() + kAgentAnswers);
  auto answer = questions_.take<wire::FoundActor>(request);
  if (!answer) throw Unavailable(Code::unavailable, "the node's agent did not answer within 10 s");
  if (answer->error) {
    gate_.unlock_and_collect(lock);
    raise(Error(*answer->error));
  }
  return std::move(*answer);
}

std::optional<detail::ActorHandle> ClientEngine::find(const std::string& name,
                                                      const char* class_name) {
  Guard lock = gate_.guard();
  const std::uint64_t request = questions_.ask<wire::FoundActor>();
  const wire::FoundActor found =
      ask_for_name(lock, wire::FindActor{request, name, ""}, {}, request);
  if (!found.found) {
    gate_.unlock_and_collect(lock);
    return std::nullopt;
  }
  detail::ObjectHandle lifetime = values_.adopt_one(found.lifetime);
  gate_.unlock_and_collect(lock);
  if (found.class_name != class_name)
    throw InvalidArgument(Code::invalid_argument, "the actor '" + name + "' is a " +
                                                      found.class_name + ", not a " + class_name);
  return detail::ActorHandle{found.actor, std::move(lifetime)};
}

void ClientEngine::kill(const detail::ActorHandle& actor, bool may_restart) {
  Guard lock = gate_.guard();
  tell(wire::KillActor{actor.id, may_restart});
  if (may_restart)
    calls_.actors().ending_life(actor.id);
  else
    calls_.actors().killed(actor.id);
  gate_.unlock_and_collect(lock);
}

detail::ActorHandle ClientEngine::adopt_actor(ActorId id, detail::ObjectHandle lifetime) {
  return {id, std::move(lifetime)};
}

detail::ActorHandle ClientEngine::self(ActorId actor, ObjectId lifetime) {
  Guard lock = gate_.guard();
  bool fresh = false;
  detail::ObjectHandle handle = values_.adopt(lifetime, fresh);
  if (fresh) tell(wire::Hold{lifetime, self_.process, +1});
  gate_.unlock_and_collect(lock);
  return {actor, std::move(handle)};
}

void ClientEngine::call(const detail::ActorHandle& actor, detail::Call&& call,
                        std::span<detail::ObjectHandle> results) {
  if (!actor)
    throw InvalidArgument(Code::invalid_argument, "call through an empty Actor: it was moved from");
  values_.expect_ours(actor.lifetime);
  shrink_arguments(call, *this);
  const bool objects = calls_.names_objects(call);
  Guard lock = gate_.guard();
  if (agent_.is_lost()) raise(agent_.why_lost());
  calls_.call(actor, std::move(call), results, objects);
  gate_.unlock_and_collect(lock);
}

// --- where am I
// ------------------------------------------------------------------------------------------------------

std::vector<detail::NodeInfo> ClientEngine::nodes() {
  Guard lock = gate_.guard();
  const std::uint64_t request = questions_.ask<wire::Nodes>();
  tell(wire::ListNodes{request});
  waits_.block_until(
      lock, [&] { return questions_.is_answered(request); }, steady_now() + kAgentAnswers);
  const auto answer = questions_.take<wire::Nodes>(request);
  gate_.unlock_and_collect(lock);
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
  Guard lock = gate_.guard();
  std::vector<int> devices = lease_.devices();
  gate_.unlock_and_collect(lock);
  return devices;
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
