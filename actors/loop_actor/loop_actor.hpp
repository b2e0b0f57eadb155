/// LoopActor: an actor whose code is a loop on a thread of its own. Training loops and trials are
/// such actors.
///
///     class Counter : public LoopActor<int, bool> {   // it tells ints and is told bools
///      public:
///       Counter() {
///         run([this] {
///           for (int k = 0; next().value_or(false); ++k) emit(k);
///         });
///       }
///       ~Counter() { stop(); }
///     };
///     auto counter = ctx.spawn<Counter>();
///     counter.tell<&Counter::tell>(true);
///     ctx.get(counter.call<&Counter::take>());         // {0}, without a poll
///
/// Events go out and orders come in while the loop computes. LoopController is the other end.
#pragma once

#include "troupe/actors/loop_actor/mailbox.hpp"
#include "troupe/runtime/async_event.hpp"
#include "troupe/runtime/task.hpp"

#include <optional>
#include <utility>
#include <vector>

namespace troupe {

/// `Event` and `Order` are copyable values. A derived class must call stop() in its destructor,
/// before its own members are destroyed: the loop uses them.
template <class Event, class Order>
class LoopActor {
 public:
  LoopActor(const LoopActor&) = delete;
  LoopActor& operator=(const LoopActor&) = delete;

  // --- methods of the actor, for its controller
  /// Waits for an event, without holding a thread. Result: the events since the last call, in their
  /// order, at least one. One call at a time.
  Task<std::vector<Event>> take() {
    mailbox_.post([this] {
      wanted_ = true;
      hand_out();
    });
    co_await handed_out_;
    co_return std::exchange(batch_, {});
  }
  /// Sends an order, which the loop's next() returns.
  void tell(const Order& order) { mailbox_.tell(std::make_shared<Order>(order)); }

 protected:
  LoopActor() = default;
  ~LoopActor() = default;

  /// Starts the loop on a thread of its own; once, at the end of the constructor.
  void run(std::function<void()> loop) { mailbox_.run(std::move(loop)); }
  /// Sends an event to the controller. Any thread; never blocks.
  void emit(Event event) {
    mailbox_.post([this, event = std::move(event)] {
      outbox_.push_back(event);
      hand_out();
    });
  }
  /// Returns the next order. Blocks until there is one, or until stop(); then returns nullopt. Only
  /// the loop's thread may call it.
  std::optional<Order> next() {
    const std::shared_ptr<void> order = mailbox_.receive();
    if (!order) return std::nullopt;
    return *static_cast<const Order*>(order.get());
  }
  /// Runs `work` in the mailbox, after the events emitted so far. It must not block.
  void post(std::function<void()> work) { mailbox_.post(std::move(work)); }
  /// Ends next() for good, after the orders that were sent before, and waits until the loop has
  /// returned.
  void stop() { mailbox_.stop(); }

 private:
  /// Completes a waiting take() if there are events. Runs in the mailbox.
  void hand_out() {
    if (!wanted_ || outbox_.empty()) return;
    wanted_ = false;
    batch_ = std::exchange(outbox_, {});
    handed_out_.set();
  }

  // Used in the mailbox only, so without a lock. Exception: between set() and the next take(),
  // take() uses batch_. `wanted_` is false then, so the mailbox leaves batch_ alone.
  bool wanted_ = false;
  std::vector<Event> outbox_, batch_;
  AsyncEvent handed_out_;
  LoopMailbox mailbox_;  // last, so that it is destroyed first: its work uses the other members
};

}  // namespace troupe
