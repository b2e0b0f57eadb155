#include "troupe/runtime/client/store_use.hpp"

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/wait.hpp"
#include "troupe/runtime/wire/values.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

namespace troupe::client {
namespace {

/// Memory that the agent gave may be taken again before it is used. Then this process asks again,
/// for so long.
constexpr Duration kMemoryAtMost = std::chrono::seconds(60);

}  // namespace

void StoreUse::attach(const wire::StoreTables& tables, std::vector<Fd> descriptors) {
  if (descriptors.size() != 3)
    throw Unavailable(Code::unavailable, "the node's object store came without its descriptors");
  objectstore::Membership membership;
  membership.layout = {tables.processes, tables.slots, tables.extents};
  membership.process = tables.process;
  membership.incarnation = tables.incarnation;
  membership.extent_bytes = tables.extent_bytes;
  membership.publications = std::move(descriptors[0]);
  membership.pins = std::move(descriptors[1]);
  membership.retirements = std::move(descriptors[2]);
  auto client = objectstore::Client::attach(
      std::move(membership),
      // This may run after the engine's end.
      [unpins = unpins_](std::uint32_t process, std::uint32_t slot) {
        {
          const std::lock_guard lock(unpins->mutex);
          unpins->list.push_back({process, slot});
        }
        unpins->any.store(true, std::memory_order_seq_cst);  // see EngineLock::try_lock()
        // end() clears `asks`, then waits until `telling` is 0. Sequentially consistent: either
        // this thread sees no engine, or end() sees this thread.
        unpins->telling.fetch_add(1, std::memory_order_seq_cst);
        if (Asks* asks = unpins->asks.load(std::memory_order_seq_cst)) asks->views_ended();
        unpins->telling.fetch_sub(1, std::memory_order_seq_cst);
      });
  client_ = std::move(client).value();
}

void StoreUse::begin(Asks& asks) noexcept {
  asks_ = &asks;
  unpins_->asks.store(&asks, std::memory_order_seq_cst);
}

void StoreUse::end() noexcept {
  unpins_->asks.store(nullptr, std::memory_order_seq_cst);
  while (unpins_->telling.load(std::memory_order_seq_cst) != 0) yield();
}

// --- values

Result<objectstore::Allocation> StoreUse::allocate(std::size_t size) {
  if (mark_.in_fork()) return ProcessMark::error_in_fork();
  bool given = false;
  for (Time until = Time::max();;) {
    auto created = client_->create(size);
    if (given) unused_.fetch_sub(1, std::memory_order_relaxed);
    if (!created) return created.error();
    if (auto* allocation = std::get_if<objectstore::Allocation>(&*created))
      return std::move(*allocation);
    const Time now = steady_now();
    if (now >= until) break;
    until = std::min(until, now + kMemoryAtMost);
    auto asked = asks_->need_extent(std::get<objectstore::ExtentRequest>(*created).bytes);
    if (!asked) return asked.error();
    given = *asked;
  }
  return Error(Code::out_of_memory,
               "no room for " + std::to_string(size) +
                   " bytes within 60 s: what came free was taken by others of this node each time; "
                   "drop references, put less at once, or start the node with a larger arena");
}

wire::Location StoreUse::seal(objectstore::Allocation allocation, std::size_t size) {
  return wire::wire_location(client_->seal(std::move(allocation), 0, size));
}

Result<objectstore::Pinned> StoreUse::open(const wire::Location& at) {
  if (mark_.in_fork()) return ProcessMark::error_in_fork();
  objectstore::Location place = wire::store_location(at);
  Time until = Time::max();
  for (int mapped = 0; mapped < 8;) {
    auto opened = client_->open(place);
    if (opened.status == objectstore::OpenStatus::pinned) return std::move(opened.pinned);
    if (opened.status == objectstore::OpenStatus::invalid)
      return Error(Code::object_lost, "the object's location is not one that its writer published");
    if (opened.status != objectstore::OpenStatus::moved) {
      const bool is_segment = opened.status == objectstore::OpenStatus::needs_segment;
      Error error(Code::object_lost, "the object's memory is gone");
      ++mapped;
      if (asks_->fetch_reader(is_segment, is_segment ? place.process : place.extent.value, error))
        continue;
      // Memory is freed with its last object, but the object may be on disk.
      if (error.code() != Code::object_lost) return error;
    }
    const Time now = steady_now();
    if (now >= until) break;
    until = std::min(until, now + kMemoryAtMost);
    const auto now_at = asks_->where_is(at);
    if (!now_at) return now_at.error();
    place = *now_at;
  }
  return Error(Code::unavailable,
               "the object could not be looked at: its memory was another each time, for 60 s");
}

void StoreUse::drop(const wire::Location& at) {
  (void)client_->drop(wire::store_location(at));
}

// --- the agent's messages

Result<bool> StoreUse::add_extent(const wire::GiveExtent& message, std::vector<Fd> descriptors) {
  if (message.error) return Error(*message.error);
  if (descriptors.size() != 1) return false;
  const auto added = client_->add_extent(
      {objectstore::ExtentId{message.extent}, message.bytes, std::move(descriptors[0])});
  if (!added) return added.error();
  return true;
}

Result<void> StoreUse::add_reader(const wire::GiveReader& message, std::vector<Fd> descriptors) {
  if (message.error) return Error(*message.error);
  if (descriptors.size() != 1)
    return Error(Code::unavailable, "shared memory was announced without its descriptor");
  if (message.is_segment)
    return client_->add_segment(
        {static_cast<std::uint32_t>(message.id), message.incarnation, std::move(descriptors[0])});
  return client_->add_reader_extent(
      {objectstore::ExtentId{message.id}, message.bytes, std::move(descriptors[0])});
}

void StoreUse::recycle(const wire::Recycle& message) {
  (void)client_->recycle(message.slot, message.generation);
}

void StoreUse::forget(const wire::Forget& message) noexcept {
  if (message.is_segment)
    client_->forget_segment(static_cast<std::uint32_t>(message.id));
  else
    client_->forget_extent(objectstore::ExtentId{message.id});
}

std::vector<objectstore::ExtentId> StoreUse::trim() {
  if (unused_.load(std::memory_order_relaxed) > 0) return {};
  return client_->trim(Bytes{0});
}

// --- views that ended

std::vector<wire::Unpinned> StoreUse::take_noted() {
  unpins_->any.store(false, std::memory_order_seq_cst);
  std::vector<wire::Unpinned> unpins;
  const std::lock_guard lock(unpins_->mutex);
  unpins.swap(unpins_->list);
  return unpins;
}

}  // namespace troupe::client
