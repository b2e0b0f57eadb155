/// LoopActor: an actor whose code is a loop. Training loops and trials are such actors.
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
/// Events go out and orders come in while the loop computes; LoopController is the other end.
#pragma once

#include "troupe/actors/loop_actor/mailbox.hpp"
#include "troupe/runtime/async_event.hpp"
#include "troupe/runtime/task.hpp"

#include <optional>
#include <utility>
#include <vector>

namespace troupe {

/// `Event` and `Order` are copyable values. A derived class calls stop() in its destructor, before
/// its own members go.
template <class Event, class Order>
class LoopActor {
 public:
  LoopActor(const LoopActor&) = delete;
  LoopActor& operator=(const LoopActor&) = delete;

  // --- methods of the actor, for its controller
  /// Result: the events since the last call, in their order; it is ready with the first one. One
  /// call at a time.
  Task<std::vector<Event>> take() {
    mailbox_.post([this] {
      wanted_ = true;
      hand_out();
    });
    co_await handed_out_;
    co_return std::exchange(batch_, {});
  }
  /// The loop's next() gives it.
  void tell(const Order& order) { mailbox_.tell(std::make_shared<Order>(order)); }

 protected:
  LoopActor() = default;
  ~LoopActor() = default;

  /// Starts the loop on a thread of its own; once, at the end of the constructor.
  void run(std::function<void()> loop) { mailbox_.run(std::move(loop)); }
  /// Any thread, never blocks: the controller hears of it.
  void emit(Event event) {
    mailbox_.post([this, event = std::move(event)] {
      outbox_.push_back(event);
      hand_out();
    });
  }
  /// The next order. Blocks until there is one, or until stop(): then nothing. The loop only.
  std::optional<Order> next() {
    const std::shared_ptr<void> order = mailbox_.receive();
    if (!order) return std::nullopt;
    return *static_cast<const Order*>(order.get());
  }
  /// Runs `work` after the events so far have gone out; it must not block.
  void post(std::function<void()> work) { mailbox_.post(std::move(work)); }
  /// Ends next() for good and waits for the loop to return.
  void stop() { mailbox_.stop(); }

 private:
  void hand_out() {
    if (!wanted_ || outbox_.empty()) return;
    wanted_ = false;
    batch_ = std::exchange(outbox_, {});
    handed_out_.set();
  }

  // The mailbox's alone, but for batch_: between set() and the next take() that is take()'s.
  bool wanted_ = false;
  std::vector<Event> outbox_, batch_;
  AsyncEvent handed_out_;
  LoopMailbox mailbox_;  // last: what it runs uses the others
};

}  // namespace troupe
