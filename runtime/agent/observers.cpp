/// Questions that are passed on to control, and reports of what the memory of a node is used for.
#include "troupe/runtime/agent/observers.hpp"
#include "troupe/runtime/agent/wait_reasons.hpp"
#include "troupe/runtime/wire/cases.hpp"
#include "troupe/runtime/wire/memory.hpp"
#include "troupe/runtime/wire/values.hpp"

#include <fcntl.h>
#include <algorithm>
#include <span>
#include <utility>

namespace troupe::agent {
namespace {

using wire::Cases;

std::uint64_t nanoseconds(Duration duration) {
  return static_cast<std::uint64_t>(std::max<std::int64_t>(duration.count(), 0));
}

/// The largest objects, as many as a report takes; a heap with the smallest of them first.
class Largest {
 public:
  bool takes(std::uint64_t bytes) {
    ++seen_;
    return rows_.size() < wire::kMaxMemoryRows || bytes > rows_.front().bytes;
  }
  void add(wire::MemoryObject row) {
    if (rows_.size() == wire::kMaxMemoryRows) {
      std::pop_heap(rows_.begin(), rows_.end(), smaller);
      rows_.pop_back();
    }
    rows_.push_back(std::move(row));
    std::push_heap(rows_.begin(), rows_.end(), smaller);
  }
  std::uint64_t seen() const noexcept { return seen_; }
  std::vector<wire::MemoryObject> take() {
    std::sort_heap(rows_.begin(), rows_.end(), smaller);
    return std::move(rows_);
  }

 private:
  static bool smaller(const wire::MemoryObject& a, const wire::MemoryObject& b) {
    return a.bytes != b.bytes ? a.bytes > b.bytes : a.id < b.id;
  }
  std::vector<wire::MemoryObject> rows_;
  std::uint64_t seen_ = 0;
};

std::uint64_t bytes_of(const wire::Value& value) {
  switch (value.kind) {
    case wire::Value::Kind::inline_bytes: return value.payload_size;
    case wire::Value::Kind::shared: return value.location.length;
    case wire::Value::Kind::remote: return value.remote_bytes;
    default: return 0;
  }
}

wire::MemoryObject::State state_of(const ReferenceTable::Seen& seen) {
  using State = wire::MemoryObject::State;
  if (!seen.ready) return State::pending;
  switch (seen.value.kind) {
    case wire::Value::Kind::inline_bytes: return State::inline_bytes;
    case wire::Value::Kind::shared: return State::memory;
    case wire::Value::Kind::remote: return State::elsewhere;
    case wire::Value::Kind::error: return State::error;
    case wire::Value::Kind::forwarded: return State::forwarded;
    case wire::Value::Kind::pending: break;
  }
  return State::pending;
}

Error too_many_open() {
  return Error(Code::overloaded, "too many questions wait for an answer at this node: ask again");
}

}  // namespace

// --- memory

wire::MemoryUser Observers::user_of(const Process& process) const {
  if (process.kind == wire::ProcessKind::driver) return wire::MemoryUser::driver;
  return below_.actors.hosts(process.index) ? wire::MemoryUser::actor : wire::MemoryUser::worker;
}

wire::MemoryHolder Observers::holder(ProcessIndex index, std::int64_t refs, Time now) const {
  wire::MemoryHolder holder;
  holder.refs = refs;
  if (index == kSelf) return holder;
  if (const auto node = below_.remote.node_of(index)) {
    holder.kind = wire::MemoryUser::node;
    holder.node = *node;
  } else if (const Process* process = below_.processes.find(index)) {
    holder.kind = user_of(*process);
    holder.pid = process->told_pid;
    holder.silent_ns = nanoseconds(now - process->heard);
  } else {
    holder.kind = wire::MemoryUser::ended;
  }
  return holder;
}

void Observers::describe_place(const wire::Location& location, wire::MemoryObject& row,
                               Time now) const {
  if (const std::string* site = below_.memory.site_of(location)) row.site = *site;
  const objectstore::Spiller* spiller = below_.extents.spiller();
  const auto seen =
      spiller != nullptr ? spiller->look(wire::store_location(location)) : std::nullopt;
  if (!seen) return;
  row.state = seen->on_disk ? wire::MemoryObject::State::disk : wire::MemoryObject::State::memory;
  row.pins = seen->pins;
  row.age_ns = nanoseconds(now - seen->adopted);
  row.unused_ns = seen->pins != 0 ? 0 : nanoseconds(now - seen->used);
}

wire::MemoryReport Observers::memory_report() const {
  const Time now = steady_now();
  wire::MemoryReport report;
  report.node = below_.self;
  report.name = below_.node;
  const objectstore::HostStats store = below_.host.stats();
  report.arena_bytes = store.arena;
  report.extent_bytes = store.committed;
  report.ready_bytes = store.prefaulted;
  report.object_bytes = store.object_bytes;
  report.objects = store.objects;
  report.waiting_objects = store.waiting;
  const objectstore::Spiller* spiller = below_.extents.spiller();
  report.spills = spiller != nullptr;
  if (spiller != nullptr) {
    const objectstore::SpillerStats spill = spiller->stats();
    report.spilled = spill.spilled;
    report.spilled_bytes = spill.spilled_bytes;
    report.disk_bytes = spill.disk.bytes;
    report.restored = spill.restored;
    report.bad_folders = spill.disk.quarantined;
    report.asks_waiting = spill.waiting;
  }
  report.job_quota_bytes = below_.options.job_bytes.count;
  below_.memory.accounting().each_job([&](JobNumber number, std::uint64_t bytes) {
    if (report.jobs.size() == wire::kMaxMemoryJobs) return;
    const Job* job = below_.jobs.find(number);
    report.jobs.push_back({job == nullptr ? JobId{} : job->id, bytes});
  });
  below_.memory.accounting().each_site(
      now, [&](std::uint32_t number, const ObjectAccounting::Site& site) {
        if (number != 0)
          report.sites.push_back({site.text, site.objects, site.bytes, site.made, site.grows});
      });
  std::stable_sort(report.sites.begin(), report.sites.end(),
                   [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  if (report.sites.size() > wire::kMaxMemorySites) report.sites.resize(wire::kMaxMemorySites);
  report.copies = below_.copies.is_open();
  if (report.copies) {
    const objectstore::SharedStats copies = below_.copies.stats();
    report.copied = copies.copies;
    report.copy_bytes = copies.bytes;
    report.copy_errors = copies.errors;
  }
  const objectstore::ClientStats own = below_.host.local().stats();
  report.own_holes = own.holes;
  report.own_free_bytes = own.capacity - own.used;
  report.own_largest_free = own.largest_free;

  std::map<std::uint32_t, const Process*> by_store;
  for (const auto& [index, process] : below_.processes)
    if (process->store_index != 0) by_store[process->store_index] = process.get();
  for (const objectstore::ProcessStats& one : store.processes) {
    if (report.processes.size() == wire::kMaxMemoryProcesses) break;
    wire::MemoryProcess& row = report.processes.emplace_back();
    const auto at = by_store.find(one.process);
    if (one.process != 0 && (one.dead || at == by_store.end())) {
      row.kind = wire::MemoryUser::ended;
    } else if (one.process != 0) {
      row.kind = user_of(*at->second);
      row.pid = at->second->told_pid;
      row.job = at->second->job;
      row.silent_ns = nanoseconds(now - at->second->heard);
    }
    row.extents = one.extents;
    row.extent_bytes = one.extent_bytes;
    row.objects = one.objects;
    row.object_bytes = one.bytes;
  }

  Largest rows;
  std::set<std::tuple<std::uint32_t, std::uint32_t, std::uint64_t>> named;
  below_.references.each([&](const ReferenceTable::Seen& seen) {
    const wire::Location& at = seen.value.location;
    if (seen.ready && seen.value.kind == wire::Value::Kind::shared)
      named.emplace(at.segment, at.slot, at.generation);
    if (!rows.takes(bytes_of(seen.value))) return;
    wire::MemoryObject row;
    row.id = seen.object;
    row.state = state_of(seen);
    row.bytes = bytes_of(seen.value);
    row.owner =
        seen.owner == kSelf ? below_.self : below_.remote.node_of(seen.owner).value_or(NodeId{});
    if (row.state == wire::MemoryObject::State::memory) describe_place(at, row, now);
    if (const Process* maker = below_.processes.find(seen.producer)) {
      row.maker_pid = maker->told_pid;
      row.job = maker->job;
    }
    for (const auto& [holder, refs] : seen.holders) {
      row.held += refs;
      if (row.holders.size() < wire::kMaxMemoryHolders)
        row.holders.push_back(this->holder(holder, refs, now));
    }
    rows.add(std::move(row));
  });
  if (spiller !=
      nullptr)  // objects that processes passed to each other without the reference table
    spiller->each([&](const objectstore::Spiller::Seen& seen) {
      const objectstore::Location& at = seen.name;
      if (named.count({at.process, at.slot, at.generation}) != 0 || !rows.takes(at.length)) return;
      wire::MemoryObject row;
      row.bytes = at.length;
      row.owner = below_.self;
      describe_place(wire::wire_location(at), row, now);
      if (const auto maker = by_store.find(at.process); maker != by_store.end()) {
        row.maker_pid = maker->second->told_pid;
        row.job = maker->second->job;
      }
      rows.add(std::move(row));
    });
  report.rows_in_all = rows.seen();
  report.rows = rows.take();
  return report;
}

// --- questions and answers

/// Asks the node that the question is about. Its answer goes to the process.
void Observers::pass_on(Process& from, const wire::Inquire& message, wire::PeerInquire question) {
  const Asker asker{from.index, {}, message.request};
  if (!below_.cluster.knows(message.node))
    return refuse(asker, Error(Code::unavailable, "the node is not in the cluster"));
  if (below_.inquiries.is_full()) return refuse(asker, too_many_open());
  question.request = below_.inquiries.note(from.index, message.request, message.node, steady_now());
  below_.out.send(message.node, question, {});
}

/// Returns whether the process is an observer. Refuses the question if it is not: it `said` what
/// only an observer may ask.
bool Observers::is_observer(Process& from, const wire::Inquire& message, const char* said) {
  if (from.speaks_as == Talker::observer) return true;
  below_.inquiries.refuse(from.index, message.request,
                          Error(Code::invalid_argument, below_.processes.account_of(from, said)));
  return false;
}

void Observers::on_inquire_memory(Process& from, const wire::Inquire& message) {
  if (!is_observer(from, message, "for what the memory of a node is used for")) return;
  if (!message.node || message.node == below_.self)
    return below_.inquiries.answer(from.index, message.request, wire::encode(memory_report()));
  pass_on(from, message, {});
}

// --- logs

/// Answers a question about a log: of this node at once or when lines come, of another by asking
/// it. A driver may ask for the log of its own job.
void Observers::on_inquire_logs(Process& from, const wire::Inquire& message) {
  const bool may = from.speaks_as == Talker::observer ||
                   (from.speaks_as == Talker::driver && message.logs.job == from.job);
  if (!may)
    return below_.inquiries.refuse(
        from.index, message.request,
        Error(Code::invalid_argument,
              below_.processes.account_of(from, "for a log that is not its own job's")));
  if (!message.node || message.node == below_.self)
    return ask_logs({from.index, {}, message.request}, message.logs);
  pass_on(from, message, {.about_logs = true, .logs = message.logs});
}

/// Answers a question about rows of all nodes, which only an observer may ask.
void Observers::on_inquire_rows(Process& from, const wire::Inquire& message) {
  if (is_observer(from, message, "for a list of the cluster"))
    rows_.ask({from.index, {}, message.request}, message.rows, steady_now());
}

void Observers::ask_logs(const Asker& asker, const wire::LogQuestion& question) {
  if (!below_.logs)
    return answer_logs(asker, {.begin = question.after, .complete = true, .text = {}});
  below_.logs->ask({asker, question.job, question.after, question.most,
                    std::chrono::milliseconds(question.wait_ms), question.until_complete},
                   steady_now());
}

void Observers::answer_logs(const Asker& asker, const wire::LogBatch& batch) {
  answer(asker, wire::encode(batch));
}

bool Observers::may_write(JobId id) {
  const Job* job = below_.jobs.find(id);
  if (job == nullptr) return false;
  if (!job->ended && job->state != Job::State::unknown) return true;
  return std::any_of(below_.processes.begin(), below_.processes.end(), [&](const auto& entry) {
    const Process& process = *entry.second;
    return process.job_number == job->number && process.kind == wire::ProcessKind::worker &&
           !below_.processes.has_purpose(process);
  });
}

// --- stacks

/// Answers an observer's question for the stacks of processes of this node, or asks another one.
void Observers::on_inquire_stacks(Process& from, const wire::Inquire& message) {
  if (!is_observer(from, message, "for the stacks of processes")) return;
  if (!message.node || message.node == below_.self)
    return ask_stacks({from.index, {}, message.request}, message.stacks);
  pass_on(from, message, {.about_stacks = true, .stacks = message.stacks});
}

void Observers::ask_stacks(const Asker& asker, const wire::StackQuestion& question) {
  std::vector<StackAsks::Target> targets;
  for (const auto& [index, process] : below_.processes) {
    const pid_t pid = process->pid > 0 ? process->pid : static_cast<pid_t>(process->told_pid);
    const bool is_meant = question.pid != 0 ? pid == question.pid
                          : question.actor  ? below_.actors.actor_on(index) == question.actor
                                            : process->job == question.job && process->job;
    if (!is_meant || pid <= 0 || process->ending) continue;
    if (process->kind == wire::ProcessKind::observer) continue;
    const std::string name = below_.workers.pages().name(index);
    targets.push_back(
        {std::string(process->kind == wire::ProcessKind::driver ? "driver" : "worker") + " " +
             below_.node + "/" + std::to_string(pid) + (name.empty() ? "" : ", last: " + name),
         pid});
  }
  if (targets.empty() && question.job)
    return answer_stacks(asker, below_.node + " runs no process of the job now\n");
  if (targets.empty())
    return refuse(asker,
                  Error(Code::unavailable,
                        "the node has no such process now: it has ended, so see 'troupe logs'"));
  if (!stacks_.ask(asker, std::move(targets), steady_now()))
    refuse(asker,
           Error(Code::overloaded, "too many questions for stacks wait at the node: ask again"));
}

void Observers::answer_text(const Asker& asker, const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  answer(asker, Blob(bytes.begin(), bytes.end()));
}

// --- stops of jobs

/// Stops a job for an observer, if its driver is at this node; else asks the node where it is.
void Observers::on_inquire_stop(Process& from, const wire::Inquire& message) {
  if (!is_observer(from, message, "that a job is to stop")) return;
  if (!message.node || message.node == below_.self)
    return stop_job({from.index, {}, message.request}, message.stop);
  pass_on(from, message, {.stop = message.stop});
}

void Observers::stop_job(const Asker& asker, const wire::StopQuestion& question) {
  const auto index = below_.jobs.stop(question.job, question.user);
  if (!index) return refuse(asker, index.error());
  const std::string why = below_.jobs.find(question.job)->stopped_why;
  below_.events.tell({EventKind::job_stopped, Severity::info,
                      "job " + question.job.str() + ": " + why, question.job});
  if (Process* driver = below_.processes.find(*index)) {
    below_.job_stops.begin(question.job, Fd(fcntl(driver->life.get(), F_DUPFD_CLOEXEC, 0)),
                           steady_now());
    if (driver->introduced)
      below_.processes.send(*driver, wire::Shutdown{why, true});
    else
      below_.processes.refuse(*driver, "the job was " + why);
  }
  answer_text(asker, why);
}

void Observers::on_peer_inquire(NodeId from, const wire::PeerInquire& message) {
  if (message.rows) return rows_.ask({{}, from, message.request}, *message.rows, steady_now());
  if (message.about_logs) return ask_logs({{}, from, message.request}, message.logs);
  if (message.stop) return stop_job({{}, from, message.request}, *message.stop);
  if (message.about_stacks) return ask_stacks({{}, from, message.request}, message.stacks);
  below_.inquiries.owe(from, message.request, wire::encode(memory_report()));
}

// --- ends

void Observers::process_died(ProcessIndex process, Time now) {
  if (below_.logs) below_.logs->forget(process);
  rows_.process_died(process);
  stacks_.process_died(process, now);
}

void Observers::node_died(NodeId node, const Error& why, Time now) {
  below_.inquiries.end(node, why);
  if (below_.logs) below_.logs->forget(node);
  rows_.node_died(node, why.message());
  stacks_.node_died(node, now);
  below_.inquiries.forget(node);  // last: no answer for it is left
}

Time Observers::next_deadline() const {
  return std::min(rows_.next_deadline(), stacks_.next_deadline());
}

void Observers::on_explain(Process& from, const wire::Explain& message) {
  const WaitReasons reasons(below_.leases, below_.actors, below_.remote);
  const std::string why =
      message.actor ? reasons.of_actor(message.actor) : reasons.of_lease(from.index, message.key);
  below_.processes.send(from, wire::Explained{message.request, why});
}

void Observers::on_inquire(Process& from, const wire::Inquire& message, BlobView payload) {
  const Asker asker{from.index, {}, message.request};
  if (message.about == wire::Inquire::About::memory) return on_inquire_memory(from, message);
  if (message.about == wire::Inquire::About::logs) return on_inquire_logs(from, message);
  if (message.about == wire::Inquire::About::rows) return on_inquire_rows(from, message);
  if (message.about == wire::Inquire::About::stacks) return on_inquire_stacks(from, message);
  if (message.about == wire::Inquire::About::stop) return on_inquire_stop(from, message);
  if (!below_.control.has_control())
    return refuse(asker, Error(Code::unavailable, "a private node has no control to ask"));
  auto decoded = control::decode_to_control(payload);
  if (!decoded) return refuse(asker, Error(Code::invalid_argument, decoded.error().message()));
  if (!Authority::may_ask(from.speaks_as, *decoded))
    return refuse(asker, Error(Code::invalid_argument,
                               below_.processes.account_of(
                                   from, "to control what such a process may not ask of it")));
  const std::uint64_t number = below_.inquiries.next_number();
  const bool asks =
      std::visit(Cases{[&](control::ListRequest& m) { return m.request = number, true; },
                       [&](control::KeyValueRequest& m) { return m.request = number, true; },
                       [&](control::DrainRequest& m) { return m.request = number, true; },
                       [&](control::NameObject& m) {
                         m.request = number;
                         return m.verb != control::NameObject::Verb::detach;
                       },
                       [&](auto&) { return false; }},
                 *decoded);
  if (!asks) return refuse(asker, Error(Code::invalid_argument, "only agents say this to control"));
  if (!below_.control.hears_control())
    return refuse(asker,
                  Error(Code::unavailable, "control does not answer at the moment: try again"));
  if (below_.inquiries.is_full()) return refuse(asker, too_many_open());
  below_.inquiries.note(from.index, message.request, {}, steady_now());
  below_.control.say_to_control(*decoded);
}

}  // namespace troupe::agent
