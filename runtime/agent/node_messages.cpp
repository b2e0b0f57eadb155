/// Node's handling of messages from the processes of its node.
#include "troupe/runtime/agent/node.hpp"
#include "troupe/runtime/agent/node_pieces.hpp"
#include "troupe/runtime/base/version.hpp"
#include "troupe/runtime/wire/cases.hpp"

#include <algorithm>
#include <utility>

namespace troupe::agent {

using wire::Cases;

namespace {

constexpr std::size_t kOfDoorbell = 2;  ///< descriptors: its memory and its event
constexpr const char* kNoDoorbell = "the hello came without its doorbell";

}  // namespace

void Node::handle(Process& from, wire::NodeMessage& message, BlobView payload,
                  std::vector<Fd>& descriptors) {
  const Time now = steady_now();
  from.heard = now;
  std::visit(
      Cases{
          [&](wire::Hello& m) { on_hello(from, m, descriptors); },
          [&](wire::RequestLease& m) { leasing_.on_request(from.index, from.job_number, m, now); },
          [&](wire::LeaseReturned& m) { leasing_.on_returned(from.index, m.lease, now); },
          [&](wire::Blocked&) { leases_.blocked(from.index, now); },
          [&](wire::Unblocked&) { leases_.unblocked(from.index, now); },
          [&](wire::Pace& m) { cluster_.add_pace(m); },
          [&](wire::Promote& m) {
            objects_.counted(m.value);
            references_.promote(from.index, m.object, m.value, payload);
          },
          [&](wire::Fulfil& m) {
            objects_.counted(m.value);
            references_.fulfil(m.object, m.value, payload);
          },
          [&](wire::Hold& m) { objects_.on_hold(from, m); },
          [&](wire::Arrived& m) {
            objects_.on_arrived(from.index, m);
            proxies_.drop_written_since({from.index, m.peer});
          },
          [&](wire::CallSite& m) { memory_.on_call_site(from, m); },
          [&](wire::Await& m) { references_.await(m.object, from.index, m.fetch); },
          [&](wire::Rebuild& m) { references_.rebuild(m.object, from.index, m.lost); },
          [&](wire::Rebuilt& m) {
            objects_.counted(m.value);
            references_.rebuilt(from.index, m.object, m.value, payload);
          },
          [&](wire::Lineage& m) { references_.keeps_lineage(from.index, m.object); },
          [&](wire::KeptCall& m) { lineage_cache_.keep(from.index, from.job_number, m, payload); },
          [&](wire::MadeBy& m) { lineage_cache_.made(from.index, m); },
          [&](wire::ForgetCall& m) { lineage_cache_.forget(from.index, m.number); },
          [&](wire::Replicate& m) { replica_host_.on_replicate(from.index, m, now); },
          [&](wire::NameObject& m) { replica_host_.on_name_object(from.index, from.job, m); },
          [&](wire::Locate& m) { replica_host_.places().ask(from.index, m, now); },
          [&](wire::Explain& m) { observers_.on_explain(from, m); },
          [&](wire::ListNodes& m) { answer_nodes(from, m.request); },
          [&](wire::Inquire& m) { observers_.on_inquire(from, m, payload); },
          [&](wire::GiveRows& m) { observers_.rows().process_answered(from.index, m, payload); },
          [&](wire::Shutdown& m) { on_shutdown(from, m); },
          [&](wire::CreateActor&) { actor_effects_.on_message(from, message, payload); },
          [&](wire::ActorCreated&) { actor_effects_.on_message(from, message, payload); },
          [&](wire::WatchActor&) { actor_effects_.on_message(from, message, payload); },
          [&](wire::KillActor&) { actor_effects_.on_message(from, message, payload); },
          [&](wire::FindActor&) { actor_effects_.on_message(from, message, payload); },
          [&](wire::StoreAttached&) { store_attached(from); },
          [&](auto&) { objects_.on_store(from, message); }},
      message);
}

/// Handles Shutdown: a driver's program has ended, or a worker cannot start or go on. The requests
/// that wait for a worker's start are refused, with the reason that it gives.
void Node::on_shutdown(Process& from, const wire::Shutdown& message) {
  if (from.speaks_as == Talker::driver) {
    from.said_end = true;
    const bool finished = !message.why.empty();
    if (!finished) from.reason = "an error left its program";
    return driver_gone(from, finished);
  }
  from.sentence = message.why;
  if (!from.starting) return processes_.break_off(from, "it ends itself");
  from.at_limit = true;
}

void Node::on_hello(Process& from, const wire::Hello& hello, std::vector<Fd>& descriptors) {
  from.speaks_as = Talker::nobody;  // until it is welcome
  from.told_pid = hello.pid;
  if (hello.protocol != kProtocolVersion)
    return processes_.refuse(from, "protocol " + std::to_string(hello.protocol) +
                                       " is not protocol " + std::to_string(kProtocolVersion));
  if (from.kind == wire::ProcessKind::worker || !network_)
    return welcome(from, std::move(descriptors));
  from.kind = hello.kind == wire::ProcessKind::observer ? hello.kind : wire::ProcessKind::driver;
  if (from.kind == wire::ProcessKind::driver) {
    if (descriptors.size() != kOfDoorbell) return processes_.refuse(from, kNoDoorbell);
    return on_driver(from, hello, std::move(descriptors));
  }
  from.introduced = true;
  from.speaks_as = Talker::observer;
  wire::Welcome answer;
  answer.protocol = kProtocolVersion;
  answer.node = id_;
  answer.node_name = options_.name;
  answer.process = from.index;
  processes_.send(from, answer);
}

void Node::welcome(Process& from, std::vector<Fd> descriptors) {
  if (descriptors.size() != kOfDoorbell) return processes_.refuse(from, kNoDoorbell);
  const bool is_worker = from.kind == wire::ProcessKind::worker;
  if (is_worker && jobs_.find(from.job_number) == nullptr)
    return processes_.refuse(from, "its job has ended");
  auto bell = ring::Doorbell::attach(std::move(descriptors[0]), std::move(descriptors[1]));
  auto memory = ring::ChannelMemory::create();
  const auto join_store = [&]() -> Result<objectstore::Membership> {
    if (!bell) return bell.error();
    if (!memory) return memory.error();
    return host_->register_process();  // last: nothing but the process's end takes it back
  };
  auto membership = join_store();
  if (!membership) {
    const std::string why = membership.error().message();
    from.at_limit = is_worker;
    from.sentence = why;
    return processes_.refuse(from, why);
  }
  from.store_index = membership->process;
  from.speaks_as = is_worker ? Talker::worker : Talker::driver;
  wire::Welcome welcome;
  welcome.protocol = kProtocolVersion;
  welcome.node = id_;
  welcome.node_name = options_.name;
  welcome.cpus = static_cast<std::uint32_t>(std::max(1.0, options_.cpus));
  welcome.job = from.job;
  processes_.open_ring(from, std::move(*bell), std::move(*memory), welcome);
  wire::StoreTables tables;
  tables.processes = membership->layout.processes;
  tables.slots = membership->layout.slots;
  tables.extents = membership->layout.extents;
  tables.process = membership->process;
  tables.incarnation = membership->incarnation;
  tables.extent_bytes = membership->extent_bytes;
  processes_.send_with(
      from, tables,
      {membership->publications.get(), membership->pins.get(), membership->retirements.get()});
}

/// Handles StoreAttached: the process has mapped the object store and has its I/O thread, so
/// nothing it needs can be refused any more. A worker counts as started from here on.
void Node::store_attached(Process& from) {
  if (const auto done = host_->confirm_process(from.store_index); !done)
    return processes_.break_off(from, done.error().message());
  Job* job = jobs_.find(from.job_number);
  if (job == nullptr) return;  // its zygote ends, and this worker with it
  if (!std::exchange(from.starting, false)) return;
  leases_.worker_started(from.index, steady_now(), from.dedicated, from.job_number);
  job->failed_starts = 0;
  // A worker of an ended job ends now, unless an actor waits for it or it got a lease: a detached
  // actor of such a job may still submit tasks. With a lease the worker ends when that does.
  if (job->ended) drop_lease_requests(*job);
}

/// Handles the answers of a private node's control, or those to messages that no Link took. Returns
/// true if there were any.
bool Node::hear_control() {
  auto messages = sender_.hear(steady_now());
  for (control::FromControl& message : messages) on_control(message);
  return !messages.empty();
}

void Node::answer_nodes(Process& to, std::uint64_t request) {
  wire::Nodes answer{request, {}};
  const auto add = [&](const std::string& name, const control::NodeReport& report,
                       const std::string& door) -> wire::NodeRow& {
    const scheduling::NodeView& view = report.view;
    wire::NodeRow& row = answer.rows.emplace_back();
    row.id = view.id;
    row.name = name;
    if (!door.empty()) row.address = host_of(door);
    row.cpus = view.total.cpus;
    row.cpus_free = view.free.cpus;
    row.gpus = view.total.gpus;
    row.gpus_free = view.free.gpus;
    row.memory = static_cast<std::uint64_t>(view.total.memory);
    row.store_capacity = report.store_capacity;
    row.store_used = report.store_used;
    row.workers = report.workers;
    row.resources = view.total.custom;
    return row;
  };
  wire::NodeRow& self = add(options_.name, report_of_self(), network_ ? door() : "");
  for (const control::ClusterRow& row : cluster_.rows())
    if (row.description.id == id_) self.draining = row.draining;
  for (const control::ClusterRow& row : cluster_.rows()) {
    if (row.description.id == id_) continue;
    wire::NodeRow& other = add(row.description.name, row.report, row.description.address);
    other.alive = !row.suspect;
    other.suspect = row.suspect;
    other.draining = row.draining;
  }
  for (const wire::Nodes& piece : pieces_of(std::move(answer))) processes_.send(to, piece);
}

control::NodeReport Node::report_of_self() const {
  const objectstore::HostStats store = host_->stats();
  control::NodeReport report;
  report.view = leases_.self_view();
  report.store_capacity = store.arena;
  report.store_used = store.object_bytes;
  report.workers = static_cast<std::uint32_t>(leases_.worker_count());
  report.unreachable = cluster_.out_of_reach();
  return report;
}

}  // namespace troupe::agent
