/// Owning wrappers of ZeroMQ's C sockets; the only header that includes zmq.h. All calls are
/// non-blocking.
///
///     internal::Context context;  internal::Socket door(context, ZMQ_ROUTER);
///     door.set(ZMQ_CURVE_SERVER, 1);  if (!door.bind("tcp://127.0.0.1:*")) report(door.error());
///     epoll.add(door.fd());           // readable: receive until door.readable() is false
///
/// ZMQ_FD reports edges of an inner mailbox, not messages. After it fired, and after every send,
/// call readable() until it returns false, or receive() until it finds nothing. Both read the
/// mailbox to its end, so that the next message fires the descriptor again.
#pragma once

#include "troupe/runtime/base/fd.hpp"
#include "troupe/runtime/base/units.hpp"

#include <zmq.h>
#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::net::internal {

class Context {
 public:
  Context() : raw_(zmq_ctx_new()) {
    zmq_ctx_set(raw_, ZMQ_IO_THREADS, 1);
    zmq_ctx_set(raw_, ZMQ_MAX_SOCKETS, 60000);  // two for each peer, monitors included
    zmq_ctx_set(raw_, ZMQ_IPV6, 0);
  }
  ~Context() { zmq_ctx_term(raw_); }  // all sockets are closed; waits a second at most
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  void* raw() const noexcept { return raw_; }

 private:
  void* raw_;
};

/// One part of a received message; valid until destroyed.
class Part {
 public:
  Part() noexcept { zmq_msg_init(&raw_); }
  ~Part() { zmq_msg_close(&raw_); }
  Part(Part&& other) noexcept {
    zmq_msg_init(&raw_);
    zmq_msg_move(&raw_, &other.raw_);
  }
  Part& operator=(Part&&) = delete;
  BlobView bytes() noexcept {
    return {static_cast<const std::byte*>(zmq_msg_data(&raw_)), zmq_msg_size(&raw_)};
  }
  std::string_view text() noexcept {
    return {static_cast<const char*>(zmq_msg_data(&raw_)), zmq_msg_size(&raw_)};
  }
  bool more() const noexcept { return zmq_msg_more(&raw_) != 0; }
  /// Returns a property that the ZAP reply or the connection set, such as "User-Id".
  std::string_view property(const char* name) noexcept {
    const char* value = zmq_msg_gets(&raw_, name);
    return value != nullptr ? value : "";
  }
  zmq_msg_t* raw() noexcept { return &raw_; }

 private:
  zmq_msg_t raw_;
};

class Socket {
 public:
  Socket() noexcept = default;
  Socket(const Context& context, int type) : raw_(zmq_socket(context.raw(), type)) {
    set(ZMQ_LINGER, 0);
  }
  Socket(Socket&& other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
  Socket& operator=(Socket&& other) noexcept {
    if (this != &other) {
      close();
      raw_ = std::exchange(other.raw_, nullptr);
    }
    return *this;
  }
  ~Socket() { close(); }
  void close() noexcept {
    if (raw_ != nullptr) zmq_close(std::exchange(raw_, nullptr));
  }
  explicit operator bool() const noexcept { return raw_ != nullptr; }

  bool set(int option, int value) noexcept {
    return zmq_setsockopt(raw_, option, &value, sizeof value) == 0;
  }
  bool set(int option, std::int64_t value) noexcept {
    return zmq_setsockopt(raw_, option, &value, sizeof value) == 0;
  }
  bool set(int option, const void* data, std::size_t size) noexcept {
    return zmq_setsockopt(raw_, option, data, size) == 0;
  }
  bool bind(const std::string& endpoint) noexcept { return zmq_bind(raw_, endpoint.c_str()) == 0; }
  bool connect(const std::string& endpoint) noexcept {
    return zmq_connect(raw_, endpoint.c_str()) == 0;
  }
  /// Returns the bound address, with bind's wildcards resolved.
  std::string endpoint() const {
    char text[256] = {};
    std::size_t size = sizeof text;
    zmq_getsockopt(raw_, ZMQ_LAST_ENDPOINT, text, &size);
    return text;
  }
  int fd() const noexcept {
    int fd = -1;
    std::size_t size = sizeof fd;
    zmq_getsockopt(raw_, ZMQ_FD, &fd, &size);
    return fd;
  }
  bool readable() const noexcept {
    int events = 0;
    std::size_t size = sizeof events;
    return zmq_getsockopt(raw_, ZMQ_EVENTS, &events, &size) == 0 && (events & ZMQ_POLLIN) != 0;
  }
  bool receive(Part& part) noexcept { return zmq_msg_recv(part.raw(), raw_, ZMQ_DONTWAIT) >= 0; }
  /// Receives all parts of one message; empty when there is none.
  std::vector<Part> receive_all() {
    std::vector<Part> parts;
    do {
      Part part;
      if (!receive(part)) return {};
      parts.push_back(std::move(part));
    } while (parts.back().more());
    return parts;
  }
  bool send(const void* data, std::size_t size, bool more = false) noexcept {
    return zmq_send(raw_, data, size, ZMQ_DONTWAIT | (more ? ZMQ_SNDMORE : 0)) >= 0;
  }
  bool send(Part&& part) noexcept { return zmq_msg_send(part.raw(), raw_, ZMQ_DONTWAIT) >= 0; }
  bool monitor(const char* endpoint, int events) noexcept {
    return zmq_socket_monitor(raw_, endpoint, events) == 0;
  }
  static std::string error() { return zmq_strerror(zmq_errno()); }

 private:
  void* raw_ = nullptr;
};

}  // namespace troupe::net::internal
