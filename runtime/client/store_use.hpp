/// This process's use of its node's object store: memory for the values that it writes, views of
/// all values, and the ends of views that the agent must hear of. Serves ClientEngine. Decides
/// nothing about objects.
///
///     auto room = store.allocate(size);                 // asks the agent for an extent, if needed
///     wire::Location at = store.seal(std::move(*room), size);
///     auto view = store.open(at);                       // asks where it is now, if it has moved
///     for (const auto& unpin : store.take_unpins()) …   // views that have ended
///
/// Invariants: STORE-1 The end of a view is taken once, whichever thread ended it, also after this
/// part's end. STORE-2 No thread is told of ended views once end() has returned. STORE-3 An extent
/// that a thread was given stays until that thread has tried to use it: trim() gives nothing back
/// before. STORE-4 allocate() and open() end: the agent's answers, and the attempts, have bounds.
#pragma once

#include "troupe/objectstore/client.hpp"
#include "troupe/runtime/base/process_mark.hpp"
#include "troupe/runtime/base/result.hpp"
#include "troupe/runtime/wire/messages.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace troupe::client {

class StoreUse {
 public:
  /// What this part asks of the agent. Called without the engine's lock; all but views_ended()
  /// block.
  class Asks {
   public:
    virtual ~Asks() = default;
    /// Asks for an extent. True: it was added. False: our own extents may have room now.
    virtual Result<bool> need_extent(std::uint64_t bytes) = 0;
    /// Asks for a view of a segment or an extent. False: `error` says why there is none.
    virtual bool fetch_reader(bool is_segment, std::uint64_t id, Error& error) = 0;
    /// Asks where an object is now that has moved from `name`. The agent brings a spilled object
    /// back to memory.
    virtual Result<objectstore::Location> where_is(const wire::Location& name) = 0;
    /// Tells the agent of ended views now, if the engine's lock is free. Any thread.
    virtual void views_ended() = 0;
  };

  /// Maps the store's tables. Throws Unavailable, and the store's errors.
  void attach(const wire::StoreTables& tables, std::vector<Fd> descriptors);
  bool is_attached() const noexcept { return client_ != nullptr; }
  /// From here on ended views call asks.views_ended(). Before it neither allocate() nor open() may
  /// be called.
  void begin(Asks& asks) noexcept;
  /// Waits until no thread is inside Asks::views_ended() any more.
  void end() noexcept;

  // --- values
  Result<objectstore::Allocation> allocate(std::size_t size);
  /// Publishes the first `size` bytes.
  wire::Location seal(objectstore::Allocation allocation, std::size_t size);
  Result<objectstore::Pinned> open(const wire::Location& at);
  /// Frees a value of this process that the agent has not adopted.
  void drop(const wire::Location& at);
  /// Keeps views valid that outlive the session.
  const std::shared_ptr<objectstore::Client>& client() const noexcept { return client_; }

  // --- the agent's messages
  /// Maps an extent. False: the agent gave none, but our own extents may have room.
  Result<bool> add_extent(const wire::GiveExtent& message, std::vector<Fd> descriptors);
  /// A thread that waits has been given an extent.
  void is_given() noexcept { unused_.fetch_add(1, std::memory_order_relaxed); }
  /// Maps what others have written.
  Result<void> add_reader(const wire::GiveReader& message, std::vector<Fd> descriptors);
  void recycle(const wire::Recycle& message);
  void forget(const wire::Forget& message) noexcept;
  /// Unmaps our empty extents and returns them, unless a thread was just given one.
  std::vector<objectstore::ExtentId> trim();

  // --- views that ended
  bool has_unpins() const noexcept { return unpins_->any.load(std::memory_order_seq_cst); }
  /// Returns the ends that the agent has not heard of. Costs a load when there is none.
  std::vector<wire::Unpinned> take_unpins() {
    if (!unpins_->any.load(std::memory_order_acquire)) return {};  // mostly; costs no write
    return take_noted();
  }

 private:
  /// The store keeps this too, since views may outlive the engine.
  struct Unpins {
    std::mutex mutex;
    std::vector<wire::Unpinned> list;
    std::atomic<bool> any{false};
    std::atomic<Asks*> asks{nullptr};  ///< nullptr: the engine has ended
    std::atomic<int> telling{0};       ///< threads that may be inside the engine
  };
  std::vector<wire::Unpinned> take_noted();

  const ProcessMark mark_;
  const std::shared_ptr<Unpins> unpins_ = std::make_shared<Unpins>();
  std::shared_ptr<objectstore::Client> client_;
  Asks* asks_ = nullptr;
  /// Extents that the agent gave and that the thread that asked has not seen yet.
  std::atomic<int> unused_{0};
};

}  // namespace troupe::client
