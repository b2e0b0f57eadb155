#include "troupe/actors/collective/internal/assembly.hpp"
#include "troupe/actors/collective/internal/endpoint.hpp"
#include "troupe/actors/collective/internal/sockets.hpp"
#include "troupe/actors/collective/shm/rendezvous.hpp"
#include "troupe/runtime/base/back_off.hpp"
#include "troupe/runtime/base/deadline.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe::collective::internal {
namespace {

/// The wait for a first answer. A rank 0 that runs answers at once; a process that does not may be
/// another program.
constexpr Duration kAnswerWithin = std::chrono::seconds(2);

/// The side of a rank other than 0, on one thread.
class Guest {
 public:
  Guest(const Launch& launch, const Hello& mine, Time deadline)
      : launch_(launch),
        mine_(mine),
        deadline_(deadline),
        endpoints_(resolve(launch, deadline)),
        remark_("rank 0 did not answer at " + text_of(launch)) {}

  /// Returns the name of the socket where the memory is, or nullopt at the deadline.
  std::optional<std::string> join() {
    for (unsigned failures = 1; steady_now() < deadline_; ++failures) {
      for (const Endpoint& endpoint : endpoints_)
        if (auto name = try_at(endpoint)) return name;
      pause(back_off(failures, std::chrono::milliseconds(5), std::chrono::milliseconds(200)),
            deadline_);
    }
    return std::nullopt;
  }

  /// Returns why join() failed, as far as this rank knows.
  const std::string& remark() const noexcept { return remark_; }

 private:
  std::optional<std::string> try_at(const Endpoint& endpoint) {
    const Fd socket = connect_to(endpoint, soon());
    if (!socket) {
      if (errno != ECONNREFUSED || !heard_)
        remark_ = "rank 0 cannot be reached at " + text_of(launch_) + ": " + std::strerror(errno);
      return std::nullopt;
    }
    if (::send(socket.get(), &mine_, sizeof mine_, MSG_NOSIGNAL) !=
        static_cast<ssize_t>(sizeof mine_))
      return std::nullopt;
    return listen_to(socket);
  }

  std::optional<std::string> listen_to(const Fd& socket) {
    Reply reply;
    for (Time until = soon(); receive(socket, until, reply); until = deadline_) {
      std::string text = printable(reply.text, sizeof reply.text);
      switch (reply.status) {
        case Reply::waiting: note(text); break;
        case Reply::complete: return text;
        case Reply::refused:
          throw InvalidArgument(Code::invalid_argument, "rank 0 refuses this process: " + text);
        default: throw Unavailable(Code::unavailable, text);
      }
    }
    return std::nullopt;
  }

  /// Reads one reply. Returns false when the connection ends, when the bytes are no reply, or when
  /// none comes in time.
  bool receive(const Fd& socket, Time until, Reply& reply) {
    auto* bytes = reinterpret_cast<char*>(&reply);
    for (std::size_t received = 0; received < sizeof reply;) {
      if (!is_readable_by(socket, until)) return lose("does not answer as rank 0 does", until);
      const ssize_t n = ::recv(socket.get(), bytes + received, sizeof reply - received, 0);
      if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
      if (n <= 0) return lose("closed the connection", Time{});
      received += static_cast<std::size_t>(n);
    }
    if (reply.magic == kGreetingMagic && reply.version == kGreetingVersion) return true;
    return lose("does not answer as rank 0 does", Time{});
  }

  /// Records why the connection was lost, and returns false. At this rank's own deadline it keeps
  /// rank 0's last message, which explains more.
  bool lose(const char* what, Time until) {
    if (until != deadline_ || !heard_)
      note("the process that listens at " + text_of(launch_) + " " + what);
    return false;
  }

  void note(std::string what) {
    remark_ = std::move(what);
    heard_ = true;
  }

  Time soon() const { return std::min(deadline_, deadline_after(steady_now(), kAnswerWithin)); }

  const Launch& launch_;
  const Hello& mine_;
  Time deadline_;
  std::vector<Endpoint> endpoints_;
  std::string remark_;
  bool heard_ = false;  // a process listens there, and remark_ is about it
};

}  // namespace

Fd assemble_as_guest(const Launch& launch, const Hello& mine, Duration timeout) {
  const Time deadline = deadline_after(steady_now(), timeout);
  Guest guest(launch, mine, deadline);
  const auto name = guest.join();
  if (!name)
    throw Unavailable(Code::unavailable, guest.remark() + " within " + pause_text(timeout));
  try {
    return fetch_group(*name, share_deadline(deadline, steady_now()));
  } catch (const TimedOut&) {
    throw Unavailable(
        Code::unavailable,
        "rank 0 at " + text_of(launch) + " did not hand the memory out, though all ranks had met");
  }
}

Fd assemble(const Launch& launch, const MeshShape& shape, Duration timeout) {
  const Hello mine = hello_of(launch, shape);
  return launch.rank == 0 ? assemble_as_host(launch, mine, timeout)
                          : assemble_as_guest(launch, mine, timeout);
}

}  // namespace troupe::collective::internal
