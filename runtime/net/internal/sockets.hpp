/// Makes the sockets of a transport. Each one uses CURVE, has bounds, and is watched by one epoll
/// descriptor.
///
///     Sockets sockets(keys, high_water_mark);
///     Channel door = sockets.serve(ZMQ_ROUTER, "door", kMaxDoorMessage, Kind::door, {});
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

/// A socket, the monitor that reports its connections, and the ids of both in the epoll set.
struct Channel {
  Socket socket, monitor;
  std::uint64_t watch = 0, monitor_watch = 0;
  explicit operator bool() const noexcept { return static_cast<bool>(socket); }
};

/// One event of a monitor.
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

  /// Makes a socket that answers CURVE handshakes under that ZAP domain. It is not bound yet.
  /// serve() and dial() return an empty Channel when no descriptor is left.
  Channel serve(int type, const std::string& domain, std::size_t max_message, Watched kind,
                NodeId node);
  /// Makes a socket that proves the keys `as` to the holder of `server`. It is not connected yet.
  Channel dial(const PublicKey& server, const CurveKeys& as, std::size_t max_message, Watched kind,
               NodeId node, bool queue_before_connected);
  void close(Channel& channel);
  static constexpr const char* kNoneLeft =
      "no socket is left: this process has as many open files as it may (ulimit -n)";

  std::uint64_t watch(int fd, Watched kind, NodeId node);
  const Watch* find(std::uint64_t id) const;
  /// Returns the ids of sockets that may have input, in order. Does not wait.
  std::vector<std::uint64_t> ready();
  /// Input is left in this socket: ready() returns it again without a signal.
  void again(std::uint64_t id) { dirty_.insert(id); }
  /// No input is left in this socket.
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
