/// The bytes of values: room for those that this process writes, and views of those that it reads.
/// Serves ClientEngine and the result sinks. Any thread, without the engine's lock.
///
///     ValueRoom room = bytes.make_room(size, {"mix(int)"});      // then room.bytes() is written
///     OutgoingValue value = bytes.finish_room(std::move(room), refs);
///     Result<detail::Value> view = bytes.open(handle, timeout);  // precondition: is_here
///
/// Invariants: BYTES-1 A value of at most wire::kInlineValue bytes is inline; others lie in shared
/// memory. BYTES-2 A value with more refs than travel with one carries them in bundles, in order; a
/// view has them all again. Bundles do not nest. BYTES-3 A view keeps what it needs: the store, the
/// memory, the refs.
#pragma once

#include "troupe/objectstore/client.hpp"
#include "troupe/runtime/client/call_sites.hpp"
#include "troupe/runtime/client/calls.hpp"
#include "troupe/runtime/client/engine_gate.hpp"
#include "troupe/runtime/client/outgoing_value.hpp"
#include "troupe/runtime/client/store_use.hpp"
#include "troupe/runtime/client/values.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace troupe::client {

/// A value that is being written: inline or in shared memory.
class ValueRoom {
 public:
  std::span<std::byte> bytes() noexcept {
    return allocation ? allocation.bytes().first(size) : std::span<std::byte>(inline_bytes);
  }
  std::size_t size = 0;
  Blob inline_bytes;
  objectstore::Allocation allocation;
  std::uint32_t site = 0;  ///< call site, as in OutgoingValue
};

class ValueBytes {
 public:
  /// What this part needs of the process around it.
  class Out {
   public:
    virtual ~Out() = default;
    /// Waits for the value of a bundle, as detail::Engine::try_get() does.
    virtual Result<detail::Value> try_get(const detail::ObjectHandle& object, Duration timeout) = 0;
  };
  /// `engine`: its number in this process.
  ValueBytes(Calls::Out& agent, Out& out, EngineGate& gate, StoreUse& store, Values& values,
             std::uint64_t engine)
      : agent_(agent), out_(out), gate_(gate), store_(store), values_(values), sites_(engine) {}
  ValueBytes(const ValueBytes&) = delete;
  ValueBytes& operator=(const ValueBytes&) = delete;

  /// Makes room for a value: inline bytes up to the inline limit, else shared memory. Throws
  /// OutOfMemory.
  ValueRoom make_room(std::size_t size, detail::CallSite at);
  /// Seals the written value. Throws InvalidArgument when it holds more than 262,144 refs, and
  /// OutOfMemory.
  OutgoingValue finish_room(ValueRoom room, std::span<const detail::ObjectHandle> refs);
  /// Returns a view of the object's value. Blocks for refs in bundles, at most `timeout`.
  /// Precondition: is_here. Error object_lost: another thread has just found it lost.
  Result<detail::Value> open(const detail::ObjectHandle& handle, Duration timeout);
  /// Opens a value in shared memory. Blocks as open() does.
  Result<detail::Value> open_shared(const wire::Location& at,
                                    const std::vector<detail::ObjectHandle>& nested,
                                    bool is_bundled, Duration timeout);
  /// Returns handles of the objects that the sender has counted for this process, by argument: the
  /// refs inside it, or the object of a forwarded argument, whose bytes are asked for. Empty when
  /// there are none.
  std::vector<std::vector<detail::ObjectHandle>> adopt_arguments(const wire::Call& call);
  /// The lines that made the values of this process. Under the lock.
  const CallSites& sites() const noexcept { return sites_; }

 private:
  std::uint32_t number_of(detail::CallSite at);
  Result<detail::Value> open_other(const Entry& entry, Duration timeout);
  OutgoingValue bundled(ValueRoom room, std::span<const detail::ObjectHandle> refs);
  Result<std::vector<detail::ObjectHandle>> unbundled(std::span<const detail::ObjectHandle> bundles,
                                                      Duration timeout);

  Calls::Out& agent_;
  Out& out_;
  EngineGate& gate_;
  StoreUse& store_;
  Values& values_;
  CallSites sites_;
};

}  // namespace troupe::client
