/// What this process asks its agent about the object store, and what the agent asks of it: extents,
/// views of memory, places of objects, memory for others. Serves StoreUse, whose questions block,
/// and ClientEngine.
///
///     store.allocate(size);                        // may call need_extent(), without the lock
///     asks.on_extent(message, descriptors);        // under the lock: its answer has come
///     asks.release_memory();                       // under the lock: others need memory
///
/// Invariants: ASK-1 Each question ends: with its answer, with the reason of the agent's loss, or
/// with an error that says what did not come in time. ASK-2 An extent whose question has timed out
/// serves others. ASK-3 A view that ends while no thread holds the lock is told at once.
#pragma once

#include "troupe/runtime/client/agent_link.hpp"
#include "troupe/runtime/client/calls.hpp"
#include "troupe/runtime/client/engine_gate.hpp"
#include "troupe/runtime/client/io_loop.hpp"
#include "troupe/runtime/client/questions.hpp"
#include "troupe/runtime/client/store_use.hpp"
#include "troupe/runtime/client/values.hpp"
#include "troupe/runtime/client/waits.hpp"

#include <cstdint>
#include <vector>

namespace troupe::client {

class StoreAsks final : public StoreUse::Asks {
 public:
  StoreAsks(Calls::Out& out, EngineGate& gate, AgentLink& agent, Questions& questions,
            StoreUse& store, Values& values, Waits& waits)
      : out_(out),
        gate_(gate),
        agent_(agent),
        questions_(questions),
        store_(store),
        values_(values),
        waits_(waits) {}
  /// From here on the store asks. Under the lock.
  void begin(IoLoop& loop) {
    loop_ = &loop;
    store_.begin(*this);
  }

  // --- the agent's messages, under the lock
  void on_extent(const wire::GiveExtent& message, std::vector<Fd> descriptors);
  void on_reader(const wire::GiveReader& message, std::vector<Fd> descriptors);
  /// Frees memory for others. Values that only this process knows become the agent's, which can
  /// spill them. Empty extents go back, unless one was just given to a thread here.
  void release_memory();

  // --- StoreUse::Asks
  Result<bool> need_extent(std::uint64_t bytes) override;
  bool fetch_reader(bool is_segment, std::uint64_t id, Error& error) override;
  Result<objectstore::Location> where_is(const wire::Location& name) override;
  void views_ended() override {
    if (!waits_.is_over()) gate_.collect_if_free();
  }

 private:
  void notify() {
    if (loop_ != nullptr) loop_->notify();
  }

  Calls::Out& out_;
  EngineGate& gate_;
  AgentLink& agent_;
  Questions& questions_;
  StoreUse& store_;
  Values& values_;
  Waits& waits_;
  IoLoop* loop_ = nullptr;
};

}  // namespace troupe::client
