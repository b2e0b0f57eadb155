#include "troupe/runtime/agent/extents.hpp"

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/wire/values.hpp"

#include <algorithm>
#include <utility>

namespace troupe::agent {
namespace {

/// How soon a process of a job at its quota asks for memory again.
constexpr Duration kTryAgain = std::chrono::milliseconds(10);

}  // namespace

void Extents::open(std::unique_ptr<objectstore::SpillFiles> files) {
  objectstore::SpillerOptions waiting;
  waiting.patience = below_.options.spill_patience;
  objectstore::Spiller::Out& out = *this;
  spiller_ = std::make_unique<objectstore::Spiller>(below_.host, std::move(files), out, waiting);
}

bool Extents::is_readable(const wire::Location& at) {
  const objectstore::Location name = wire::store_location(at);
  if (spiller_ && (!spiller_->is_good(name) || spiller_->is_spilled(name)))
    return spiller_->is_good(name);
  const auto opened =
      below_.host.open_local(spiller_ ? spiller_->where(name).value_or(name) : name);
  // Another error passes, and says nothing about the bytes.
  return opened || (opened.error().code() != Code::object_lost &&
                    opened.error().code() != Code::invalid_argument);
}

std::uint64_t Extents::ask(Asked asked) {
  asked_.emplace(++last_ask_, asked);
  return last_ask_;
}

std::optional<Extents::Asked> Extents::take_ask(std::uint64_t number) {
  const auto found = asked_.find(number);
  if (found == asked_.end()) return std::nullopt;
  Asked asked = found->second;
  asked_.erase(found);
  return asked;
}

void Extents::forget(ProcessIndex process, std::uint32_t store_index) {
  at_quota_.erase(process);
  if (!spiller_ || store_index == 0) return;
  spiller_->forget(store_index);
  std::erase_if(asked_, [&](const auto& one) { return one.second.process == process; });
}

void Extents::forget_pulls(NodeId node) {
  std::erase_if(asked_, [node](const auto& one) {
    return one.second.what == Asked::What::pull && one.second.node == node;
  });
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
bool Extents::exceeds_quota(const Asker& from, const wire::NeedExtent& message, Time now) {
  if (below_.options.job_bytes.count == 0) return false;
  const objectstore::HostStats store = below_.host.stats();
  std::uint64_t use = below_.accounting.bytes_of(from.job_number);
  for (const objectstore::ProcessStats& process : store.processes)
    if (process.process == from.store_index)
      use += process.extent_bytes - std::min(process.extent_bytes, process.bytes);
  const std::uint64_t wanted = message.bytes > store.usual_extent ? message.bytes : 0;
  if (use < below_.options.job_bytes.count && wanted <= below_.options.job_bytes.count - use) {
    at_quota_.erase(from.index);
    return false;
  }
  const auto next = at_quota_[from.index].asked(below_.accounting.freed_of(from.job_number),
                                                below_.options.spill_patience, now);
  if (next == QuotaWait::Next::pressure)
    below_.outgoing.send(from.index, wire::MemoryPressure{}, {});
  if (next != QuotaWait::Next::refuse) {
    try_quota_again_.push_back({from.index, message.request, now + kTryAgain});
    return true;
  }
  give(from.index, message.request,
       Error(Code::out_of_memory,
             "job " + from.job.str() + " has " + std::to_string(use) + " bytes of objects on " +
                 below_.node + " and asked for " + std::to_string(message.bytes) +
                 " more; one job may have " + std::to_string(below_.options.job_bytes.count) +
                 " bytes there, in memory and on disk (TROUPE_JOB_BYTES): drop references, "
                 "or start the nodes with a larger quota"));
  return true;
}

void Extents::answer_quota(Time now) {
  while (!try_quota_again_.empty() && try_quota_again_.front().due <= now) {
    wire::GiveExtent again;
    again.request = try_quota_again_.front().request;
    below_.outgoing.send(try_quota_again_.front().process, again, {});
    try_quota_again_.pop_front();
  }
}

void Extents::need(const Asker& from, const wire::NeedExtent& message, Time now) {
  if (exceeds_quota(from, message, now)) return;
  if (!spiller_)
    return give(from.index, message.request, below_.host.grant(from.store_index, message.bytes));
  Asked asked;
  asked.process = from.index;
  asked.request = message.request;
  spiller_->need(ask(asked), from.store_index, message.bytes, now);
}

void Extents::give(ProcessIndex process, std::uint64_t request,
                   Result<objectstore::ExtentGrant> grant) {
  if (!below_.outgoing.is_alive(process)) return;
  wire::GiveExtent answer;
  answer.request = request;
  if (!grant) {
    answer.error = grant.error().shared_info();
    return below_.outgoing.send(process, answer, {});
  }
  below_.prefault.taken(steady_now());
  answer.extent = grant->id.value;
  answer.bytes = grant->bytes;
  below_.out.send_with(process, answer, {grant->memory.get()});
}

void Extents::short_of_memory(std::uint64_t bytes, Time now) {
  if (!spiller_ || std::exchange(asks_for_transfers_, true)) return;
  spiller_->need(ask({}), 0, bytes, now);
}

/// Takes the answer to short_of_memory(). Transfers are told later, in tell(), since they
/// may be the caller.
void Extents::take(Result<objectstore::ExtentGrant> grant) {
  asks_for_transfers_ = false;
  memory_came_ = true;
  if (grant)
    add(*std::move(grant));
  else
    memory_refused_ = grant.error();
}

/// Gives the extent to the agent's own client of the object store.
void Extents::add(objectstore::ExtentGrant grant) {
  const objectstore::ExtentId id = grant.id;
  if (below_.host.local().add_extent(std::move(grant)))
    (void)below_.host.confirm_extent(0, id);
  else
    (void)below_.host.release_extent(0, id);
}

void Extents::granted(std::uint64_t ask, objectstore::ExtentGrant grant) {
  const auto asked = take_ask(ask);
  if (!asked) return;
  if (asked->what == Asked::What::room) {
    add(std::move(grant));
    return below_.copies.room(asked->object);
  }
  if (asked->process == kSelf) return take(std::move(grant));
  give(asked->process, asked->request, std::move(grant));
}

// --- objects

void Extents::where_is(ProcessIndex from, const wire::WhereIs& message, Time now) {
  if (!spiller_)
    return below_.outgoing.send(
        from,
        wire::NowAt{
            message.request, {}, Error(Code::object_lost, "the object was freed").shared_info()},
        {});
  Asked asked;
  asked.what = Asked::What::place;
  asked.process = from;
  asked.request = message.request;
  spiller_->find(ask(asked), wire::store_location(message.location), now);
}

bool Extents::restores_first(NodeId from, const wire::PeerMessage& message, Time now) {
  const auto* request = std::get_if<wire::PullRequest>(&message);
  if (request == nullptr || !spiller_) return false;
  const wire::Value* value =
      below_.references.value_of(below_.replica_host.served(request->object));
  if (value == nullptr || value->kind != wire::Value::Kind::shared) return false;
  const objectstore::Location name = wire::store_location(value->location);
  if (!spiller_->is_spilled(name)) return false;
  Asked asked;
  asked.what = Asked::What::pull;
  asked.node = from;
  asked.pull = *request;
  spiller_->find(ask(asked), name, now);
  return true;
}

void Extents::located(std::uint64_t ask, const objectstore::Location& at) {
  const auto asked = take_ask(ask);
  if (!asked) return;
  if (asked->what == Asked::What::pull) return below_.out.restored(asked->node, asked->pull);
  if (asked->what == Asked::What::copy) return below_.copies.write(asked->object, steady_now());
  below_.outgoing.send(asked->process,
                       wire::NowAt{asked->request, wire::wire_location(at), nullptr}, {});
}

void Extents::refused(std::uint64_t ask, const Error& error) {
  const auto asked = take_ask(ask);
  if (!asked) return;
  switch (asked->what) {
    case Asked::What::extent:
      if (asked->process == kSelf) return take(error);
      return give(asked->process, asked->request, error);
    case Asked::What::pull:
      return below_.outgoing.send(asked->node,
                                  wire::PullRefused{asked->pull.transfer, error.shared_info()}, {});
    case Asked::What::copy: return below_.copies.write_failed(asked->object, error, steady_now());
    case Asked::What::room: return below_.copies.no_room(asked->object, error);
    case Asked::What::place:
      below_.outgoing.send(asked->process, wire::NowAt{asked->request, {}, error.shared_info()},
                           {});
  }
}

// --- what FolderCopies needs

void Extents::bring_back(ObjectId object, const objectstore::Location& name, Time now) {
  Asked asked;
  asked.what = Asked::What::copy;
  asked.object = object;
  spiller_->find(ask(asked), name, now);
}

bool Extents::need_room(ObjectId object, std::uint64_t bytes, Time now) {
  if (!spiller_) return false;
  Asked asked;
  asked.what = Asked::What::room;
  asked.object = object;
  spiller_->need(ask(asked), 0, bytes, now);
  return true;
}

void Extents::may_spill(const wire::Location& at) {
  if (spiller_) spiller_->adopted(wire::store_location(at), steady_now());
}

// --- the loop

void Extents::serve(Time now) {
  if (!spiller_ || (!ready_ && now < spiller_->next_deadline())) return;
  ready_ = false;
  spiller_->poll(now);
}

void Extents::tell() {
  for (const std::uint64_t ask : std::exchange(try_again_, {})) {
    const auto asked = take_ask(ask);
    if (!asked) continue;
    if (asked->what == Asked::What::room) {
      below_.copies.room(asked->object);
    } else if (asked->process == kSelf) {
      asks_for_transfers_ = false;
      memory_came_ = true;
    } else {
      wire::GiveExtent again;
      again.request = asked->request;
      below_.outgoing.send(asked->process, again, {});
    }
  }
  if (std::exchange(memory_came_, false))
    below_.out.memory_answer(std::exchange(memory_refused_, std::nullopt));
  if (std::exchange(memory_pressure_, false)) below_.out.press();
}

Time Extents::next_deadline() const {
  const Time spilling = spiller_ ? spiller_->next_deadline() : Time::max();
  return try_quota_again_.empty() ? spilling : std::min(spilling, try_quota_again_.front().due);
}

}  // namespace troupe::agent
