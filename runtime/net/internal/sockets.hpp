/// Makes the sockets of a transport: every one CURVE, bounded and watched by one epoll descriptor.
///
///     Sockets sockets(keys, high_water_mark);
///     Channel door = sockets.serve(ZMQ_ROUTER, "door", max_door_message, Kind::door, {});
///     if (!door.socket.bind(address)) ...;
///     for (std::uint64_t id : sockets.ready()) handle(*sockets.find(id));
#pragma once

#include "troupe/runtime/base/ids.hpp"
#include "troupe/runtime/net/internal/zmq_socket.hpp"
#include "troupe/runtime/net/keys.hpp"

#include <map>
#include <set>

namespace troupe::net::internal {

enum class Watched : std::uint8_t {
  gate,
  door,
  data,
  data_monitor,
  knock,
  knock_monitor,
  join,
  join_monitor
};

/// A socket, the monitor that tells of its connections, and their places in the epoll set.
struct Channel {
  Socket socket, monitor;
  std::uint64_t watch = 0, monitor_watch = 0;
  explicit operator bool() const noexcept { return static_cast<bool>(socket); }
};

/// One thing that a monitor said.
struct ConnectionNews {
  enum Kind { up, down, refused_by_peer, failed, other } kind = other;
  std::string address;
};

class Sockets {
 public:
  struct Watch {
    Watched kind;
    NodeId node;
    int fd;
  };

  Sockets(const CurveKeys& keys, int high_water_mark);

  /// A socket that answers CURVE handshakes under that ZAP domain; not bound yet. Empty, as what
  /// dial() returns: no descriptor is left.
  Channel serve(int type, const std::string& domain, std::size_t max_message, Watched kind,
                NodeId node);
  /// A socket that proves these keys to the holder of `server`; not connected yet.
  Channel dial(const PublicKey& server, const CurveKeys& as, std::size_t max_message, Watched kind,
               NodeId node, bool queue_before_connected);
  void close(Channel& channel);
  static constexpr const char* kNoneLeft =
      "no socket is left: this process has as many open files as it may (ulimit -n)";

  std::uint64_t watch(int fd, Watched kind, NodeId node);
  const Watch* find(std::uint64_t id) const;
  /// What may have something to read, in order; does not wait.
  std::vector<std::uint64_t> ready();
  /// Work is left in this one; ready() names it again without a signal.
  void again(std::uint64_t id) { dirty_.insert(id); }
  /// Nothing is left in this one after all.
  void done(std::uint64_t id) { dirty_.erase(id); }
  bool pending() const noexcept { return !dirty_.empty(); }

  static std::vector<ConnectionNews> news(Socket& monitor);
  const Context& context() const noexcept { return context_; }
  int fd() const noexcept { return epoll_.get(); }

 private:
  void bound_everything(Socket& socket, std::size_t max_message);
  void attach(Channel& channel, Watched kind, NodeId node);
  void unwatch(std::uint64_t& id);

  Context context_;
  Fd epoll_;
  const CurveKeys& keys_;
  int high_water_mark_;
  std::uint64_t last_id_ = 0;
  std::map<std::uint64_t, Watch> watches_;
  std::set<std::uint64_t> dirty_;
};

}  // namespace troupe::net::internal
