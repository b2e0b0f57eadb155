/// The reference table of one process: a record for every object that some handle here names.
///
/// An object that never left the process is known here alone. Once its id has been serialized
/// (*promoted*) its record is the agent's, and what stands here is this process's share: one count,
/// and the value once it is known.
#pragma once

#include "troupe/runtime/client/free_list.hpp"
#include "troupe/runtime/client/lazy_box.hpp"
#include "troupe/runtime/client/small_buffer.hpp"
#include "troupe/runtime/engine/engine.hpp"
#include "troupe/runtime/wire/messages.hpp"

#include <unordered_map>

namespace troupe::client {

/// Bytes of a small value with the handles inside it.
struct Stored {
  SmallBuffer<40> bytes;
  LazyBox<std::vector<detail::ObjectHandle>> refs;
  std::span<const detail::ObjectHandle> handles() const noexcept {
    if (!refs.written()) return {};
    return *refs;
  }
};

/// What wire::Value::ref_count says of a value whose refs are in bundles.
inline constexpr std::uint32_t kBundled = wire::kMaxRefs + 1;

class ClientEngine;
struct Entry;
struct Spec;
struct Task;

/// Somebody to be told when an entry is ready. `fire` runs under the engine's lock.
struct Waiter {
  void (*fire)(ClientEngine& engine, void* who, Entry& entry) = nullptr;
  void* who = nullptr;
};

/// Where the bytes of a `remote` value are once they have been fetched. Never changed once
/// published.
struct Fetched {
  std::shared_ptr<const Stored> value;  ///< inline bytes; null: shared, at
  wire::Location location;
  std::vector<detail::ObjectHandle> nested;
  bool bundled = false;  ///< as the entry's
};

/// A million of them may live: what few need lies outside.
struct Entry final : detail::ObjectEntry, FromFreeList<Entry> {
  /// Written last, with release: a reader that sees `ready` may read the value without the lock.
  std::atomic<bool> ready{false};
  wire::Value::Kind kind = wire::Value::Kind::pending;
  bool promoted = false;       ///< the agent has the record; we hold one count there
  bool awaited = false;        ///< Await was sent
  bool wants_bytes = false;    ///< somebody here wants the value itself, not only to know of it
  bool fetching = false;       ///< Await with `fetch` was sent, and has not failed
  bool fulfil = false;         ///< promoted while pending here: the agent waits for our Fulfil
  bool owns_location = false;  ///< this process frees the location when the last handle goes
  bool adopted = false;        ///< the agent keeps the location until Free
  bool argued = false;         ///< a call named it: lineage may know of it
  bool in_own = false;
  enum class Made : std::uint8_t { elsewhere, task, put, actor } made = Made::elsewhere;
  bool bundled = false;         ///< shared: `nested` are bundles of the refs inside
  std::uint8_t awaits = 0;      ///< Awaits without an answer; each comes before that to a Rebuild
  bool parked : 1 = false;      ///< no handle, but lineage_uses
  bool rebuilding : 1 = false;  ///< Rebuild was sent; Ready follows
  bool refused : 1 = false;     ///< and said that it cannot be: fetch_error
  std::uint8_t session = 0;     ///< whose it is; of the next ones it knows nothing
  /// Of a remote value only `length`, and as `segment` the number of its node.
  LazyBox<wire::Location> location;
  std::shared_ptr<const Stored> value;  ///< inline bytes
  std::shared_ptr<const ErrorInfo> error;
  /// Remote: why the last fetch failed; locked.
  LazyBox<std::shared_ptr<const ErrorInfo>> fetch_error;
  LazyBox<std::vector<detail::ObjectHandle>> nested;  ///< shared: handles of the refs inside
  detail::ObjectHandle source;           ///< forwarded: keeps the object whose value this is
  LazyBox<std::vector<Waiter>> waiters;  ///< until ready; of a remote one for its bytes
  union {
    Entry* next_released = nullptr;
    Task* task;  ///< a worker's, not ready, without a source: what is to settle it, or nullptr
  };
  struct Neighbours {
    Entry *older = nullptr, *newer = nullptr;
  };
  /// Among the values in shared memory that only this process knows of, by age.
  LazyBox<Neighbours> own;
  /// Of a remote value: published apart from `ready`, since `remote` is read without the lock.
  std::atomic<const Fetched*> fetched{nullptr};
  /// Who has the value since ours was lost: an object that is being computed again, or was. Set
  /// once; we hold a handle of it. Read without the lock.
  std::atomic<Entry*> recompute_target{nullptr};
  // What can be done when the bytes are lost (client/lineage.hpp).
  Spec* made_by = nullptr;         ///< the call that made it, while that is known
  std::uint32_t result_index = 0;  ///< which of its results
  std::uint32_t lineage_uses = 0;  ///< calls that would need it, and cannot name its call
  std::uint64_t parked_bytes : 47 = 0;
  std::uint64_t site : 17 = 0;  ///< of what was put or made here: the number of its call site
  inline ~Entry();
};

inline Entry& entry_of(const detail::ObjectHandle& handle) noexcept {
  return *static_cast<Entry*>(handle.entry());
}

/// It is written to soon. With many calls under way it has left the caches.
inline void fetch_ahead(const detail::ObjectHandle& handle) noexcept {
  const auto* at = reinterpret_cast<const std::byte*>(handle.entry());
  for (std::size_t i = 0; i < sizeof(Entry); i += 64) __builtin_prefetch(at + i, 1);
}

inline Entry::~Entry() {
  delete fetched.load(std::memory_order_relaxed);
  detail::ObjectHandle::adopt(recompute_target.load(std::memory_order_relaxed));
}

/// The object whose value a ready entry has: itself, or where it was forwarded to. One that takes
/// the place of a lost one may not be ready.
inline const Entry& origin_of(const Entry& entry) noexcept {
  const Entry* at = &entry;
  for (;;) {
    if (const Entry* target = at->recompute_target.load(std::memory_order_acquire)) {
      at = target;
      if (!at->ready.load(std::memory_order_acquire)) return *at;
    } else if (at->kind == wire::Value::Kind::remote && at->source) {
      at = &entry_of(at->source);
    } else {
      return *at;
    }
  }
}
inline Entry& origin_of(Entry& entry) noexcept {
  return const_cast<Entry&>(origin_of(static_cast<const Entry&>(entry)));
}

/// The next object on the way to the value, or nullptr. Under the engine's lock.
inline Entry* next_of(const Entry& entry) noexcept {
  if (Entry* target = entry.recompute_target.load(std::memory_order_relaxed)) return target;
  return entry.source ? &entry_of(entry.source) : nullptr;
}

/// Who has to be ready first, or to be found again, before a value can be opened or fetched; or
/// nullptr. Under the engine's lock.
inline Entry* blocker_of(Entry& entry) noexcept {
  for (Entry* at = &entry; at != nullptr; at = next_of(*at))
    if (at->rebuilding || !at->ready.load(std::memory_order_relaxed)) return at;
  return nullptr;
}

/// The task of this process whose end the entry waits for, wherever its value is to come from; or
/// nullptr. Under the engine's lock.
inline Task* awaited_task(Entry& entry) noexcept {
  Entry* at = &entry;
  while (Entry* next = next_of(*at)) at = next;
  return at->rebuilding || at->ready.load(std::memory_order_relaxed) ? nullptr : at->task;
}

/// Whether the value, or its error, can be opened in this process. Without the lock, too.
inline bool is_here(const Entry& entry) noexcept {
  if (!entry.ready.load(std::memory_order_acquire)) return false;
  if (entry.kind == wire::Value::Kind::inline_bytes || entry.kind == wire::Value::Kind::error)
    return true;
  const Entry& origin = origin_of(entry);
  return origin.ready.load(std::memory_order_acquire) &&
         (origin.kind != wire::Value::Kind::remote ||
          origin.fetched.load(std::memory_order_acquire) != nullptr);
}

/// Whether those who want the bytes wait in vain: why is in fetch_error of its origin. Under the
/// engine's lock, after they were asked for.
inline bool fetch_failed(Entry& entry) noexcept {
  return blocker_of(entry) == nullptr && !is_here(entry) && !origin_of(entry).fetching;
}

/// Whether nothing but its handles has ever known of a small value, and it keeps no others: then
/// whoever drops the last handle deletes it, without the lock.
inline bool is_alone(const Entry& entry) noexcept {
  return entry.ready.load(std::memory_order_relaxed) &&
         entry.kind == wire::Value::Kind::inline_bytes && !entry.promoted && !entry.argued &&
         entry.made_by == nullptr && !entry.in_own && !entry.source &&
         entry.value->handles().empty();
}

/// Promoted entries by id. Under the engine's lock.
class ObjectTable {
 public:
  /// Ids of this process: `high` is unique to it.
  explicit ObjectTable(std::uint64_t high, std::uint8_t session = 0)
      : high_(high), session_(session) {}

  /// A new pending object with one handle.
  detail::ObjectHandle create();
  /// The entry of an promoted id, or nullptr.
  Entry* find(ObjectId id) noexcept;
  /// Each promoted entry. Precondition: nothing changes meanwhile.
  template <class F>
  void each_promoted(F look_at) {
    for (auto& [id, entry] : promoted_) look_at(*entry);
  }
  /// A new entry for an id that arrived in a message, with one handle. Precondition: find() has
  /// none.
  detail::ObjectHandle adopt(ObjectId id);
  /// One more handle of a live entry, or an empty one.
  static detail::ObjectHandle keep(Entry& entry) noexcept;
  /// The entry becomes findable by id.
  void mark_promoted(Entry& entry);
  /// Takes the entry out once its last handle is gone; the caller deletes it.
  void erase(Entry& entry);
  /// A value in shared memory of ours that nobody else knows of; until it is promoted or goes.
  void add_own(Entry& entry);
  /// Forgets that.
  void remove_own(Entry& entry) noexcept;
  Entry* oldest_own() noexcept { return oldest_own_; }
  std::uint64_t next_low() noexcept { return ++low_; }
  std::uint64_t high() const noexcept { return high_; }
  /// Whether the entry is of this table, and not of an earlier session of this process.
  bool has(const Entry& entry) const noexcept { return entry.session == session_; }

 private:
  std::uint64_t high_;
  std::uint8_t session_;
  std::uint64_t low_ = 0;
  std::unordered_map<ObjectId, Entry*> promoted_;
  Entry *oldest_own_ = nullptr, *newest_own_ = nullptr;
};

}  // namespace troupe::client
