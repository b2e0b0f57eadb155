/// The zygote: the user's program, started once per node and stopped at enter(), from which workers
/// are forked warm.
///
/// Single-threaded by design: fork keeps only the calling thread. Its parent, the agent, sends an
/// order with the worker's socket; the zygote forks and reports the pid, later how the worker
/// ended.
///
/// Any number of orders and ends may come at once. The link has kOrdersUnderWay orders unanswered
/// and keeps the others. While a report waits for room the zygote takes in nothing: orders stay in
/// the socket, and the dead stay zombies.
///
///     agent:  ZygoteLink link(socket); link.fork_worker(token, std::move(theirs));
///             poll(link.fd(), link.events());
///             for (auto& event : link.read()) …          // forked, exited
#pragma once

#include "troupe/runtime/os/local_socket.hpp"

#include <cstdint>
#include <deque>
#include <vector>

namespace troupe::os {

inline constexpr std::size_t kOrdersUnderWay = 64;  ///< of one zygote, not answered yet

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

/// The agent's end.
class ZygoteLink {
 public:
  ZygoteLink() = default;
  explicit ZygoteLink(Fd socket) : socket_(std::move(socket)) {}
  int fd() const noexcept { return socket_.fd(); }
  explicit operator bool() const noexcept { return static_cast<bool>(socket_); }
  /// What fd() is polled for.
  short events() const noexcept { return socket_.events(); }
  /// Orders a worker that gets this socket; sent at once or when earlier ones are answered. Does
  /// not block. False when the zygote is gone.
  bool fork_worker(std::uint64_t token, Fd socket);
  /// Everything that has come; sets `gone` when the zygote has died.
  std::vector<ZygoteEvent> read(bool& gone);

 private:
  struct Order {
    std::uint64_t token = 0;
    Fd socket;
  };
  bool send_orders();

  LocalSocket socket_;
  std::deque<Order> waiting_;
  std::size_t under_way_ = 0;
};

/// The zygote's life. In each forked child it returns the worker's socket and token; in the zygote
/// it never returns.
struct Forked {
  Fd socket;
  std::uint64_t token = 0;
};
Forked run_zygote(Fd socket);

}  // namespace troupe::os
