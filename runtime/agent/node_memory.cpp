/// Node's part in memory shortage: the folders for objects on disk, and the worker that ends before
/// the machine runs out of memory.
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

}  // namespace

void Node::open_spiller() {
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
    extents_.open(*std::move(files));
    break;
  }
  references_.ask_of_bytes(
      [this](const wire::Location& location) { return extents_.is_readable(location); });
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

// --- what ReplicaHost and Extents need

bool Node::look_in_folders(ProcessIndex owner, ObjectId object,
                           std::optional<std::uint64_t> bytes) {
  if (!folder_copies_.is_open()) return false;
  if (bytes)
    folder_copies_.want(owner, object, *bytes, steady_now());
  else
    folder_copies_.look_for(owner, object, steady_now());
  return true;
}

bool Node::is_on_disk(const wire::Location& at) const {
  const objectstore::Spiller* spiller = extents_.spiller();
  const auto seen = spiller != nullptr ? spiller->look(wire::store_location(at)) : std::nullopt;
  return seen && seen->on_disk;
}

void Node::press() {
  for (auto& [index, process] : processes_)
    if (process->introduced && process->bell) processes_.send(*process, wire::MemoryPressure{});
}

void Node::memory_answer(const std::optional<Error>& why) {
  if (why)
    transfers_->memory_refused(*why, steady_now());
  else
    transfers_->memory_came(steady_now());
}

void Node::restored(NodeId from, const wire::PullRequest& request) {
  transfers_->on_message(from, request, {}, steady_now());
}

// --- the loop

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
    if (const Process* worker = processes_.find(lease.worker);
        worker != nullptr && worker->pid > 0) {
      uses.push_back({worker->index, worker->told_pid, memory_of(*worker),
                      static_cast<std::uint64_t>(std::max<std::int64_t>(lease.memory, 0)),
                      lease.since, lease.dedicated, !worker->sentence.empty()});
      sum += uses.back().bytes;
    }
  if (limit != 0) machine = {limit, limit - std::min(limit, sum), "the node's limit"};
  if (!guard_.is_short(machine)) return;
  const auto victim = guard_.choose(machine, uses, now);
  if (!victim) return;
  if (Process* worker = processes_.find(victim->process)) {
    worker->sentence = os::describe_out_of_memory(victim->why + " (on " + options_.name + ")");
    log_line("%s", worker->sentence.c_str());
    kill_worker(victim->process);
  }
}

}  // namespace troupe::agent
