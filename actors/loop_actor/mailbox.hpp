/// LoopMailbox: a mailbox that is always live, and a loop with a thread of its own beside it.
///
///     LoopMailbox mailbox;
///     mailbox.run([&] { while (auto order = mailbox.receive()) obey(order); });
///     mailbox.tell(std::make_shared<Order>(…));      // wakes the loop
///     mailbox.post([&] { … });                       // runs beside the loop, one at a time
///     mailbox.stop();
///
/// The mailbox is an actor of CAF; what is posted runs on CAF's thread of this process, so that a
/// loop that computes for hours keeps nobody waiting.
#pragma once

#include "troupe/runtime/base/assert.hpp"

#include <functional>
#include <memory>
#include <thread>

namespace troupe {

class TROUPE_API LoopMailbox {
 public:
  /// Throws Unavailable when the process gets no more threads.
  LoopMailbox();
  LoopMailbox(const LoopMailbox&) = delete;
  LoopMailbox& operator=(const LoopMailbox&) = delete;
  /// Calls stop(). What was posted has run or never runs; a post under way is waited for.
  ~LoopMailbox();

  /// Runs `work` once, after all that was posted before; any thread, never blocks. All loops of a
  /// process share one thread for it: `work` must not block, nor throw. Cost: some microseconds.
  void post(std::function<void()> work);
  /// Starts the loop's thread; once.
  void run(std::function<void()> loop);
  /// The next receive() has it. Any thread, never blocks.
  void tell(std::shared_ptr<void> message);
  /// What was told, in its order. Blocks without a bound until then or until stop(): then nullptr,
  /// as it is for what was told later. One thread.
  std::shared_ptr<void> receive();
  /// Ends receive() for good and waits until the loop has returned; not from the loop itself.
  void stop();

 private:
  struct Actors;
  std::unique_ptr<Actors> actors_;
  std::thread thread_;
};

}  // namespace troupe
