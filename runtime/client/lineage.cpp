#include "troupe/runtime/client/lineage.hpp"

#include "troupe/runtime/base/size_text.hpp"

#include <algorithm>
#include <utility>

namespace troupe::client {
namespace {

/// Returns the bytes that a parked entry keeps. The location of a remote value holds only its
/// size.
std::size_t cost_of(const Entry& entry) {
  std::size_t bytes = sizeof(Entry);
  if (entry.value) bytes += entry.value->bytes.size();
  if (entry.kind == wire::Value::Kind::shared || entry.kind == wire::Value::Kind::remote)
    bytes += entry.location->length;
  return bytes;
}

std::size_t bytes_of(const Spec& spec, const Task& task) {
  return sizeof(Spec) + sizeof(Task) + task.call.bytes.capacity() +
         task.call.arguments.capacity() * sizeof(detail::Argument) +
         task.call.refs.capacity() * sizeof(detail::ObjectHandle) +
         spec.inputs.capacity() * sizeof(Spec::Input) + spec.results.capacity() * sizeof(Entry*);
}

Spec::Input input_of(const detail::ObjectHandle& handle, const Spec* self) {
  Spec::Input input;
  Entry& entry = entry_of(handle);
  if (entry.made_by != nullptr && entry.made_by != self) {
    input.spec = entry.made_by;
    input.index = entry.result_index;
    ++input.spec->uses;
  } else {
    input.entry = &entry;
    ++entry.lineage_uses;
  }
  return input;
}

}  // namespace

std::string Lineage::sentence(Spec::End end) {
  switch (end) {
    case Spec::End::evicted:
      return "the call that computed it is no longer known, since more lineage was to be kept than "
             "TROUPE_LINEAGE allows (64M by default): raise it";
    case Spec::End::failed: return "the task that computed it failed when it ran again";
    case Spec::End::spent:
      return "the task that computed it may not run again: its max_retries are used up";
    case Spec::End::none: break;
  }
  return "nothing is known of how it was computed";
}

void Lineage::clear() {
  away_.clear();
  numbered_.clear();
  taken_over_.clear();
  for (Spec* spec = all_; spec != nullptr; spec = spec->next) {
    spec->uses = 1;  // only this loop deletes now
    for (const Spec::Input& input : std::exchange(spec->inputs, {}))
      if (input.entry != nullptr && --input.entry->lineage_uses == 0 && input.entry->parked)
        out_.unparked(*input.entry);
  }
  while (all_ != nullptr) delete std::exchange(all_, all_->next);
  oldest_ = newest_ = nullptr;
  bytes_ = kept_ = 0;
}

// --- keeping

std::vector<detail::ObjectHandle> Lineage::keep(std::unique_ptr<Task> task) {
  std::vector<detail::ObjectHandle> dropped(std::make_move_iterator(task->results.begin()),
                                            std::make_move_iterator(task->results.end()));
  task->results.clear();
  const bool first = task->spec == nullptr;
  if (first && limit_ == 0) return dropped;
  Spec& spec = first ? add_spec(dropped.size()) : *task->spec;
  if (first)
    for (std::uint32_t i = 0; i < dropped.size(); ++i) is_result(spec, i, entry_of(dropped[i]));
  store(spec, std::move(task), dropped, first);
  drop_use(spec);
  return dropped;
}

/// Makes a Spec with one use, which is the caller's to drop.
Spec& Lineage::add_spec(std::size_t results) {
  Spec* spec = new Spec;
  spec->next = all_;
  if (all_ != nullptr) all_->previous = spec;
  all_ = spec;
  spec->uses = 1;
  spec->results.resize(results);
  return *spec;
}

void Lineage::store(Spec& spec, std::unique_ptr<Task> task,
                    std::vector<detail::ObjectHandle>& dropped, bool first) {
  const auto weaken = [&](detail::ObjectHandle& handle, bool is_ref, std::size_t position) {
    if (!handle) return;
    if (first) {
      Spec::Input input = input_of(handle, &spec);
      input.is_ref = is_ref;
      input.position = static_cast<std::uint32_t>(position);
      spec.inputs.push_back(input);
    }
    dropped.push_back(std::move(handle));
  };
  detail::Call& call = task->call;
  for (std::size_t i = 0; i < call.arguments.size(); ++i)
    weaken(call.arguments[i].object, false, i);
  for (std::size_t i = 0; i < call.refs.size(); ++i) weaken(call.refs[i], true, i);
  task->spec = nullptr;
  spec.running = false;
  spec.retries_left = task->retries_left;
  spec.task = std::move(task);
  add(spec);
  evict();
}

void Lineage::is_result(Spec& spec, std::uint32_t index, Entry& entry) {
  entry.made_by = &spec;
  entry.result_index = index;
  spec.results[index] = &entry;
  ++spec.uses;
}

void Lineage::add(Spec& spec) {
  spec.bytes = bytes_of(spec, *spec.task);
  bytes_ += spec.bytes;
  ++kept_;
  spec.older = newest_;
  (newest_ != nullptr ? newest_->newer : oldest_) = &spec;
  newest_ = &spec;
}

void Lineage::remove(Spec& spec) {
  bytes_ -= spec.bytes;
  --kept_;
  (spec.older != nullptr ? spec.older->newer : oldest_) = spec.newer;
  (spec.newer != nullptr ? spec.newer->older : newest_) = spec.older;
  spec.older = spec.newer = nullptr;
}

void Lineage::evict() {
  while (bytes_ > limit_ && oldest_ != nullptr) end(*oldest_, Spec::End::evicted);
}

void Lineage::end(Spec& spec, Spec::End why) {
  ++spec.uses;
  if (spec.task) remove(spec);
  spec.task.reset();
  spec.end = why;
  drop_inputs(spec);
  drop_use(spec);
}

void Lineage::failed(Spec& spec, Spec::End why) {
  const bool was_running = std::exchange(spec.running, false);
  end(spec, why);
  if (was_running) drop_use(spec);
}

void Lineage::drop_inputs(Spec& spec) {
  for (const Spec::Input& input : std::exchange(spec.inputs, {})) {
    if (input.spec != nullptr) {
      drop_use(*input.spec);
    } else if (--input.entry->lineage_uses == 0 && input.entry->parked) {
      input.entry->parked = false;
      bytes_ -= input.entry->parked_bytes;
      out_.unparked(*input.entry);
    }
  }
}

void Lineage::drop_use(Spec& spec) {
  if (--spec.uses != 0) return;
  unused_.push_back(&spec);
  if (std::exchange(deleting_, true)) return;
  while (!unused_.empty()) {
    const std::unique_ptr<Spec> gone(unused_.back());
    unused_.pop_back();
    if (gone->task) remove(*gone);
    (gone->previous != nullptr ? gone->previous->next : all_) = gone->next;
    if (gone->next != nullptr) gone->next->previous = gone->previous;
    if (gone->number != 0 && numbered_.erase(gone->number) != 0) out_.forgotten(gone->number);
    drop_inputs(*gone);
  }
  deleting_ = false;
}

// --- entries whose last handle is gone

bool Lineage::park(Entry& entry) {
  if (entry.lineage_uses == 0) return false;
  entry.parked = true;
  entry.parked_bytes = cost_of(entry);
  bytes_ += entry.parked_bytes;
  evict();
  return true;
}

detail::ObjectHandle Lineage::revive(Entry& entry) {
  if (!entry.parked) return ObjectTable::keep(entry);
  entry.parked = false;
  bytes_ -= entry.parked_bytes;
  entry.handles.store(1, std::memory_order_relaxed);
  return detail::ObjectHandle::adopt(&entry);
}

void Lineage::forget(Entry& entry) {
  Spec* spec = std::exchange(entry.made_by, nullptr);
  if (spec == nullptr) return;
  if (spec->results[entry.result_index] == &entry) spec->results[entry.result_index] = nullptr;
  drop_use(*spec);
}

bool Lineage::send_away(const Entry& entry) {
  Spec* spec = entry.made_by;
  if (spec == nullptr || spec->end != Spec::End::none) return false;
  if (entry.recompute_target.load(std::memory_order_relaxed) != nullptr)
    return false;  // the holders were told of the target
  return send_away(*spec, entry.result_index, entry.id);
}

bool Lineage::send_away(Spec& spec, std::uint32_t index, ObjectId object) {
  if (!away_.try_emplace(object, Away{&spec, index, {}}).second) return false;
  spec.away.push_back(object);
  ++spec.uses;
  return true;
}

void Lineage::forget_away(ObjectId object) {
  const auto found = away_.find(object);
  if (found == away_.end()) return;
  Spec* spec = found->second.spec;
  away_.erase(found);
  std::erase(spec->away, object);
  drop_use(*spec);
}

Lineage::Away* Lineage::away(ObjectId object) {
  const auto found = away_.find(object);
  return found == away_.end() ? nullptr : &found->second;
}

// --- running again

/// Appends `wanted`, and the calls behind it that `enter` admits, to `order`: each after the
/// calls of those inputs that it `needs`. Depth first, with a stack of its own (LINEAGE-4).
template <class Enter, class Needs>
void Lineage::walk(Spec& wanted, std::vector<Spec*>& order, const Enter& enter,
                   const Needs& needs) {
  struct Frame {
    Spec* spec;
    std::size_t next = 0;
  };
  std::vector<Frame> stack;
  std::vector<Spec*> seen;
  const auto visit = [&](Spec& spec) {
    if (spec.visited || !enter(spec)) return;
    spec.visited = true;
    seen.push_back(&spec);
    stack.push_back({&spec});
  };
  visit(wanted);
  while (!stack.empty()) {
    Frame& top = stack.back();
    if (top.next == top.spec->inputs.size()) {
      order.push_back(top.spec);
      stack.pop_back();
      continue;
    }
    const Spec::Input& input = top.spec->inputs[top.next++];
    if (input.spec != nullptr && needs(input)) visit(*input.spec);
  }
  for (Spec* spec : seen) spec->visited = false;
}

Result<void> Lineage::gather(Spec& wanted, std::vector<Spec*>& order,
                             std::vector<detail::ObjectHandle>& held) {
  Result<void> result;
  const auto enter = [&](Spec& spec) {
    if (spec.running || !result) return false;
    Spec::End end = spec.end;
    if (spec.task && spec.task->retries_left == 0) end = Spec::End::spent;
    if (end == Spec::End::none) return true;
    const std::string why = &spec == &wanted ? "" : "an argument of its task is gone too: ";
    result = Error(Code::object_lost, why + sentence(end));
    return false;
  };
  const auto is_gone = [&](const Spec::Input& input) {
    Entry* there = input.spec->results[input.index];
    if (there != nullptr) held.push_back(ObjectTable::keep(*there));
    return there == nullptr || !held.back();
  };
  walk(wanted, order, enter, is_gone);
  if (!result) order.clear();
  return result;
}

Result<std::vector<Lineage::Run>> Lineage::begin_all(Spec& wanted,
                                                     std::vector<detail::ObjectHandle>& held) {
  std::vector<Spec*> order;
  if (auto possible = gather(wanted, order, held); !possible) return possible.error();
  std::vector<Run> runs;
  runs.reserve(order.size());
  for (Spec* spec : order) runs.push_back({spec, begin(*spec)});
  return runs;
}

std::unique_ptr<Task> Lineage::begin(Spec& spec) {
  remove(spec);
  ++spec.uses;
  spec.running = true;
  std::unique_ptr<Task> task = std::move(spec.task);
  if (task->retries_left > 0) --task->retries_left;
  spec.retries_left = task->retries_left;
  ++task->attempt;
  task->spec = &spec;
  task->waiting = 0;
  task->fate = Task::Fate::open;
  task->had_second_attempt = false;
  task->sequence = 0;
  task->previous = task->next = nullptr;
  return task;
}

// --- calls that outlive their process

std::vector<Spec*> Lineage::untold(Spec& wanted) {
  std::vector<Spec*> order;
  walk(
      wanted, order, [](const Spec& spec) { return spec.number == 0 && spec.task != nullptr; },
      [](const Spec::Input&) { return true; });
  return order;
}

void Lineage::set_number(Spec& spec, std::uint64_t number) {
  spec.number = number;
  numbered_[number] = &spec;
}

Spec* Lineage::numbered(std::uint64_t number) {
  const auto found = numbered_.find(number);
  return found == numbered_.end() ? nullptr : found->second;
}

std::vector<detail::ObjectHandle> Lineage::take_over(std::unique_ptr<Task> task,
                                                     std::uint64_t number, std::size_t results,
                                                     std::vector<Spec::Input> made) {
  Spec& spec = add_spec(results);
  taken_over_.push_back(&spec);  // holds the use that add_spec() took
  set_number(spec, number);
  for (const Spec::Input& input : made) ++input.spec->uses;
  spec.inputs = std::move(made);
  std::vector<detail::ObjectHandle> dropped;
  store(spec, std::move(task), dropped, true);
  return dropped;
}

void Lineage::entrust(std::uint64_t number, std::uint32_t index, ObjectId object) {
  Spec* spec = numbered(number);
  if (spec != nullptr && index < spec->results.size()) send_away(*spec, index, object);
}

void Lineage::all_taken_over() {
  for (Spec* spec : std::exchange(taken_over_, {})) drop_use(*spec);
}

}  // namespace troupe::client
