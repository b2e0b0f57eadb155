/// The door of a running study: `troupe tune` asks its owner through the file `socket` in the
/// study's folder, which this user alone may open.
///
///     auto server = StudyServer::open(disk->store(), {.wake = [&] { wake_the_runner(); }});
///     // Each turn of the runner, on one thread:
///     (*server)->apply(experiment, steady_now());       // commands that wait: add, stop, set, pause
///     disk->write(experiment.take_batch());
///     (*server)->answer_all();                          // their clients hear of it now
///
/// A thread of its own reads and writes the socket. It answers questions from the store's rows, so
/// that a runner which is busy delays no question. A command waits until apply() takes it, and its
/// client gets the answer when answer_all() says that the batch was written. Lines, clients and idle
/// time have bounds.
#pragma once

#include "troupe/runtime/base/units.hpp"
#include "troupe/tune/experiment.hpp"
#include "troupe/tune/study/study_store.hpp"

#include <functional>
#include <memory>

namespace troupe::tune {

class TROUPE_API StudyServer {
 public:
  /// How long a disk that hangs is waited for after end_soon().
  static constexpr Duration kLastAnswer = std::chrono::milliseconds(300);
  struct Options {
    /// Called on the server's thread when a command waits, so that the runner calls apply(). May be
    /// empty; must not throw, block, or destroy the server.
    std::function<void()> wake = {};
    std::size_t most_clients = 16;
    /// A client that neither asks nor reads for so long is cut off.
    Duration idle = std::chrono::seconds(60);
  };

  /// Makes the socket in place of an old one, and starts the thread. Keeps the store open.
  /// Errors: Unavailable, when the disk takes no sockets or a limit is reached. A study can run
  /// without a server; only the verbs cannot reach it then. Throws OutOfMemory without a thread.
  static Result<std::unique_ptr<StudyServer>> open(const StudyStore& store, Options options);
  /// Removes the socket. Commands that were not answered get an error. Blocks until the thread has
  /// ended: at most for one answer from the disk, or for kLastAnswer after end_soon(). Then the
  /// thread is left behind, and the study's folder stays this process's until it has that answer.
  ~StudyServer();
  StudyServer(const StudyServer&) = delete;
  StudyServer& operator=(const StudyServer&) = delete;

  /// Carries out the commands that wait, and looks at the board for later questions. Returns how
  /// many commands it took: the experiment may have records and commands of its own afterwards.
  /// Never blocks. apply() and answer_all() are for one thread.
  std::size_t apply(Experiment& experiment, Time now);
  /// Sends the answers of the commands that apply() took, and shows the board to later questions.
  /// Call it after the batch was written. Never blocks.
  void answer_all();
  /// Says that the end of this object must not wait for a disk that hangs.
  void end_soon() noexcept { ends_soon_ = true; }

 private:
  struct State;
  explicit StudyServer(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;  ///< a thread that hangs keeps it
  bool ends_soon_ = false;
};

}  // namespace troupe::tune
