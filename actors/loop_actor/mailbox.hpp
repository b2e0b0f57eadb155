/// LoopMailbox: a mailbox that runs posted work at any time, and a loop on a thread of its own
/// beside it. LoopActor is built on it.
///
///     LoopMailbox mailbox;
///     mailbox.run([&] { while (auto order = mailbox.receive()) obey(order); });
///     mailbox.tell(std::make_shared<Order>(…));      // wakes the loop
///     mailbox.post([&] { … });                       // runs beside the loop, one at a time
///     mailbox.stop();
///
/// The mailbox is a CAF actor. Posted work runs on CAF's thread of this process, so it does not
/// wait for a loop that computes for hours.
#pragma once

#include "troupe/runtime/base/assert.hpp"

#include <functional>
#include <memory>
#include <thread>

namespace troupe {

/// One mailbox with at most one loop.
class TROUPE_API LoopMailbox {
 public:
  /// Throws Unavailable when the system gives the process no more threads.
  LoopMailbox();
  LoopMailbox(const LoopMailbox&) = delete;
  LoopMailbox& operator=(const LoopMailbox&) = delete;
  /// Calls stop(), and waits for posted work that is running. Other posted work never runs.
  ~LoopMailbox();

  /// Runs `work` once, after all work posted before. Any thread; never blocks. All loops of a
  /// process share one thread for it, so `work` must not block or throw. Cost: some microseconds.
  void post(std::function<void()> work);
  /// Starts the loop's thread. Called once.
  void run(std::function<void()> loop);
  /// Sends a message to the loop's receive(). Any thread; never blocks.
  void tell(std::shared_ptr<void> message);
  /// Returns the next message, in the order of tell(). Blocks without a limit until there is one.
  /// After stop() it returns the messages that were sent before, and then nullptr. Messages sent
  /// later are lost. One thread.
  std::shared_ptr<void> receive();
  /// Ends receive() for good and waits until the loop has returned. Not to be
  /// called by the loop itself.
  void stop();

 private:
  struct Actors;
  std::unique_ptr<Actors> actors_;
  std::thread thread_;
};

}  // namespace troupe
