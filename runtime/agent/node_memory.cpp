/// Node's part in memory shortage: processes that wait for extents, objects that were spilled to
/// disk, quotas of jobs, and the worker that ends before the machine runs out of memory.
#include "troupe/runtime/agent/machine_memory.hpp"
#include "troupe/runtime/agent/node.hpp"
#include "troupe/runtime/base/log.hpp"
#include "troupe/runtime/base/machine.hpp"
#include "troupe/runtime/os/role.hpp"
#include "troupe/runtime/wire/values.hpp"

#include <unistd.h>
#include <algorithm>
#include <filesystem>
#include <sstream>

namespace troupe::agent {
namespace {

constexpr Duration kGuardInterval = std::chrono::milliseconds(250);
/// How soon a process of a job at its quota asks for memory again.
constexpr Duration kTryAgain = std::chrono::milliseconds(10);

}  // namespace

void Node::open_spiller() {
  objectstore::SpillerOptions waiting;
  waiting.patience = environment_.spill_patience;
  const bool named = environment_.spill_folders.has_value();
  std::vector<std::vector<std::string>> choices;
  if (!named)
    choices = default_spill_folders();
  else if (!environment_.spill_folders->empty())
    choices = {*environment_.spill_folders};
  for (auto& folders : choices) {
    objectstore::SpillOptions options;
    options.folders = std::move(folders);
    options.quota = environment_.spill_bytes;
    auto files = objectstore::SpillFiles::open(std::move(options));
    if (!files && named)  // a folder that the user named must be usable
      refuse_spill_folders(files.error());
    if (!files) continue;
    spiller_ = std::make_unique<objectstore::Spiller>(*host_, *std::move(files), spills_, waiting);
    break;
  }
  references_.ask_of_bytes([this](const wire::Location& location) {
    const objectstore::Location name = wire::store_location(location);
    if (spiller_ && (!spiller_->is_good(name) || spiller_->is_spilled(name)))
      return spiller_->is_good(name);
    const auto opened = host_->open_local(spiller_ ? spiller_->where(name).value_or(name) : name);
    // Another error passes, and says nothing about the bytes.
    return opened || (opened.error().code() != Code::object_lost &&
                      opened.error().code() != Code::invalid_argument);
  });
}

void Node::open_copies() {
  objectstore::SharedOptions options;
  options.folders = environment_.shared_folders;
  if (options.folders.empty()) return;
  options.cluster = config_.cluster;
  options.node = id_;
  options.quota = environment_.spill_bytes;
  folder_copies_.open(std::move(options));
}

// --- what FolderCopies and ReplicaHost need

bool Node::look_in_folders(ProcessIndex owner, ObjectId object,
                           std::optional<std::uint64_t> bytes) {
  if (!folder_copies_.is_open()) return false;
  if (bytes)
    folder_copies_.want(owner, object, *bytes, steady_now());
  else
    folder_copies_.look_for(owner, object, steady_now());
  return true;
}

std::optional<objectstore::Location> Node::where(const objectstore::Location& name) {
  return spiller_ ? spiller_->where(name) : name;
}

void Node::bring_back(ObjectId object, const objectstore::Location& name, Time now) {
  Asked asked;
  asked.what = Asked::What::copy;
  asked.object = object;
  spiller_->find(ask(asked), name, now);
}

bool Node::need_room(ObjectId object, std::uint64_t bytes, Time now) {
  if (!spiller_) return false;
  Asked asked;
  asked.what = Asked::What::room;
  asked.object = object;
  spiller_->need(ask(asked), 0, bytes, now);
  return true;
}

// --- requests to the spiller

std::uint64_t Node::ask(Asked asked) {
  asked_.emplace(++last_ask_, asked);
  return last_ask_;
}

std::optional<Node::Asked> Node::take_ask(std::uint64_t number) {
  const auto found = asked_.find(number);
  if (found == asked_.end()) return std::nullopt;
  Asked asked = found->second;
  asked_.erase(found);
  return asked;
}

void Node::forget_asks(const Process& process) {
  if (!spiller_ || process.store_index == 0) return;
  spiller_->forget(process.store_index);
  std::erase_if(asked_, [&](const auto& one) { return one.second.process == process.index; });
}

/// Forgets the pulls of a node that is gone. When it comes back, it asks anew and does not know the
/// old requests.
void Node::forget_pulls(NodeId node) {
  std::erase_if(asked_, [node](const auto& one) {
    return one.second.what == Asked::What::pull && one.second.node == node;
  });
}

void Node::may_spill(const wire::Location& at) {
  if (spiller_) spiller_->adopted(wire::store_location(at), steady_now());
}

// --- extents

/// Returns false if the job of the process is below its quota (TROUPE_JOB_BYTES). Else answers the
/// request and returns true:
/// - The process gets MemoryPressure from time to time, and is told to ask again after kTryAgain.
/// - It gets out_of_memory when nothing of the job was freed for `spill_patience`.
///
/// The free room in the process's own extents counts as used, since the process asks for more. A
/// request of up to a usual extent may be for a small object, so its size is not counted: a job may
/// exceed its quota by one extent for each of its processes.
bool Node::exceeds_quota(Process& from, const wire::NeedExtent& message) {
  if (environment_.job_bytes.count == 0) return false;
  const objectstore::HostStats store = host_->stats();
  std::uint64_t use = accounting_.bytes_of(from.job_number);
  for (const objectstore::ProcessStats& process : store.processes)
    if (process.process == from.store_index)
      use += process.extent_bytes - std::min(process.extent_bytes, process.bytes);
  const std::uint64_t wanted = message.bytes > store.usual_extent ? message.bytes : 0;
  if (use < environment_.job_bytes.count && wanted <= environment_.job_bytes.count - use) {
    from.at_quota.over();
    return false;
  }
  const Time now = steady_now();
  const auto next =
      from.at_quota.asked(accounting_.freed_of(from.job_number), environment_.spill_patience, now);
  if (next == QuotaWait::Next::pressure) send(from, wire::MemoryPressure{});
  if (next != QuotaWait::Next::refuse) {
    try_quota_again_.push_back({from.index, message.request, now + kTryAgain});
    return true;
  }
  give_extent(
      from.index, message.request,
      Error(Code::out_of_memory,
            "job " + from.job.str() + " has " + std::to_string(use) + " bytes of objects on " +
                options_.name + " and asked for " + std::to_string(message.bytes) +
                " more; one job may have " + std::to_string(environment_.job_bytes.count) +
                " bytes there, in memory and on disk (TROUPE_JOB_BYTES): drop references, "
                "or start the nodes with a larger quota"));
  return true;
}

void Node::answer_quota() {
  while (!try_quota_again_.empty() && try_quota_again_.front().due <= steady_now()) {
    wire::GiveExtent again;
    again.request = try_quota_again_.front().request;
    if (Process* to = find(try_quota_again_.front().process)) send(*to, again);
    try_quota_again_.pop_front();
  }
}

void Node::need_extent(Process& from, const wire::NeedExtent& message) {
  if (exceeds_quota(from, message)) return;
  if (!spiller_)
    return give_extent(from.index, message.request, host_->grant(from.store_index, message.bytes));
  Asked asked;
  asked.process = from.index;
  asked.request = message.request;
  spiller_->need(ask(asked), from.store_index, message.bytes, steady_now());
}

void Node::give_extent(ProcessIndex process, std::uint64_t request,
                       Result<objectstore::ExtentGrant> grant) {
  Process* to = find(process);
  if (to == nullptr) return;
  wire::GiveExtent answer;
  answer.request = request;
  if (!grant) {
    answer.error = grant.error().shared_info();
    return send(*to, answer);
  }
  prefault_.taken(steady_now());
  answer.extent = grant->id.value;
  answer.bytes = grant->bytes;
  send_with(*to, answer, {grant->memory.get()});
}

/// Asks the spiller for memory for transfers. One such request is open at a time; transfers ask
/// again after its answer.
void Node::short_of_memory(std::uint64_t bytes) {
  if (!spiller_ || std::exchange(asks_for_transfers_, true)) return;
  spiller_->need(ask({}), 0, bytes, steady_now());
}

/// Takes the answer to short_of_memory(). Transfers are told later, in tell_memory(), since they
/// may be the caller.
void Node::take_extent(Result<objectstore::ExtentGrant> grant) {
  asks_for_transfers_ = false;
  memory_came_ = true;
  if (grant)
    add_extent(*std::move(grant));
  else
    memory_refused_ = grant.error();
}

/// Gives the extent to the agent's own client of the object store.
void Node::add_extent(objectstore::ExtentGrant grant) {
  const objectstore::ExtentId id = grant.id;
  if (host_->local().add_extent(std::move(grant)))
    (void)host_->confirm_extent(0, id);
  else
    (void)host_->release_extent(0, id);
}

void Node::Spills::granted(std::uint64_t ask, objectstore::ExtentGrant grant) {
  const auto asked = node.take_ask(ask);
  if (!asked) return;
  if (asked->what == Asked::What::room) {
    node.add_extent(std::move(grant));
    return node.folder_copies_.room(asked->object);
  }
  if (asked->process == kSelf) return node.take_extent(std::move(grant));
  node.give_extent(asked->process, asked->request, std::move(grant));
}

// --- objects

void Node::where_is(Process& from, const wire::WhereIs& message) {
  if (!spiller_)
    return send(from, wire::NowAt{message.request,
                                  {},
                                  Error(Code::object_lost, "the object was freed").shared_info()});
  Asked asked;
  asked.what = Asked::What::place;
  asked.process = from.index;
  asked.request = message.request;
  spiller_->find(ask(asked), wire::store_location(message.location), steady_now());
}

/// Returns whether the message is a pull of an object that lies on disk. Then asks the spiller to
/// bring the object back; the pull goes on when it has.
bool Node::restores_first(NodeId from, const wire::PeerMessage& message) {
  const auto* request = std::get_if<wire::PullRequest>(&message);
  if (request == nullptr || !spiller_) return false;
  const wire::Value* value = references_.value_of(replica_host_.served(request->object));
  if (value == nullptr || value->kind != wire::Value::Kind::shared) return false;
  const objectstore::Location name = wire::store_location(value->location);
  if (!spiller_->is_spilled(name)) return false;
  Asked asked;
  asked.what = Asked::What::pull;
  asked.node = from;
  asked.pull = *request;
  spiller_->find(ask(asked), name, steady_now());
  return true;
}

bool Node::is_on_disk(const wire::Location& at) const {
  const auto seen = spiller_ ? spiller_->look(wire::store_location(at)) : std::nullopt;
  return seen && seen->on_disk;
}

void Node::Spills::located(std::uint64_t ask, const objectstore::Location& at) {
  const auto asked = node.take_ask(ask);
  if (!asked) return;
  if (asked->what == Asked::What::pull)
    return node.transfers_->on_message(asked->node, asked->pull, {}, steady_now());
  if (asked->what == Asked::What::copy)
    return node.folder_copies_.write(asked->object, steady_now());
  if (Process* to = node.find(asked->process))
    node.send(*to, wire::NowAt{asked->request, wire::wire_location(at), nullptr});
}

void Node::Spills::refused(std::uint64_t ask, const Error& error) {
  const auto asked = node.take_ask(ask);
  if (!asked) return;
  switch (asked->what) {
    case Asked::What::extent:
      if (asked->process == kSelf) return node.take_extent(error);
      return node.give_extent(asked->process, asked->request, error);
    case Asked::What::pull:
      return node.network_->send(asked->node,
                                 wire::PullRefused{asked->pull.transfer, error.shared_info()}, {});
    case Asked::What::copy:
      return node.folder_copies_.write_failed(asked->object, error, steady_now());
    case Asked::What::room: return node.folder_copies_.no_room(asked->object, error);
    case Asked::What::place:
      if (Process* to = node.find(asked->process))
        node.send(*to, wire::NowAt{asked->request, {}, error.shared_info()});
  }
}

// --- the loop

void Node::serve_memory() {
  const Time now = steady_now();
  if (!spiller_ || (!spill_ready_ && now < spiller_->next_deadline())) return;
  spill_ready_ = false;
  spiller_->poll(now);
}

/// Returns the resident bytes of the process that it does not share; the object store is shared.
std::uint64_t Node::memory_of(const Process& process) const {
  return unshared_memory_of(static_cast<pid_t>(process.told_pid)).count;
}

/// Ends a worker when memory runs out, before the kernel's OOM killer chooses a process.
void Node::guard_memory() {
  const Time now = steady_now();
  if (now < next_guard_ || leases_.lease_count() == 0) return;
  next_guard_ = now + kGuardInterval;
  const std::uint64_t limit = environment_.node_memory.count;
  MachineMemory machine = machine_memory();
  if (limit == 0 && !guard_.is_short(machine)) return;
  std::vector<WorkerMemory> uses;
  std::uint64_t sum = 0;
  for (const auto& lease : leases_.busy())
    if (const Process* worker = find(lease.worker); worker != nullptr && worker->pid > 0) {
      uses.push_back({worker->index, worker->told_pid, memory_of(*worker),
                      static_cast<std::uint64_t>(std::max<std::int64_t>(lease.memory, 0)),
                      lease.since, lease.dedicated, !worker->sentence.empty()});
      sum += uses.back().bytes;
    }
  if (limit != 0) machine = {limit, limit - std::min(limit, sum), "the node's limit"};
  if (!guard_.is_short(machine)) return;
  const auto victim = guard_.choose(machine, uses, now);
  if (!victim) return;
  if (Process* worker = find(victim->process)) {
    worker->sentence = os::describe_out_of_memory(victim->why + " (on " + options_.name + ")");
    log_line("%s", worker->sentence.c_str());
    kill_worker(victim->process);
  }
}

/// Tells processes and transfers to ask for memory again, and sends MemoryPressure. Runs after
/// send_notices(): the notices concern the very memory that is asked for.
void Node::tell_memory() {
  for (const std::uint64_t ask : std::exchange(try_again_, {})) {
    const auto asked = take_ask(ask);
    if (!asked) continue;
    if (asked->what == Asked::What::room) {
      folder_copies_.room(asked->object);
    } else if (asked->process == kSelf) {
      asks_for_transfers_ = false;
      memory_came_ = true;
    } else if (Process* to = find(asked->process)) {
      wire::GiveExtent again;
      again.request = asked->request;
      send(*to, again);
    }
  }
  if (std::exchange(memory_came_, false)) {
    if (const auto why = std::exchange(memory_refused_, std::nullopt))
      transfers_->memory_refused(*why, steady_now());
    else
      transfers_->memory_came(steady_now());
  }
  if (!std::exchange(memory_pressure_, false)) return;
  for (auto& [index, process] : processes_)
    if (process->introduced && process->bell) send(*process, wire::MemoryPressure{});
}

}  // namespace troupe::agent
