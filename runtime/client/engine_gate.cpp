#include "troupe/runtime/client/engine_gate.hpp"

namespace troupe::client {

void EngineGate::collect_and_unlock(Guard& guard) {
  do {
    collect();
    guard.unlock();
  } while (has_leftovers() && lock_.try_lock() && (guard = Guard(lock_, std::adopt_lock), true));
}

void EngineGate::collect_if_free() {
  if (lock_.held_by_this_thread() || !lock_.try_lock()) return;
  Guard guard(lock_, std::adopt_lock);
  collect_and_unlock(guard);
}

void EngineGate::free_released() {
  Entry* entry = released_.exchange(nullptr, std::memory_order_seq_cst);
  while (entry != nullptr) {
    Entry* next = entry->next_released;
    values_.free(entry);
    entry = next;
    if (entry == nullptr) entry = released_.exchange(nullptr, std::memory_order_seq_cst);
  }
}

void EngineGate::drop() noexcept {
  for (Entry* entry = released_.exchange(nullptr); entry != nullptr;) {
    Entry* next = entry->next_released;
    delete entry;
    entry = next != nullptr ? next : released_.exchange(nullptr);
  }
}

}  // namespace troupe::client
