/// The ZAP handler (ZeroMQ RFC 27) of one context: it decides which keys may finish a CURVE
/// handshake. A transport owns one.
///
///     Gatekeeper gate(context);                       // before the first bind
///     gate.admit(key, Role::node, Time::max());
///     on gate.fd() readable: gate.answer(now);        // in the event loop that owns the sockets
///
/// It runs in the event loop of its transport and not in a thread of its own. A revocation and the
/// closing of the peer's socket are then one step, and the list needs no lock. A stalled loop
/// delays handshakes only, because libzmq's I/O thread does not wait for the answer.
#pragma once

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/net/internal/zmq_socket.hpp"
#include "troupe/runtime/net/transport.hpp"

#include <deque>
#include <map>

namespace troupe::net::internal {

/// The ZAP domain of the door, and that of the socket that only one peer may use.
inline const char kDoorDomain[] = "door";
std::string peer_domain(const PublicKey& key);

class Gatekeeper {
 public:
  struct Admission {
    Role role = Role::node;
    Time expires = Time::max();
  };

  explicit Gatekeeper(const Context& context);
  bool bound() const noexcept { return bound_; }
  int fd() const noexcept { return socket_.fd(); }

  void admit(const PublicKey& key, Role role, Time expires) { admitted_[key] = {role, expires}; }
  void revoke(const PublicKey& key) { admitted_.erase(key); }
  /// Returns the admission of a key; null when there is none or it has expired.
  const Admission* find(const PublicKey& key, Time now) const;
  /// Answers all waiting requests.
  void answer(Time now);

  std::uint64_t refused() const noexcept { return refused_; }
  /// Returns the refusals since the last call, oldest first; at most the last 64.
  std::deque<Refused> take_audit() { return std::exchange(audit_, {}); }

 private:
  bool judge(std::vector<Part>& request, Time now, PublicKey& key, std::string& why) const;

  Socket socket_;
  bool bound_ = false;
  std::map<PublicKey, Admission> admitted_;
  std::uint64_t refused_ = 0;
  std::deque<Refused> audit_;
};

}  // namespace troupe::net::internal
