/// The reference table of one process: a record (Entry) for every object that some handle here
/// names. Serves ClientEngine.
///
/// An object that never left the process is known here alone. Once a frame names its id, it is
/// *promoted*: the agent owns the record, and the Entry here is this process's share, one count
/// and the value once that is known.
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

/// The wire::Value::ref_count of a value whose refs travel in bundles.
inline constexpr std::uint32_t kBundled = wire::kMaxRefs + 1;

class Calls;
struct Entry;
struct Spec;
struct Task;

/// A callback for the time when an entry is ready. `fire` runs under the engine's lock. Without
/// it, `who` is an entry that follows the ready one (values.hpp).
struct Waiter {
  void (*fire)(Calls& calls, void* who, Entry& entry) = nullptr;
  void* who = nullptr;
};

/// The bytes of a `remote` value, once they have been fetched. Immutable once published.
struct Fetched {
  std::shared_ptr<const Stored> value;  ///< inline bytes; null: in shared memory, at `location`
  wire::Location location;
  std::vector<detail::ObjectHandle> nested;
  bool bundled = false;  ///< as Entry::bundled
};

/// The record of one object. A million may live at once, so members that few need lie in a
/// LazyBox.
struct Entry final : detail::ObjectEntry, FromFreeList<Entry> {
  /// Written last, with release: a thread that sees `ready` may read the value without the lock.
  std::atomic<bool> ready{false};
  wire::Value::Kind kind = wire::Value::Kind::pending;
  bool promoted = false;       ///< the agent has the record; we hold one count there
  bool awaited = false;        ///< Await was sent
  bool wants_bytes = false;    ///< some thread here wants the bytes, not only readiness
  bool fetching = false;       ///< Await with `fetch` was sent and has not failed
  bool fulfil = false;         ///< promoted while pending: the agent waits for our Fulfil
  bool owns_location = false;  ///< this process frees the location when the last handle goes
  bool adopted = false;        ///< the agent keeps the location until Free
  bool argued = false;         ///< was an argument of a call: lineage may name it
  bool in_own = false;
  enum class Made : std::uint8_t { elsewhere, task, put, actor } made = Made::elsewhere;
  bool bundled = false;         ///< shared: `nested` are bundles of the refs inside
  std::uint8_t awaits = 0;      ///< unanswered Awaits; answered before a later Rebuild
  bool parked : 1 = false;      ///< without a handle, kept by lineage_uses
  bool rebuilding : 1 = false;  ///< Rebuild was sent; Ready follows
  bool refused : 1 = false;     ///< the answer to Rebuild was an error: fetch_error
  std::uint8_t session = 0;     ///< the session of this process that made it
  /// Where the value lies. Of a remote value only `length`, and the number of its node as
  /// `segment`.
  LazyBox<wire::Location> location;
  std::shared_ptr<const Stored> value;  ///< inline bytes
  std::shared_ptr<const ErrorInfo> error;
  /// Of a remote value: why the last fetch failed. Under the lock.
  LazyBox<std::shared_ptr<const ErrorInfo>> fetch_error;
  LazyBox<std::vector<detail::ObjectHandle>> nested;  ///< shared: handles of the refs inside
  detail::ObjectHandle source;                        ///< forwarded: the object whose value this is
  LazyBox<std::vector<Waiter>> waiters;  ///< for readiness; of a remote value for its bytes
  union {
    Entry* next_released = nullptr;
    Task* task;  ///< of a pending entry: the task that will settle it, or nullptr
  };
  struct Neighbours {
    Entry *older = nullptr, *newer = nullptr;
  };
  /// Links of the list of shared-memory values that only this process knows, by age.
  LazyBox<Neighbours> own;
  /// The bytes of a remote value. Published apart from `ready`, since a thread may read kind
  /// `remote` without the lock.
  std::atomic<const Fetched*> fetched{nullptr};
  /// The object that has the value since this one was lost: it is being computed again, or was.
  /// Set once, and holds one count. Read without the lock.
  std::atomic<Entry*> recompute_target{nullptr};
  // For lost bytes (client/lineage.hpp).
  Spec* made_by = nullptr;         ///< the call that made it, while known
  std::uint32_t result_index = 0;  ///< index among that call's results
  std::uint32_t lineage_uses = 0;  ///< kept calls that name this entry itself
  std::uint64_t parked_bytes : 47 = 0;
  std::uint64_t site : 17 = 0;  ///< number of its call site, if put or made here
  inline ~Entry();
};

inline Entry& entry_of(const detail::ObjectHandle& handle) noexcept {
  return *static_cast<Entry*>(handle.entry());
}

/// Fetches an entry into the caches before it is written. With many calls under way it has left
/// them.
inline void fetch_ahead(const detail::ObjectHandle& handle) noexcept {
  const auto* at = reinterpret_cast<const std::byte*>(handle.entry());
  for (std::size_t i = 0; i < sizeof(Entry); i += 64) __builtin_prefetch(at + i, 1);
}

inline Entry::~Entry() {
  delete fetched.load(std::memory_order_relaxed);
  detail::ObjectHandle::adopt(recompute_target.load(std::memory_order_relaxed));
}

/// Returns the object whose value a ready entry has: the entry itself, or the one that it was
/// forwarded to. A recompute target may not be ready.
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

/// Returns the next object on the way to the value, or nullptr. Under the engine's lock.
inline Entry* next_of(const Entry& entry) noexcept {
  if (Entry* target = entry.recompute_target.load(std::memory_order_relaxed)) return target;
  return entry.source ? &entry_of(entry.source) : nullptr;
}

/// Returns the first object on the way to the value that is not ready, or is being rebuilt; or
/// nullptr. Before that the value cannot be opened or fetched. Under the engine's lock.
inline Entry* blocker_of(Entry& entry) noexcept {
  for (Entry* at = &entry; at != nullptr; at = next_of(*at))
    if (at->rebuilding || !at->ready.load(std::memory_order_relaxed)) return at;
  return nullptr;
}

/// Returns the task of this process that the entry waits for, also through other objects; or
/// nullptr. Under the engine's lock.
inline Task* awaited_task(Entry& entry) noexcept {
  Entry* at = &entry;
  while (Entry* next = next_of(*at)) at = next;
  return at->rebuilding || at->ready.load(std::memory_order_relaxed) ? nullptr : at->task;
}

/// Returns whether the value, or its error, can be opened in this process. Needs no lock.
inline bool is_here(const Entry& entry) noexcept {
  if (!entry.ready.load(std::memory_order_acquire)) return false;
  if (entry.kind == wire::Value::Kind::inline_bytes || entry.kind == wire::Value::Kind::error)
    return true;
  const Entry& origin = origin_of(entry);
  return origin.ready.load(std::memory_order_acquire) &&
         (origin.kind != wire::Value::Kind::remote ||
          origin.fetched.load(std::memory_order_acquire) != nullptr);
}

/// Returns whether a fetch of the bytes has failed; its origin's fetch_error says why. Under the
/// engine's lock, after need() has asked for the bytes.
inline bool fetch_failed(Entry& entry) noexcept {
  return blocker_of(entry) == nullptr && !is_here(entry) && !origin_of(entry).fetching;
}

/// Returns whether an entry is a small value that only its handles know, and that holds no refs.
/// The thread that drops the last handle then deletes the entry without the lock.
inline bool is_alone(const Entry& entry) noexcept {
  return entry.ready.load(std::memory_order_relaxed) &&
         entry.kind == wire::Value::Kind::inline_bytes && !entry.promoted && !entry.argued &&
         entry.made_by == nullptr && !entry.in_own && !entry.source &&
         entry.value->handles().empty();
}

/// Promoted entries by id. Under the engine's lock.
class ObjectTable {
 public:
  /// `high` is the upper half of this process's object ids, unique to it.
  explicit ObjectTable(std::uint64_t high, std::uint8_t session = 0)
      : high_(high), session_(session) {}

  /// Makes a pending object with one handle.
  detail::ObjectHandle create();
  /// Returns the entry of a promoted id, or nullptr.
  Entry* find(ObjectId id) noexcept;
  /// Calls look_at with each promoted entry. Precondition: the table does not change meanwhile.
  template <class F>
  void each_promoted(F look_at) {
    for (auto& [id, entry] : promoted_) look_at(*entry);
  }
  /// Makes an entry for an id that arrived in a message, with one handle. Precondition: find()
  /// has none.
  detail::ObjectHandle adopt(ObjectId id);
  /// Returns one more handle of a live entry, or an empty one when its last handle is gone.
  static detail::ObjectHandle keep(Entry& entry) noexcept;
  /// Makes the entry findable by id.
  void mark_promoted(Entry& entry);
  /// Removes an entry whose last handle is gone; the caller deletes it.
  void erase(Entry& entry);
  /// Lists a shared-memory value that only this process knows, until it is promoted or erased.
  void add_own(Entry& entry);
  /// Removes the entry from that list.
  void remove_own(Entry& entry) noexcept;
  Entry* oldest_own() noexcept { return oldest_own_; }
  /// Calls look_at(const Entry&) with at most `most` entries of that list, the oldest first.
  template <class F>
  void each_own(std::size_t most, F look_at) const {
    for (const Entry* own = oldest_own_; own != nullptr && most > 0; own = own->own->newer, --most)
      look_at(*own);
  }
  std::uint64_t next_low() noexcept { return ++low_; }
  std::uint64_t high() const noexcept { return high_; }
  /// Returns whether the entry belongs to this table, and not to an earlier session of this
  /// process.
  bool has(const Entry& entry) const noexcept { return entry.session == session_; }

 private:
  std::uint64_t high_;
  std::uint8_t session_;
  std::uint64_t low_ = 0;
  std::unordered_map<ObjectId, Entry*> promoted_;
  Entry *oldest_own_ = nullptr, *newest_own_ = nullptr;
};

}  // namespace troupe::client
