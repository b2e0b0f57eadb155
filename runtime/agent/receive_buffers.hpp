/// Reserves memory for objects that come from other nodes. It has a thread of its own, since the
/// first touch of fresh pages takes too long for an event loop.
///
///     ReceiveBuffers buffers(host.local(), [&] { mailbox.wake(); });
///     buffers.ask(pull, bytes);
///     for (ReceiveBuffers::Answer& answer : buffers.take()) ...  // allocation, request or error
#pragma once

#include "troupe/objectstore/client.hpp"
#include "troupe/runtime/agent/transfer_ids.hpp"
#include "troupe/runtime/base/signal_masked_thread.hpp"

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <vector>

namespace troupe::agent {

class ReceiveBuffers {
 public:
  struct Answer {
    PullId pull = 0;
    std::uint64_t bytes = 0;
    /// Holds an ExtentRequest if the caller must grant an extent first and then ask again.
    Result<objectstore::Client::Created> created;
  };
  /// `wake` is called on the thread after each answer.
  ReceiveBuffers(objectstore::Client& client, std::function<void()> wake);
  /// Waits for the allocation that is being made.
  ~ReceiveBuffers();

  /// Asks for memory for a pull. take() returns the answer later.
  void ask(PullId pull, std::uint64_t bytes);
  /// The answers since the last call.
  std::vector<Answer> take();

 private:
  struct Request {
    PullId pull = 0;
    std::uint64_t bytes = 0;
  };
  void run();

  objectstore::Client& client_;
  const std::function<void()> wake_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Request> requests_;  ///< by mutex_, as are the next two
  std::vector<Answer> answers_;
  bool over_ = false;
  SignalMaskedThread thread_;  ///< begun by the first ask()
};

}  // namespace troupe::agent
