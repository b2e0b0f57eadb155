/// The zygote: the job's program, started once per job and node and stopped at enter(). Workers are
/// forked from it, so that they start with the program loaded.
///
/// It has one thread, because fork keeps only the calling thread. Its parent, the agent, sends an
/// order with the worker's socket. The zygote forks, reports the pid, and later reports how the
/// worker ended.
///
/// Any number of orders and ends may come at once. A ZygoteLink sends at most kOrdersUnderWay
/// unanswered orders and keeps the others. While a report waits for room in the socket, the zygote
/// reads nothing: orders stay in the socket, and dead workers stay zombies.
///
///     agent:  ZygoteLink link(socket); link.fork_worker(token, std::move(theirs));
///             poll(link.fd(), link.events());
///             for (auto& event : link.read()) …          // forked, exited
#pragma once

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/os/local_socket.hpp"
#include "troupe/runtime/os/output_pipes.hpp"

#include <cstdint>
#include <deque>
#include <vector>

namespace troupe::os {

inline constexpr std::size_t kOrdersUnderWay = 64;  ///< unanswered orders of one zygote
/// A worker that has not ended by itself this long after it was told, or after its agent's end, is
/// killed. Longer than its exit handlers may take (client/worker_end.hpp).
inline constexpr Duration kWorkersEnd = std::chrono::milliseconds(2250);

struct ZygoteEvent {
  enum class Kind : std::uint32_t {
    ready = 1,
    forked = 2,
    exited = 3,
    failed = 4,
    note = 5
  } kind = Kind::ready;
  std::uint64_t token = 0;
  std::int32_t pid = 0;
  std::int32_t status = 0;  ///< exited: as waitpid gives it; failed: errno
};

/// The agent's end of the socket.
class ZygoteLink {
 public:
  ZygoteLink() = default;
  explicit ZygoteLink(Fd socket) : socket_(std::move(socket)) {}
  int fd() const noexcept { return socket_.fd(); }
  explicit operator bool() const noexcept { return static_cast<bool>(socket_); }
  /// The events that fd() must be polled for.
  short events() const noexcept { return socket_.events(); }
  /// Orders a worker that gets this socket and this output; without an output it writes to that of
  /// the zygote. The order is sent at once, or when earlier orders are answered. Does not block.
  /// Returns false when the zygote is gone.
  bool fork_worker(std::uint64_t token, Fd socket, OutputEnds output = {});
  /// Returns all events that have arrived. Sets `gone` when the zygote has died.
  std::vector<ZygoteEvent> read(bool& gone);

 private:
  struct Order {
    std::uint64_t token = 0;
    Fd socket;
    OutputEnds output;
  };
  bool send_orders();

  LocalSocket socket_;
  std::deque<Order> waiting_;
  std::size_t under_way_ = 0;
};

/// What a forked worker gets from its agent.
struct Forked {
  Fd socket;
  std::uint64_t token = 0;
  Fd page;  ///< of its ProcessPage; may be missing
};
/// Runs the zygote. It returns in each forked child and never in the zygote itself.
Forked run_zygote(Fd socket);

}  // namespace troupe::os
