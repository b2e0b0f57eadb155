/// Calls that outlive the worker that made them. A worker tells its agent of a call when other
/// processes can name a result; another process may take the call over. All under the lock.
#include "troupe/runtime/client/recovery.hpp"
#include "troupe/runtime/engine/registry.hpp"
#include "troupe/runtime/ring/ring.hpp"

#include <algorithm>
#include <utility>

namespace troupe::client {
namespace {

constexpr int kCountBits = 32;  ///< low bits of a call's number; its process is above them
constexpr std::uint32_t kNowhere = ~std::uint32_t{0};

std::uint64_t bytes_of(const Entry& entry) {
  const Entry& origin = origin_of(entry);
  return origin.value ? origin.value->bytes.size() : origin.location->length;
}

/// Returns the place of each of a call's refs among the refs inside inline arguments. A ref
/// inside an argument that became an object has no place (kNowhere).
std::vector<std::uint32_t> places_of_refs(const detail::Call& call) {
  std::vector<std::uint32_t> places(call.refs.size(), kNowhere);
  std::uint32_t next = 0;
  for (const detail::Argument& argument : call.arguments)
    for (std::uint32_t i = 0; i < argument.ref_count; ++i)
      places.at(argument.first_ref + i) = next++;
  return places;
}

}  // namespace

/// Marks an object that other processes can name: tell_calls() will tell the agent how it was
/// computed, in case this process ends. Not in a driver, whose objects end with it.
void Recovery::outlive(Entry& entry) {
  if (outlives_ && entry.made_by != nullptr) outliving_.push_back(ObjectTable::keep(entry));
}

void Recovery::tell_calls() {
  if (outliving_.empty() || std::exchange(tells_calls_, true)) return;
  while (!outliving_.empty()) {
    const detail::ObjectHandle object = std::move(outliving_.back());
    outliving_.pop_back();
    Spec* spec = object ? entry_of(object).made_by : nullptr;
    if (spec == nullptr || spec->end != Spec::End::none) continue;
    for (Spec* call : lineage_.untold(*spec))
      if (!tell_call(*call)) break;
    if (spec->number != 0)
      tell(wire::MadeBy{object.id(), spec->number, entry_of(object).result_index,
                        spec->retries_left});
  }
  tells_calls_ = false;
}

/// Returns the id by which the agent will know an argument. `held` gets a handle that keeps the
/// object. Empty: the argument is gone.
ObjectId Recovery::name_input(const Spec::Input& input, std::vector<detail::ObjectHandle>& held) {
  if (input.spec != nullptr && input.spec->number != 0) return {input.spec->number, input.index};
  detail::ObjectHandle handle;
  if (input.entry != nullptr) {
    while (!(handle = lineage_.revive(*input.entry))) out_.collect_released();
  } else if (Entry* newest = input.spec->results[input.index]) {
    handle = ObjectTable::keep(*newest);
  }
  if (!handle) return {};
  values_.promote(entry_of(handle));
  held.push_back(std::move(handle));
  return held.back().id();
}

/// Tells the agent of a kept call. False: an argument cannot be named any more, or the call does
/// not fit a frame.
bool Recovery::tell_call(Spec& spec) {
  const Task& task = *spec.task;
  const detail::Call& call = task.call;
  wire::KeptCall message;
  message.number = self_.value << kCountBits | (told_ + 1);
  message.call.function = engine::Registry::instance().key_of(call.callable);
  message.call.attempt = task.attempt;
  message.call.results = static_cast<std::uint32_t>(spec.results.size());
  message.call.arguments.resize(call.arguments.size());
  message.demand = classes_.at(lease_key(task)).demand;
  message.retries_left = task.retries_left;
  if (task.request) message.retry_on = task.request->retry_on;
  if (message.retry_on.size() > wire::kMaxRetryOn) return false;

  std::vector<detail::ObjectHandle> held;  // until the agent has counted them
  std::vector<ObjectId> refs(call.refs.size());
  const std::vector<std::uint32_t> places = places_of_refs(call);
  for (const Spec::Input& input : spec.inputs) {
    if (input.is_ref && places[input.position] == kNowhere) continue;
    const std::size_t held_before = held.size();
    const ObjectId id = name_input(input, held);
    if (!id) return false;
    if (held.size() != held_before)
      message.input_bytes += bytes_of(entry_of(held.back()));
    else
      message.made.push_back(input.is_ref ? wire::kMaxArguments + places[input.position]
                                          : input.position);
    if (input.is_ref) {
      refs[input.position] = id;
      continue;
    }
    message.call.arguments[input.position].kind = wire::Value::Kind::forwarded;
    message.call.arguments[input.position].forward = id;
  }
  std::sort(message.made.begin(), message.made.end());

  Blob payload;
  for (std::size_t i = 0; i < call.arguments.size(); ++i) {
    wire::Value& value = message.call.arguments[i];
    if (value.kind == wire::Value::Kind::forwarded) continue;
    const detail::Argument& argument = call.arguments[i];
    value.kind = wire::Value::Kind::inline_bytes;
    append_inline(value, BlobView(call.bytes).subspan(argument.offset, argument.size), payload);
    const auto first = refs.begin() + argument.first_ref;
    value.refs.assign(first, first + argument.ref_count);
  }
  if (writer_.encode(wire::NodeMessage(message)).size() + payload.size() > ring::kMaxFrame)
    return false;
  ++told_;
  lineage_.set_number(spec, message.number);
  tell(message, payload);
  return true;
}

void Recovery::forgotten(std::uint64_t number) {
  tell(wire::ForgetCall{number});
}

void Recovery::take_over(const wire::KeptCall& message, BlobView payload) {
  std::vector<ObjectId> ids;
  std::vector<Spec::Input> made;
  const detail::Callable* callable = engine::Registry::instance().find(message.call.function);
  bool possible = callable != nullptr && lineage_.numbered(message.number) == nullptr;
  wire::each_id(message, [&](ObjectId id, std::size_t position, bool is_made) {
    if (!is_made) return ids.push_back(id);
    const bool is_ref = position >= wire::kMaxArguments;
    Spec* spec = lineage_.numbered(id.high);
    possible = possible && spec != nullptr && id.low < spec->results.size();
    made.push_back(
        {spec, static_cast<std::uint32_t>(id.low), nullptr, is_ref,
         static_cast<std::uint32_t>(is_ref ? position - wire::kMaxArguments : position)});
  });
  std::vector<detail::ObjectHandle> held = values_.adopt_refs(ids);
  if (!possible) return;

  auto task = std::make_unique<Task>();
  task->key = static_cast<std::uint32_t>(classes_.key_for(message.demand).value);
  task->retries_left = message.retries_left;
  task->attempt = message.call.attempt;
  if (!message.retry_on.empty()) {
    detail::Request request;
    request.retry_on = message.retry_on;
    task->request = std::make_unique<const detail::Request>(std::move(request));
  }
  detail::Call& call = task->call;
  call.callable = callable;
  call.arguments.resize(message.call.arguments.size());
  Blob bytes;
  std::uint32_t refs = 0;
  for (std::size_t i = 0; i < call.arguments.size(); ++i) {
    const wire::Value& value = message.call.arguments[i];
    if (value.kind != wire::Value::Kind::inline_bytes) continue;
    wire::Value place;
    append_inline(place, payload.subspan(value.payload_offset, value.payload_size), bytes);
    const auto count = static_cast<std::uint32_t>(value.refs.size());
    call.arguments[i] = {place.payload_offset, place.payload_size, refs, count, {}};
    refs += count;
  }
  call.bytes.assign(bytes.begin(), bytes.end());
  call.refs.resize(refs);
  auto next = held.begin();
  wire::each_id(message, [&](ObjectId, std::size_t position, bool is_made) {
    if (is_made) return;
    if (position >= wire::kMaxArguments)
      call.refs[position - wire::kMaxArguments] = std::move(*next++);
    else
      call.arguments[position].object = std::move(*next++);
  });
  const auto dropped =
      lineage_.take_over(std::move(task), message.number, message.call.results, std::move(made));
}

}  // namespace troupe::client
