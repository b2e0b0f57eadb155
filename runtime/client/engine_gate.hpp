/// The engine's one lock, and what other threads leave to its holder: entries whose last handle is
/// gone, and views of the store that have ended. Serves ClientEngine.
///
///     Guard lock = gate.guard();
///     …
///     gate.unlock_and_collect(lock);       // also frees what was left meanwhile
///     gate.release(entry);                 // any thread, with or without the lock
///
/// Invariants: GATE-1 Nothing is left behind: the thread that leaves something finds the lock free
/// and collects, or its holder does so when it unlocks. GATE-2 An entry is freed once, under the
/// lock. GATE-3 In a fork, where the thread that held the lock does not exist, guard() throws.
#pragma once

#include "troupe/runtime/base/process_mark.hpp"
#include "troupe/runtime/client/io_loop.hpp"
#include "troupe/runtime/client/lock.hpp"
#include "troupe/runtime/client/store_use.hpp"
#include "troupe/runtime/client/values.hpp"

#include <atomic>
#include <mutex>

namespace troupe::client {

class EngineGate {
 public:
  EngineGate(Values::Out& out, Values& values, StoreUse& store)
      : out_(out), values_(values), store_(store) {}
  /// Deletes the entries that are left. Precondition: no other thread uses the engine any more.
  ~EngineGate() { drop(); }
  EngineGate(const EngineGate&) = delete;
  EngineGate& operator=(const EngineGate&) = delete;

  EngineLock& lock() noexcept { return lock_; }
  const ProcessMark& mark() const noexcept { return mark_; }
  /// Takes the lock. Throws in a fork.
  Guard guard() {
    mark_.expect_own();
    return Guard(lock_);
  }
  /// Unlocks, and frees entries that were released meanwhile. Each call takes it, so it is inlined.
  [[gnu::always_inline]] void unlock_and_collect(Guard& guard) {
    if (has_leftovers()) [[unlikely]]
      return collect_and_unlock(guard);
    guard.unlock();
    if (has_leftovers()) [[unlikely]]
      collect_if_free();
  }
  /// Collects if no thread holds the lock. Otherwise its holder does.
  void collect_if_free();
  /// Frees an entry whose last handle is gone. Any thread, also one that holds the lock.
  void release(Entry* entry) noexcept {
    if (is_alone(*entry)) {
      delete entry;
      return;
    }
    Entry* head = released_.load(std::memory_order_relaxed);
    do {
      entry->next_released = head;
    } while (!released_.compare_exchange_weak(head, entry, std::memory_order_seq_cst));
    // This thread pushes first and then tries the lock; the holder unlocks first and then checks
    // has_leftovers() (unlock_and_collect()). So one of the two sees the other.
    collect_if_free();
  }
  bool has_leftovers() const noexcept {
    return released_.load(std::memory_order_seq_cst) != nullptr || store_.has_unpins();
  }
  /// Frees what was left. Under the lock.
  void collect() {
    for (const auto& unpin : store_.take_unpins()) out_.tell(unpin, {});
    if (released_.load(std::memory_order_acquire) != nullptr) free_released();  // rarely
  }
  /// Deletes the entries that are left, and tells nobody.
  void drop() noexcept;

 private:
  void collect_and_unlock(Guard& guard);
  void free_released();

  const ProcessMark mark_;
  EngineLock lock_;
  std::atomic<Entry*> released_{nullptr};
  Values::Out& out_;
  Values& values_;
  StoreUse& store_;
};

}  // namespace troupe::client
