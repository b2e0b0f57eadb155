#include "troupe/runtime/net/internal/sockets.hpp"

#include <fcntl.h>
#include <sys/epoll.h>

namespace troupe::net::internal {
namespace {

constexpr int kHandshakeMs = 5000;
constexpr int kAcknowledgedWithinMs = 3000;
constexpr int kKeepaliveAfterS = 3, kKeepaliveEveryS = 1, kKeepaliveTimes = 3;
constexpr int kReconnectMs = 50;
constexpr int kReconnectMostMs = 1000;
constexpr int kBacklog = 512;
constexpr int kReceiveHighWaterMark = 128;  // unread messages of one peer

}  // namespace

Sockets::Sockets(const CurveKeys& keys, int high_water_mark)
    : epoll_(epoll_create1(EPOLL_CLOEXEC)), keys_(keys), high_water_mark_(high_water_mark) {
  TROUPE_ASSERT(static_cast<bool>(epoll_), "no descriptor is left for epoll");
}

void Sockets::bound_everything(Socket& socket, std::size_t max_message) {
  socket.set(ZMQ_MAXMSGSIZE, static_cast<std::int64_t>(max_message));
  socket.set(ZMQ_HANDSHAKE_IVL, kHandshakeMs);
  // The kernel detects a machine that is gone: by unacknowledged segments, or by TCP keepalive when
  // none are on their way. The Link detects a silent process. ZMTP heartbeats are off, because they
  // abort libzmq 4.3.4 when a connection with unread messages fails before the next heartbeat.
  socket.set(ZMQ_TCP_MAXRT, kAcknowledgedWithinMs);
  socket.set(ZMQ_TCP_KEEPALIVE, 1);
  socket.set(ZMQ_TCP_KEEPALIVE_IDLE, kKeepaliveAfterS);
  socket.set(ZMQ_TCP_KEEPALIVE_INTVL, kKeepaliveEveryS);
  socket.set(ZMQ_TCP_KEEPALIVE_CNT, kKeepaliveTimes);
  socket.set(ZMQ_SNDHWM, high_water_mark_);
  socket.set(ZMQ_RCVHWM, kReceiveHighWaterMark);
  socket.set(ZMQ_BACKLOG, kBacklog);
  socket.set(ZMQ_RECONNECT_IVL, kReconnectMs);
  socket.set(ZMQ_RECONNECT_IVL_MAX, kReconnectMostMs);
}

Channel Sockets::serve(int type, const std::string& domain, std::size_t max_message, Watched kind,
                       NodeId node) {
  Channel channel;
  channel.socket = Socket(context_, type);
  if (!channel) return channel;
  bound_everything(channel.socket, max_message);
  const bool secure = channel.socket.set(ZMQ_CURVE_SERVER, 1) &&
                      channel.socket.set(ZMQ_CURVE_SECRETKEY, keys_.secret_key.data(), 32) &&
                      channel.socket.set(ZMQ_ZAP_DOMAIN, domain.data(), domain.size());
  // A domain makes libzmq ask the ZAP handler, which is already bound in this context (NET-5).
  TROUPE_ASSERT(secure && !domain.empty(), "this libzmq cannot do CURVE");
  attach(channel, kind, node);
  // bind() makes libzmq list the network interfaces, and libzmq aborts the process when it gets no
  // descriptor for that. So check that one is left.
  if (!Fd(open("/dev/null", O_RDONLY | O_CLOEXEC))) close(channel);
  return channel;
}

Channel Sockets::dial(const PublicKey& server, const CurveKeys& as, std::size_t max_message,
                      Watched kind, NodeId node, bool queue_before_connected) {
  Channel channel;
  channel.socket = Socket(context_, ZMQ_DEALER);
  if (!channel) return channel;
  bound_everything(channel.socket, max_message);
  channel.socket.set(ZMQ_IMMEDIATE, queue_before_connected ? 0 : 1);
  const bool secure = channel.socket.set(ZMQ_CURVE_SERVERKEY, server.bytes.data(), 32) &&
                      channel.socket.set(ZMQ_CURVE_PUBLICKEY, as.public_key.bytes.data(), 32) &&
                      channel.socket.set(ZMQ_CURVE_SECRETKEY, as.secret_key.data(), 32);
  TROUPE_ASSERT(secure, "this libzmq cannot do CURVE");
  attach(channel, kind, node);
  return channel;
}

void Sockets::attach(Channel& channel, Watched kind, NodeId node) {
  channel.watch = watch(channel.socket.fd(), kind, node);
  if (kind == Watched::door) return;  // connections of a ROUTER do not belong to one peer
  const std::string name = "inproc://monitor-" + std::to_string(channel.watch);
  const bool tells = channel.socket.monitor(
      name.c_str(), ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED |
                        ZMQ_EVENT_HANDSHAKE_FAILED_AUTH | ZMQ_EVENT_CONNECT_RETRIED |
                        ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL);
  if (tells) channel.monitor = Socket(context_, ZMQ_PAIR);
  if (!channel.monitor)
    return close(channel);  // without it the transport would not see connections
  channel.monitor.connect(name);
  const auto monitor_kind = static_cast<Watched>(static_cast<int>(kind) + 1);
  channel.monitor_watch = watch(channel.monitor.fd(), monitor_kind, node);
}

void Sockets::close(Channel& channel) {
  unwatch(channel.monitor_watch);
  unwatch(channel.watch);
  channel.socket.monitor(nullptr, 0);
  channel.monitor.close();
  channel.socket.close();
}

std::uint64_t Sockets::watch(int fd, Watched kind, NodeId node) {
  const std::uint64_t id = ++last_id_;
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = id;
  epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event);
  watches_[id] = {kind, node, fd};
  dirty_.insert(id);  // input from before the watch may give no further signal
  return id;
}

void Sockets::unwatch(std::uint64_t& id) {
  const auto at = watches_.find(id);
  if (at == watches_.end()) return;
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, at->second.fd, nullptr);
  watches_.erase(at);
  dirty_.erase(id);
  id = 0;
}

const Sockets::Watch* Sockets::find(std::uint64_t id) const {
  const auto at = watches_.find(id);
  return at != watches_.end() ? &at->second : nullptr;
}

std::vector<std::uint64_t> Sockets::ready() {
  epoll_event events[64];
  const int n = epoll_wait(epoll_.get(), events, 64, 0);
  for (int i = 0; i < n; ++i) dirty_.insert(events[i].data.u64);
  std::vector<std::uint64_t> ids(dirty_.begin(), dirty_.end());
  dirty_.clear();
  return ids;
}

std::vector<ConnectionNews> Sockets::news(Socket& monitor) {
  std::vector<ConnectionNews> all;
  while (monitor.readable()) {
    std::vector<Part> parts = monitor.receive_all();
    if (parts.size() != 2 || parts[0].bytes().size() < 2) continue;
    std::uint16_t event = 0;
    std::memcpy(&event, parts[0].bytes().data(), sizeof event);
    ConnectionNews item;
    item.address = std::string(parts[1].text());
    switch (event) {
      case ZMQ_EVENT_HANDSHAKE_SUCCEEDED: item.kind = ConnectionNews::up; break;
      case ZMQ_EVENT_DISCONNECTED: item.kind = ConnectionNews::down; break;
      case ZMQ_EVENT_HANDSHAKE_FAILED_AUTH: item.kind = ConnectionNews::refused_by_peer; break;
      case ZMQ_EVENT_CONNECT_RETRIED:
      case ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL:
      case ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL: item.kind = ConnectionNews::failed; break;
      default: break;
    }
    all.push_back(std::move(item));
  }
  return all;
}

}  // namespace troupe::net::internal
