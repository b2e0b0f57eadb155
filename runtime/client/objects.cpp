#include "troupe/runtime/client/objects.hpp"

#include "troupe/runtime/base/assert.hpp"

namespace troupe::client {

detail::ObjectHandle ObjectTable::create() {
  auto* entry = new Entry;
  entry->id = ObjectId{high_, next_low()};
  entry->session = session_;
  return detail::ObjectHandle::adopt(entry);
}

Entry* ObjectTable::find(ObjectId id) noexcept {
  const auto found = promoted_.find(id);
  return found == promoted_.end() ? nullptr : found->second;
}

detail::ObjectHandle ObjectTable::keep(Entry& entry) noexcept {
  // An entry whose last handle is gone is never revived here: its release waits for our lock.
  std::uint32_t handles = entry.handles.load(std::memory_order_acquire);
  while (handles != 0)
    if (entry.handles.compare_exchange_weak(handles, handles + 1, std::memory_order_acq_rel))
      return detail::ObjectHandle::adopt(&entry);
  return {};
}

detail::ObjectHandle ObjectTable::adopt(ObjectId id) {
  auto* entry = new Entry;
  entry->id = id;
  entry->session = session_;
  entry->promoted = true;
  const bool fresh = promoted_.emplace(id, entry).second;
  TROUPE_ASSERT(fresh, "an object has one entry");
  return detail::ObjectHandle::adopt(entry);
}

void ObjectTable::mark_promoted(Entry& entry) {
  remove_own(entry);
  entry.promoted = true;
  promoted_.emplace(entry.id, &entry);
}

void ObjectTable::add_own(Entry& entry) {
  entry.own.edit().older = newest_own_;
  entry.in_own = true;
  (newest_own_ != nullptr ? newest_own_->own.edit().newer : oldest_own_) = &entry;
  newest_own_ = &entry;
}

void ObjectTable::remove_own(Entry& entry) noexcept {
  if (!entry.in_own) return;
  entry.in_own = false;
  const auto [older, newer] = entry.own.take();
  (older != nullptr ? older->own.edit().newer : oldest_own_) = newer;
  (newer != nullptr ? newer->own.edit().older : newest_own_) = older;
}

void ObjectTable::erase(Entry& entry) {
  remove_own(entry);
  if (entry.promoted)
    if (const auto found = promoted_.find(entry.id);
        found != promoted_.end() && found->second == &entry)
      promoted_.erase(found);
}

}  // namespace troupe::client
