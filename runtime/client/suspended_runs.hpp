/// Counts the runs of this process that wait in a coroutine. A worker all of whose runs wait
/// gives its CPU back, since they may wait for work that needs it (RUN-5).
///
///     auto sink = suspended.count(std::move(results));   // the coroutine keeps it until it ends
///     if (suspended.any()) …                             // in the worker's loop: all of them wait
#pragma once

#include "troupe/runtime/engine/engine.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

namespace troupe::client {

class SuspendedRuns {
 public:
  /// Returns the sink for a coroutine that waits. The run counts until the coroutine drops it.
  std::shared_ptr<detail::ResultSink> count(std::shared_ptr<detail::ResultSink> sink) {
    detail::ResultSink* const plain = sink.get();
    return {std::make_shared<One>(runs_, std::move(sink)), plain};
  }
  bool any() const noexcept { return runs_->load(std::memory_order_relaxed) != 0; }

 private:
  /// Shared with the coroutines, which may be destroyed after the engine.
  using Count = std::shared_ptr<std::atomic<std::uint32_t>>;
  class One {
   public:
    One(Count runs, std::shared_ptr<detail::ResultSink> sink)
        : runs_(std::move(runs)), sink_(std::move(sink)) {
      runs_->fetch_add(1, std::memory_order_relaxed);
    }
    ~One() { runs_->fetch_sub(1, std::memory_order_relaxed); }
    One(const One&) = delete;
    One& operator=(const One&) = delete;

   private:
    const Count runs_;
    const std::shared_ptr<detail::ResultSink> sink_;
  };

  const Count runs_ = std::make_shared<std::atomic<std::uint32_t>>(0);
};

}  // namespace troupe::client
