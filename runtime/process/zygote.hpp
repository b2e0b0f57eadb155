/// The zygote: the user's program, started once per node and stopped at enter(), from which workers
/// are forked warm.
///
/// Single-threaded by design: fork keeps only the calling thread. Its parent, the agent, sends an
/// order with the worker's socket; the zygote forks and reports the pid, later how the worker
/// ended.
///
///     agent:  ZygoteLink link(socket); link.fork_worker(token, std::move(theirs));
///             for (auto& event : link.read()) …          // forked, exited
#pragma once

#include "troupe/runtime/process/local_socket.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace troupe::process {

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
  /// False when the zygote is gone.
  bool fork_worker(std::uint64_t token, int socket);
  /// Everything that has come; sets `gone` when the zygote has died.
  std::vector<ZygoteEvent> read(bool& gone);

 private:
  LocalSocket socket_;
};

/// The zygote's life. In each forked child it returns the worker's socket and token; in the zygote
/// it never returns.
struct Forked {
  Fd socket;
  std::uint64_t token = 0;
};
Forked run_zygote(Fd socket);

}  // namespace troupe::process
