#include "troupe/runtime/agent/lineage_cache.hpp"

#include "troupe/runtime/base/buggify.hpp"

#include <algorithm>
#include <utility>

namespace troupe::agent {
namespace {

constexpr const char* kEvicted =
    "the call that computed it is no longer known, since more lineage was to be kept than "
    "TROUPE_LINEAGE allows (64M by default): raise it";
constexpr const char* kSpent =
    "the task that computed it may not run again: its max_retries are used up";
constexpr const char* kUnknown = "nothing is known of how it was computed";

std::size_t bytes_of(const wire::KeptCall& call, BlobView payload) {
  std::size_t bytes = sizeof call + payload.size() + call.input_bytes;
  for (const wire::Value& argument : call.call.arguments)
    bytes += sizeof argument + argument.refs.size() * sizeof(ObjectId);
  return bytes + call.made.size() * sizeof(std::uint32_t);
}

}  // namespace

// --- from processes

void LineageCache::keep(ProcessIndex from, JobNumber job, const wire::KeptCall& message,
                        BlobView payload) {
  if (limit_ == 0) return;
  const auto [at, fresh] = calls_.try_emplace(message.number);
  if (!fresh) return;
  Call& call = at->second;
  call.message = message;
  call.payload.assign(payload.begin(), payload.end());
  call.job = job;
  call.known_to = {from};
  // An id with `is_made` names no object: its halves are the number of the call that made the
  // argument, and the index of the result.
  wire::each_id(message, [&](ObjectId id, std::size_t, bool is_made) {
    if (!is_made)
      references_.hold(id, kSelf, +1);
    else if (const auto needed = calls_.find(id.high); needed != calls_.end())
      needed->second.uses += TROUPE_MUTANT("references.forgets_needed_calls") ? 0 : 1;
  });
  call.bytes = bytes_of(message, payload);
  bytes_ += call.bytes;
  call.age = ++next_age_;
  ages_[call.age] = message.number;
  while (bytes_ > limit_) end(calls_.at(ages_.begin()->second), kEvicted);
}

void LineageCache::made(ProcessIndex from, const wire::MadeBy& message) {
  const auto found = calls_.find(message.call);
  if (found == calls_.end() || !is_known_to(found->second, from)) return;
  found->second.message.retries_left = message.retries_left;
  if (objects_.count(message.object) != 0 || !references_.made_by_kept_call(from, message.object))
    return;
  objects_[message.object] = message.call;
  found->second.made.push_back({message.object, message.result});
}

void LineageCache::forget(ProcessIndex from, std::uint64_t number) {
  const auto found = calls_.find(number);
  if (found != calls_.end() && std::erase(found->second.known_to, from) != 0) drop_unused(number);
}

void LineageCache::process_died(ProcessIndex process) {
  std::vector<std::uint64_t> theirs;
  for (auto& [number, call] : calls_)
    if (std::erase(call.known_to, process) != 0) theirs.push_back(number);
  for (const std::uint64_t number : theirs) drop_unused(number);
}

void LineageCache::job_over(JobNumber job, const std::string& why) {
  std::vector<std::uint64_t> theirs;
  for (const auto& [number, call] : calls_)
    if (call.job == job) theirs.push_back(number);
  for (const std::uint64_t number : theirs)
    if (const auto found = calls_.find(number); found != calls_.end()) end(found->second, why);
  if (const auto waiting = waiting_.extract(job))
    for (const Orphan& orphan : waiting.mapped()) give_up(orphan, why);
}

// --- objects

void LineageCache::carry_out() {
  for (const ObjectId object : std::exchange(released_, {})) {
    const auto found = objects_.find(object);
    if (found == objects_.end()) continue;
    const std::uint64_t number = found->second;
    objects_.erase(found);
    std::erase_if(calls_.at(number).made,
                  [object](const Made& made) { return made.object == object; });
    drop_unused(number);
  }
  for (const Orphan& orphan : std::exchange(orphans_, {})) look_after(orphan);
}

bool LineageCache::is_known_to(const Call& call, ProcessIndex process) {
  return std::find(call.known_to.begin(), call.known_to.end(), process) != call.known_to.end();
}

LineageCache::Call* LineageCache::call_of(ObjectId object) {
  const auto found = objects_.find(object);
  return found == objects_.end() ? nullptr : &calls_.at(found->second);
}

const LineageCache::Made* LineageCache::newest(const Call& call, std::uint64_t index) {
  const auto found = std::find_if(call.made.rbegin(), call.made.rend(),
                                  [index](const Made& made) { return made.index == index; });
  return found == call.made.rend() ? nullptr : &*found;
}

/// Asks for an orphan to be computed again: by its present maker, by `process`, or by any process
/// of the job.
void LineageCache::look_after(const Orphan& orphan, std::optional<ProcessIndex> process) {
  Call* call = call_of(orphan.object);
  if (call == nullptr) return give_up(orphan, kUnknown);
  // Another orphan of the same call may have given this one a maker already.
  if (const auto maker = references_.maker_of(orphan.object))
    return out_.send(*maker, wire::Rebuild{orphan.object, orphan.lost}, {});
  if (!process) process = out_.find_process(call->job);
  if (process) return entrust(orphan, *process);
  waiting_[call->job].push_back(orphan);
}

void LineageCache::serve(JobNumber job, ProcessIndex process) {
  if (const auto waiting = waiting_.extract(job))
    for (const Orphan& orphan : waiting.mapped()) look_after(orphan, process);
}

/// Sends the process every call that it needs for the object, then the Rebuild.
void LineageCache::entrust(const Orphan& orphan, ProcessIndex process) {
  std::vector<std::uint64_t> order;
  if (const auto possible = gather(objects_.at(orphan.object), order); !possible)
    return give_up(orphan, possible.error().message());
  for (const std::uint64_t number : order) hand_over(calls_.at(number), process);
  out_.send(process, wire::Rebuild{orphan.object, orphan.lost}, {});
}

void LineageCache::give_up(const Orphan& orphan, const std::string& why) {
  ErrorInfo info;
  info.code = Code::object_lost;
  info.message = "the bytes of an object are gone, and cannot be computed again: " + why;
  if (const wire::Value* lost = references_.value_of(orphan.lost); lost != nullptr && lost->error)
    info.cause = lost->error;
  references_.gone(orphan.object, Error(std::move(info)));
}

/// Collects the call and, at any depth, the calls that made those of its arguments that are gone;
/// arguments first. Linear in the calls and without recursion: chains of calls can be long.
/// Errors: ObjectLost if one of them cannot run.
Result<void> LineageCache::gather(std::uint64_t wanted, std::vector<std::uint64_t>& order) {
  struct Frame {
    Call* call;
    std::vector<ObjectId> needed;  ///< arguments that are gone: call number and result index
  };
  std::vector<Frame> stack;
  std::vector<Call*> seen;
  Result<void> result;
  const auto enter = [&](std::uint64_t number) {
    const auto found = calls_.find(number);
    if (found != calls_.end() && found->second.visited) return;
    const std::string why = number == wanted ? "" : "an argument of its task is gone too: ";
    if (found == calls_.end() || !found->second.ended.empty()) {
      const std::string cause = found == calls_.end() ? kUnknown : found->second.ended;
      result = Error(Code::object_lost, why + cause);
      return;
    }
    Call& call = found->second;
    if (call.message.retries_left == 0) {
      result = Error(Code::object_lost, why + kSpent);
      return;
    }
    call.visited = true;
    seen.push_back(&call);
    Frame frame{&call, {}};
    wire::each_id(call.message, [&](ObjectId id, std::size_t, bool is_made) {
      if (!is_made) return;
      const auto needed = calls_.find(id.high);
      if (needed == calls_.end() || newest(needed->second, id.low) == nullptr)
        frame.needed.push_back(id);
    });
    stack.push_back(std::move(frame));
  };
  enter(wanted);
  while (!stack.empty() && result) {
    Frame& top = stack.back();
    if (top.needed.empty()) {
      order.push_back(top.call->message.number);
      stack.pop_back();
      continue;
    }
    const std::uint64_t next = top.needed.back().high;
    top.needed.pop_back();
    enter(next);
  }
  for (Call* call : seen) call->visited = false;
  return result;
}

/// Sends the call to the process, and makes it the maker of the call's objects. An argument that a
/// kept call made and that has a record is named by its object, and counted for the receiver.
void LineageCache::hand_over(Call& call, ProcessIndex to) {
  if (!is_known_to(call, to)) {
    wire::KeptCall copy = call.message;
    std::vector<std::uint32_t> made;
    wire::each_id(copy, [&](ObjectId& id, std::size_t position, bool is_made) {
      if (is_made)
        if (const auto needed = calls_.find(id.high); needed != calls_.end())
          if (const Made* there = newest(needed->second, id.low)) {
            id = there->object;
            is_made = false;
          }
      if (is_made)
        made.push_back(static_cast<std::uint32_t>(position));
      else
        references_.hold(id, to, TROUPE_MUTANT("references.entrusts_uncounted") ? 0 : 1);
    });
    std::sort(made.begin(), made.end());
    copy.made = std::move(made);
    out_.send(to, copy, call.payload);
    call.known_to.push_back(to);
  }
  for (const Made& made : call.made)
    if (references_.entrust(made.object, to))
      out_.send(
          to, wire::MadeBy{made.object, call.message.number, made.index, call.message.retries_left},
          {});
}

// --- letting go

/// Drops everything of a call except the reason why it cannot run any more.
void LineageCache::end(Call& call, const std::string& why) {
  if (!call.ended.empty()) return;
  call.ended = why;
  std::vector<std::uint64_t> unused;
  let_go_of_inputs(call, unused);
  for (const std::uint64_t number : unused) drop_unused(number);
}

void LineageCache::let_go_of_inputs(Call& call, std::vector<std::uint64_t>& unused) {
  bytes_ -= call.bytes;
  ages_.erase(call.age);
  call.payload = {};
  const wire::KeptCall message = std::exchange(call.message, {});
  wire::each_id(message, [&](ObjectId id, std::size_t, bool is_made) {
    if (!is_made) {
      references_.hold(id, kSelf, -1);
    } else if (const auto needed = calls_.find(id.high); needed != calls_.end()) {
      if (--needed->second.uses == 0) unused.push_back(id.high);
    }
  });
}

/// Drops the call if nothing keeps it, then the calls that only it has kept. Without recursion,
/// since chains of calls can be long.
void LineageCache::drop_unused(std::uint64_t number) {
  std::vector<std::uint64_t> unused{number};
  while (!unused.empty()) {
    const auto found = calls_.find(unused.back());
    unused.pop_back();
    if (found == calls_.end()) continue;
    const Call& call = found->second;
    if (!call.known_to.empty() || !call.made.empty() || call.uses != 0) continue;
    Call gone = std::move(found->second);
    calls_.erase(found);
    if (gone.ended.empty()) let_go_of_inputs(gone, unused);
  }
}

}  // namespace troupe::agent
