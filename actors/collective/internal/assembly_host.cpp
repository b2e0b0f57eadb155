#include "troupe/actors/collective/internal/assembly.hpp"
#include "troupe/actors/collective/internal/endpoint.hpp"
#include "troupe/actors/collective/internal/sockets.hpp"
#include "troupe/actors/collective/shm/rendezvous.hpp"
#include "troupe/actors/collective/shm/shm.hpp"
#include "troupe/runtime/base/back_off.hpp"
#include "troupe/runtime/base/deadline.hpp"
#include "troupe/runtime/base/standard_descriptors.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace troupe::collective::internal {
namespace {

/// Connections allowed beyond those of the ranks. Above that the oldest one without a complete
/// Hello is dropped.
constexpr std::size_t kStrangers = 64;

struct Visitor {
  Fd socket;
  Hello hello;
  std::size_t received = 0;  ///< bytes of hello
  bool is_rank = false;
};

/// The side of rank 0, on one thread.
class Host {
 public:
  Host(const Launch& launch, const Hello& mine, Time deadline)
      : launch_(launch),
        mine_(mine),
        deadline_(deadline),
        listeners_(listen_at(launch, deadline)),
        came_(static_cast<std::size_t>(launch.world), false) {}

  /// Waits until all ranks have come. Returns false at the deadline.
  bool gather() {
    while (missing() > 0) {
      if (!wait() || steady_now() >= deadline_) return false;
      for (std::size_t i = 0; i < guests_.size(); ++i)
        if (is_ready(listeners_.size() + i)) hear(guests_[i]);
      for (std::size_t i = 0; i < listeners_.size(); ++i)
        if (is_ready(i)) let_in(listeners_[i]);
      forget();
      if (std::exchange(changed_, false)) tell(Reply::waiting, who_is_missing());
    }
    return true;
  }

  void tell(Reply::Status status, const std::string& text) {
    const Reply reply = reply_of(status, text);
    for (Visitor& guest : guests_)
      if (guest.is_rank) send(guest, reply);
  }

  /// Returns "ranks 2, 3 of 4 did not come to 10.0.0.1:29500", or, when all came, the ranks that
  /// have left.
  std::string who_is_missing() const {
    const std::string never = absent(false);
    const std::string of = " of " + std::to_string(launch_.world);
    if (never.empty()) return absent(true) + of + " came to " + text_of(launch_) + " and left";
    return never + of + " did not come to " + text_of(launch_);
  }
  /// Returns text that may explain why ranks are missing.
  std::string remark() const {
    const std::string left = absent(true);
    const bool both = !left.empty() && !absent(false).empty();
    return (both ? "; " + left + " came and left" : "") + remark_;
  }

 private:
  int missing() const {
    const auto is_rank = [](const Visitor& guest) { return guest.is_rank; };
    return launch_.world - 1 -
           static_cast<int>(std::count_if(guests_.begin(), guests_.end(), is_rank));
  }

  const Visitor* holder_of(int rank) const {
    for (const Visitor& guest : guests_)
      if (guest.is_rank && guest.hello.rank == rank) return &guest;
    return nullptr;
  }

  /// Returns a list such as "ranks 2, 3": the ranks that never came, or, with `came`, those that
  /// have left.
  std::string absent(bool came) const {
    std::string list;
    int count = 0;
    for (int rank = 1; rank < launch_.world; ++rank) {
      if (came_[static_cast<std::size_t>(rank)] != came || holder_of(rank) != nullptr) continue;
      if (++count <= 16) list += (count == 1 ? "" : ", ") + std::to_string(rank);
    }
    if (count == 0) return "";
    if (count > 16) list += " and " + std::to_string(count - 16) + " more";
    return (count == 1 ? "rank " : "ranks ") + list;
  }

  bool wait() {
    polled_.clear();
    for (const Fd& listener : listeners_) polled_.push_back({listener.get(), POLLIN, 0});
    for (const Visitor& guest : guests_) polled_.push_back({guest.socket.get(), POLLIN, 0});
    return poll_until(polled_, deadline_) > 0;
  }
  bool is_ready(std::size_t index) const {
    return index < polled_.size() && polled_[index].revents != 0;
  }

  void let_in(const Fd& listener) {
    Fd socket = make_fd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket) {
      make_room(static_cast<std::size_t>(launch_.world) + kStrangers);
      guests_.push_back({.socket = std::move(socket), .hello = {}});
    } else if (is_shortage(errno)) {
      remark_ = std::string("; rank 0 could not let some in: ") + std::strerror(errno);
      make_room(guests_.size());
      pause(std::chrono::milliseconds(5), deadline_);  // the connection stays, so poll() would spin
    }
  }

  /// Drops the oldest connection that is no rank's when there are `limit` guests.
  void make_room(std::size_t limit) {
    if (guests_.size() < limit) return;
    const auto is_stranger = [](const Visitor& guest) { return !guest.is_rank; };
    const auto oldest = std::find_if(guests_.begin(), guests_.end(), is_stranger);
    if (oldest != guests_.end()) guests_.erase(oldest);
  }

  void hear(Visitor& guest) {
    char rest;
    void* into = guest.is_rank ? &rest : reinterpret_cast<char*>(&guest.hello) + guest.received;
    const std::size_t room = guest.is_rank ? 1 : sizeof(Hello) - guest.received;
    const ssize_t n = ::recv(guest.socket.get(), into, room, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0 || guest.is_rank) return drop(guest);  // a rank sends nothing after its Hello
    guest.received += static_cast<std::size_t>(n);
    if (guest.received >= sizeof guest.hello.magic && guest.hello.magic != kGreetingMagic)
      return drop(guest);
    if (guest.received < sizeof(Hello)) return;
    if (has_left(guest)) return drop(guest);
    judge(guest);
  }

  /// Returns whether the guest has closed the connection. One that waited too long for an answer
  /// may have sent its Hello, closed the connection and tried another address.
  static bool has_left(const Visitor& guest) {
    char rest;
    return ::recv(guest.socket.get(), &rest, 1, MSG_PEEK) == 0;
  }

  /// Drops an earlier connection of the same process, which has the same nonce.
  void take_over(const Visitor& guest) {
    for (Visitor& other : guests_)
      if (other.is_rank && other.hello.rank == guest.hello.rank &&
          other.hello.nonce == guest.hello.nonce)
        drop(other);
  }

  void judge(Visitor& guest) {
    std::string why = objection(mine_, guest.hello);
    if (why.empty()) {
      take_over(guest);
      if (const Visitor* holder = holder_of(guest.hello.rank))
        why = "the processes " + std::to_string(holder->hello.pid) + " and " +
              std::to_string(guest.hello.pid) + " are both rank " +
              std::to_string(guest.hello.rank) + ": give every process a RANK of its own";
    }
    if (why.empty()) {
      guest.is_rank = changed_ = true;
      came_[static_cast<std::size_t>(guest.hello.rank)] = true;
      return;
    }
    remark_ = "; refused: " + why;
    send(guest, reply_of(Reply::refused, why));
    drop(guest);
  }

  /// Sends a reply. A guest whose socket does not take the whole reply at once is dropped, and may
  /// connect again.
  void send(Visitor& guest, const Reply& reply) {
    if (!guest.socket) return;
    const ssize_t n = ::send(guest.socket.get(), &reply, sizeof reply, MSG_NOSIGNAL);
    if (n != static_cast<ssize_t>(sizeof reply)) drop(guest);
  }

  void drop(Visitor& guest) {
    changed_ = changed_ || guest.is_rank;
    guest.is_rank = false;
    guest.socket.reset();
  }
  void forget() {
    std::erase_if(guests_, [](const Visitor& guest) { return !guest.socket; });
  }

  const Launch& launch_;
  const Hello& mine_;
  Time deadline_;
  std::vector<Fd> listeners_;
  std::vector<Visitor> guests_;  // in the order in which they came
  std::vector<pollfd> polled_;
  std::vector<bool> came_;  // for each rank, whether it has ever come
  std::string remark_;      // why a connection was refused last
  bool changed_ = false;    // the missing ranks have changed since the last `waiting` reply
};

/// Makes the memory and the name of the socket where the other ranks fetch it. If the system gives
/// none, sends them `unavailable` and throws.
std::pair<Fd, std::string> offer(Host& host, const Launch& launch) {
  try {
    return {create_shm_group({.size = launch.world}), new_rendezvous_name()};
  } catch (const Error& error) {
    host.tell(Reply::unavailable, "rank 0: " + error.message());
    throw;
  }
}

}  // namespace

Fd assemble_as_host(const Launch& launch, const Hello& mine, Duration timeout) {
  const Time deadline = deadline_after(steady_now(), timeout);
  Host host(launch, mine, deadline);
  if (!host.gather()) {
    const std::string why =
        host.who_is_missing() + " within " + pause_text(timeout) + host.remark();
    host.tell(Reply::unavailable, why);
    throw Unavailable(Code::unavailable, why);
  }
  auto [memory, name] = offer(host, launch);
  host.tell(Reply::complete, name);
  try {
    share_group(name, memory, launch.world - 1, share_deadline(deadline, steady_now()));
  } catch (const TimedOut&) {
    throw Unavailable(Code::unavailable,
                      "some rank came to " + text_of(launch) + " and did not fetch the memory");
  }
  return std::move(memory);
}

}  // namespace troupe::collective::internal
