#include "troupe/runtime/client/recovery.hpp"

#include <algorithm>
#include <utility>

namespace troupe::client {
namespace {

bool may_be_lost(const Entry& entry) {
  return entry.kind != wire::Value::Kind::inline_bytes && entry.kind != wire::Value::Kind::error;
}

const char* why_not(Entry::Made made) {
  switch (made) {
    case Entry::Made::put:
      return "it was put, and nobody but the program can make it again: put it again, or make it "
             "in a task";
    case Entry::Made::actor:
      return "it is the result of an actor's method, which does not run twice by itself: call it "
             "again";
    case Entry::Made::task:
      return "the task that computed it may not run again: it has max_retries 0, or no lineage is "
             "kept (TROUPE_LINEAGE)";
    case Entry::Made::elsewhere: break;
  }
  return "it was put, or whoever had it computed has ended";
}

constexpr const char* kForGood = "the bytes of an object are gone, and cannot be computed again: ";

Error lost_for_good(const Error& cause, const std::string& why) {
  if (cause.message().starts_with(kForGood)) return cause;
  ErrorInfo info;
  info.code = Code::object_lost;
  info.outcome = cause.outcome();
  info.message = kForGood + why;
  info.origin = cause.where();
  info.cause = cause.shared_info();
  return Error(std::move(info));
}

/// Returns the error of an entry that waits for `source`, which is lost, and that its owner refuses
/// to have computed again. A refusal may not know why the source is lost; the source's error does.
Error refused(const Entry* source, const Error& refusal) {
  const bool knows = source == nullptr || source->kind != wire::Value::Kind::error ||
                     refusal.code() != Code::object_lost || refusal.message().starts_with(kForGood);
  return knows ? refusal : lost_for_good(Error(*source->error), refusal.message());
}

/// Returns why a call does not help a holder that misses the result of its second run.
Error lost_again(const Spec& spec, const Error& unknown) {
  const bool is_spent = spec.end == Spec::End::none && spec.retries_left == 0;
  const Spec::End end = is_spent ? Spec::End::spent : spec.end;
  return end == Spec::End::none ? unknown : Error(Code::object_lost, Lineage::sentence(end));
}

}  // namespace

Error Recovery::cannot_run_again(const Task& task, const Error& why) {
  return lost_for_good(
      why, "the task that computed it, " + place_of(task.call, task.request.get()) +
               ", ended in an error when it ran again: " + std::string(name_of(why.code())) + ": " +
               why.message());
}

void Recovery::remember(std::unique_ptr<Task> task) {
  const auto any = [&task](const auto& of) {
    return std::any_of(task->results.begin(), task->results.end(),
                       [&](const detail::ObjectHandle& result) { return of(entry_of(result)); });
  };
  if (!any(may_be_lost)) {
    // A call that has run again stays: another holder may miss a large result of the first run,
    // even if the results are small now.
    if (task->spec == nullptr) return;
    if (any([](const Entry& entry) { return entry.kind == wire::Value::Kind::error; }))
      return lineage_.failed(*task->spec, Spec::End::failed);
  }
  for (const auto& result : task->results) entry_of(result).made = Entry::Made::task;
  if (task->spec == nullptr && task->retries_left == 0) return;
  const std::size_t results = task->results.size();
  const auto dropped = lineage_.keep(std::move(task));
  for (std::size_t i = 0; i < results; ++i)
    if (Entry& entry = entry_of(dropped[i]); entry.promoted) outlive(entry);
  tell_calls();
}

/// Tells the agent of a result whose last handle is gone here, if others may hold it and this
/// process can compute it again.
void Recovery::hand_over(Entry& entry) {
  if (entry.promoted && lineage_.send_away(entry)) tell(wire::Lineage{entry.id});
  lineage_.forget(entry);
}

namespace {

/// Returns the last object of a chain of recompute targets: a target's bytes may be lost, too.
Entry& newest_recompute_target(Entry& entry) {
  Entry* at = &entry;
  while (Entry* target = at->recompute_target.load(std::memory_order_relaxed)) at = target;
  return *at;
}

void take_place(Entry& entry, const detail::ObjectHandle& target) {
  target.entry()->handles.fetch_add(1, std::memory_order_relaxed);  // ~Entry() drops it
  entry.recompute_target.store(&entry_of(target), std::memory_order_release);
}

}  // namespace

/// Makes the value of `entry` that of its recompute target, here and for the agent.
void Recovery::forward_to_target(Entry& entry, const detail::ObjectHandle& target) {
  // It has a recompute target already.
  if (entry.recompute_target.load(std::memory_order_relaxed) != nullptr) return;
  if (!entry.ready.load(std::memory_order_relaxed)) {
    if (entry.source) values_.unfollow(entry);
    entry.source = target;
    if (entry.promoted) {
      entry.fulfil = false;
      tell_recompute_target(entry.id, target);
    }
    values_.follow(entry);
    return;
  }
  take_place(entry, target);
  if (entry.promoted && entry.id.high == values_.objects().high())
    tell_recompute_target(entry.id, target);
}

void Recovery::tell_recompute_target(ObjectId object, const detail::ObjectHandle& target) {
  wire::Rebuilt message;
  message.object = object;
  message.value = values_.outgoing_forward(target, for_agent());
  tell(message);
}

// --- computing again

Result<void> Recovery::run_again(Spec& spec, const Entry* wanted) {
  out_.collect_released();
  std::vector<detail::ObjectHandle> held;
  auto runs = lineage_.begin_all(spec, held);
  if (!runs) return runs.error();
  const Values::WakeLater later(values_);  // some of the tasks have no results yet
  for (Lineage::Run& run : *runs) {
    const Entry* const of_run = run.spec == &spec ? wanted : nullptr;
    resubmit(std::move(run), of_run, held);
  }
  return {};
}

/// Submits a task once more, for new objects. Old results whose bytes are gone, and `wanted`, are
/// forwarded to the new ones.
void Recovery::resubmit(Lineage::Run run, const Entry* wanted,
                        std::vector<detail::ObjectHandle>& held) {
  Spec& spec = *run.spec;
  std::unique_ptr<Task> task = std::move(run.task);
  for (const Spec::Input& input : spec.inputs) {
    Entry& entry = input.spec != nullptr ? *input.spec->results[input.index] : *input.entry;
    detail::ObjectHandle handle;
    // Its last handle is going right now.
    while (!(handle = lineage_.revive(entry))) out_.collect_released();
    if (input.is_ref)
      task->call.refs[input.position] = std::move(handle);
    else
      task->call.arguments[input.position].object = std::move(handle);
  }
  const std::vector<ObjectId> away = spec.away;
  for (std::uint32_t i = 0; i < spec.results.size(); ++i) {
    const detail::ObjectHandle target = values_.objects().create();
    task->results.push_back(target);
    held.push_back(target);  // a later run of the same order may need it
    entry_of(target).made = Entry::Made::task;
    detail::ObjectHandle old;
    if (spec.results[i] != nullptr) old = ObjectTable::keep(*spec.results[i]);
    lineage_.is_result(spec, i, entry_of(target));
    // A pending result still waits for its source, so it has not lost that.
    const bool missed =
        old && entry_of(old).ready.load(std::memory_order_relaxed) && !is_here(entry_of(old));
    if (missed || (old && &entry_of(old) == wanted)) forward_to_target(entry_of(old), target);
    for (const ObjectId id : away) {
      Lineage::Away* one = lineage_.away(id);
      if (one == nullptr || one->index != i || one->recompute_target) continue;
      one->recompute_target = target.id();
      tell_recompute_target(id, target);
    }
  }
  out_.recovered();
  if (spec.number != 0)  // tell the agent that a retry is spent, in case this process ends
    tell(wire::MadeBy{{}, spec.number, 0, spec.retries_left});
  out_.run_again(std::move(task));
}

/// Gives the entry a recompute target if this process knows how it was computed. Returns whether
/// it did. On failure `error` says why it cannot be computed again; it is unchanged when nothing
/// is known.
bool Recovery::find_recompute_target(Entry& entry, Error& error) {
  if (entry.recompute_target.load(std::memory_order_relaxed) != nullptr) return false;
  Spec* spec = entry.made_by;
  std::uint32_t index = entry.result_index;
  if (spec == nullptr) {
    const Lineage::Away* away = lineage_.away(entry.id);
    if (away == nullptr) return false;
    spec = away->spec;
    index = away->index;
  }
  const auto newest = [&] {
    Entry* result = spec->results[index];
    return result != nullptr && result != &entry ? ObjectTable::keep(*result)
                                                 : detail::ObjectHandle{};
  };
  detail::ObjectHandle target = newest();
  // It leads there already, and that failed.
  if (target && next_of(entry) == &entry_of(target)) return false;
  if (!target) {
    const auto possible = run_again(*spec, &entry);
    if (!possible) {
      error = possible.error();
      return false;
    }
    target = newest();
    const Entry* next = next_of(entry);
    // run_again() may have forwarded it already.
    if (!target || next == &entry_of(target)) return next != nullptr;
  }
  out_.recovered();
  forward_to_target(entry, target);
  return true;
}

bool Recovery::recover(Entry& entry, Error& error) {
  if (blocker_of(entry) != nullptr) return true;
  std::vector<Entry*> chain;
  for (Entry* at = &entry; at != nullptr; at = next_of(*at)) chain.push_back(at);
  if (chain.back()->kind == wire::Value::Kind::error) return false;
  const Error cause = error;
  Error refusal = error;
  // First try what this process can compute itself, from the end of the chain on.
  for (std::size_t i = chain.size(); i-- > 0;) {
    if (!find_recompute_target(*chain[i], refusal)) continue;
    // Earlier objects of the chain that copied the lost location lead there, too.
    for (std::size_t j = 0; j < i; ++j)
      if (chain[j]->kind == wire::Value::Kind::shared &&
          chain[j]->recompute_target.load(std::memory_order_relaxed) == nullptr)
        forward_to_target(*chain[j], ObjectTable::keep(*chain[j + 1]));
    return true;
  }
  // Then ask the owner of an object that another process made.
  for (std::size_t i = chain.size(); i-- > 0;) {
    Entry& asked = *chain[i];
    const bool may_have_copy =  // a copy that the agent knows
        asked.made == Entry::Made::elsewhere || asked.made == Entry::Made::put;
    const bool known = !may_have_copy || asked.made_by != nullptr;
    if (!asked.promoted || asked.refused || known) continue;
    asked.rebuilding = true;
    const Entry* next = next_of(asked);  // an unpromoted one means the entry's own bytes
    tell(wire::Rebuild{asked.id, next != nullptr && next->promoted ? next->id : asked.id});
    return true;
  }
  std::string why = refusal.shared_info() != cause.shared_info() ? refusal.message() : "";
  for (std::size_t i = chain.size(); i-- > 0 && why.empty();)
    if (chain[i]->made != Entry::Made::elsewhere) why = why_not(chain[i]->made);
  // The owner's answer about the outermost object that belongs to another process.
  for (std::size_t i = 0; i + 1 < chain.size() && why.empty(); ++i)
    if (chain[i]->refused && *chain[i]->fetch_error) why = (*chain[i]->fetch_error)->message;
  if (why.starts_with(kForGood)) why.erase(0, std::string_view(kForGood).size());
  if (why.empty()) why = why_not(Entry::Made::elsewhere);
  error = lost_for_good(cause, why);
  return false;
}

bool Recovery::recover_pending(Entry& entry, Error& error) {
  const Error cause = error;
  Error refusal = error;
  if (find_recompute_target(entry, refusal)) return true;
  const bool known = entry.made != Entry::Made::elsewhere || entry.made_by != nullptr;
  if (entry.promoted && !entry.refused && !known && entry.id.high != values_.objects().high()) {
    entry.rebuilding = true;
    tell(wire::Rebuild{entry.id, entry.source.id()});
    return true;
  }
  if (refusal.shared_info() != cause.shared_info())
    error = lost_for_good(cause, refusal.message());
  else if (known)
    error = lost_for_good(cause, why_not(entry.made));
  return false;
}

// --- with others

/// Handles Rebuild: the agent asks for another process that holds an object which was made here,
/// or made by a call that this process has taken over. An entry that another process made says
/// nothing about the object's present value: its maker may have given it another one since.
void Recovery::on_rebuild(const wire::Rebuild& message) {
  lineage_.all_taken_over();
  Error error(Code::object_lost, "whoever had it computed no longer knows how");
  const detail::ObjectHandle handle = values_.find_held(message.object);
  if (handle && entry_of(handle).made != Entry::Made::elsewhere) {
    Entry& entry = entry_of(handle);
    const Entry* next = next_of(entry);
    if (next != nullptr && next->promoted && next->id != message.lost)
      return;  // Rebuilt is on its way
    error = Error(Code::object_lost, why_not(entry.made));
    if (find_recompute_target(entry, error)) return;
  } else if (Lineage::Away* away = lineage_.away(message.object)) {
    if (away->recompute_target && away->recompute_target != message.lost) return;
    Spec& spec = *away->spec;
    Entry* newest = spec.results[away->index];
    const auto target = newest != nullptr ? ObjectTable::keep(*newest) : detail::ObjectHandle{};
    if (!away->recompute_target && target) {
      away->recompute_target = target.id();
      return tell_recompute_target(message.object, target);
    }
    if (away->recompute_target) {
      error = lost_again(spec, error);
    } else {
      const auto possible = run_again(spec, nullptr);
      if (possible) return;
      error = possible.error();
    }
  }
  wire::Rebuilt answer;
  answer.object = message.object;
  answer.value.kind = wire::Value::Kind::error;
  answer.value.error = error.shared_info();
  tell(answer);
}

void Recovery::rebuilt(Entry& entry, const wire::Value& value, BlobView payload) {
  entry.rebuilding = false;
  out_.recovered();
  if (value.kind == wire::Value::Kind::error) {
    entry.refused = true;
    entry.fetch_error = value.error;
  } else {
    detail::ObjectHandle target;
    if (value.kind == wire::Value::Kind::forwarded) {
      target = values_.adopt_one(value.forward);
    } else {
      target = values_.objects().create();
      values_.settle(entry_of(target), value, payload);
      entry_of(target).owns_location = false;  // the agent has the record, under the entry's id
    }
    Entry& newest = newest_recompute_target(entry);
    // A chain that leads back to the entry would have no end.
    bool circle = false;
    for (const Entry* at = &entry_of(target); at != nullptr; at = next_of(*at))
      circle |= at == &entry || at == &newest;
    const bool on_its_way = !newest.ready.load(std::memory_order_relaxed);
    if (circle)
      entry.refused = true;
    else if (value.kind == wire::Value::Kind::forwarded && !on_its_way)
      forward_to_target(newest, target);
    else if (!on_its_way)  // the agent knows it by the entry's id
      take_place(newest, target);
  }
  if (entry.wants_bytes && !entry.refused) values_.need(entry, true);
  values_.wake(entry);
}

bool Recovery::recover_argument(const Task& task, const wire::Reply& reply, Error& error) {
  const std::size_t index = reply.lost_argument - std::size_t{1};
  if (index >= task.call.arguments.size() || !task.call.arguments[index].object) return false;
  Entry& entry = entry_of(task.call.arguments[index].object);
  bool leads_there =
      !reply.lost && entry.recompute_target.load(std::memory_order_relaxed) == nullptr;
  for (const Entry* at = &entry; at != nullptr; at = next_of(*at))
    leads_there |= at->id == reply.lost;
  return !leads_there || recover(entry, error);
}

/// The agent answers all Awaits that precede a Rebuild first, and no Await is sent while a Rebuild
/// is open. So the counter `awaits` tells the two apart.
void Recovery::on_ready(const wire::Ready& message, BlobView payload) {
  const detail::ObjectHandle handle = values_.find_held(message.object);
  if (!handle) return values_.give_back(message.value);
  Entry& entry = entry_of(handle);
  const bool to_rebuild = entry.rebuilding && entry.awaits == 0;
  if (entry.awaits > 0) --entry.awaits;
  if (!entry.ready.load(std::memory_order_relaxed)) {
    // An answer to an Await has the lost value.
    if (entry.rebuilding && !to_rebuild) return values_.give_back(message.value);
    if (to_rebuild && message.value.kind == wire::Value::Kind::error) {
      wire::Value refusal = message.value;
      refusal.error = refused(next_of(entry), Error(*refusal.error)).shared_info();
      return values_.settle(entry, refusal, {});
    }
    values_.settle(entry, message.value, payload, message.node);
  } else if (to_rebuild) {
    rebuilt(entry, message.value, payload);
  } else {
    values_.arrive(entry, message.value, payload);
  }
}

}  // namespace troupe::client
