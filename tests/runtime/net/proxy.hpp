/// A TCP proxy that can drop its connections, and raw sockets that play strangers.
///
///     test::Proxy proxy;                                   // runs on a thread of its own
///     std::string via = proxy.in_front_of("tcp://127.0.0.1:6500");
///     proxy.drop_all();                                    // bytes in flight are lost
#pragma once

#include "troupe/runtime/base/fd.hpp"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <list>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace troupe::test {

inline sockaddr_in loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

inline Fd connect_raw(const std::string& port) {
  Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in address = loopback(std::stoi(port));
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return Fd();
  return fd;
}

/// Holds all descriptors that this process may have, except for a few.
class Descriptors {
 public:
  explicit Descriptors(std::size_t spare) {
    getrlimit(RLIMIT_NOFILE, &before_);
    rlimit low = before_;
    low.rlim_cur = std::min<rlim_t>(512, low.rlim_max);
    setrlimit(RLIMIT_NOFILE, &low);
    while (Fd fd{open("/dev/null", O_RDONLY | O_CLOEXEC)}) held_.push_back(std::move(fd));
    held_.resize(held_.size() - std::min(spare, held_.size()));
  }
  ~Descriptors() { setrlimit(RLIMIT_NOFILE, &before_); }
  Descriptors(const Descriptors&) = delete;
  Descriptors& operator=(const Descriptors&) = delete;

 private:
  rlimit before_{};
  std::vector<Fd> held_;
};

/// Returns whether the other side has closed; skips the bytes that it sent before.
inline bool is_closed(int fd) {
  char sink[4096];
  while (true) {
    const ssize_t n = recv(fd, sink, sizeof sink, MSG_DONTWAIT);
    if (n > 0) continue;
    return n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
  }
}

/// Returns the ports of the listening TCP sockets of this process, found in /proc.
inline std::vector<std::string> listening_ports_of_this_process() {
  std::set<std::string> inodes;
  DIR* folder = opendir("/proc/self/fd");
  while (const dirent* entry = readdir(folder)) {
    char target[128] = {};
    const std::string path = std::string("/proc/self/fd/") + entry->d_name;
    if (readlink(path.c_str(), target, sizeof target - 1) > 8 &&
        std::strncmp(target, "socket:[", 8) == 0)
      inodes.insert(std::string(target + 8, std::strlen(target) - 9));
  }
  closedir(folder);
  std::vector<std::string> ports;
  FILE* table = std::fopen("/proc/net/tcp", "r");
  char line[512];
  while (table != nullptr && std::fgets(line, sizeof line, table) != nullptr) {
    unsigned port = 0, state = 0;
    unsigned long inode = 0;
    if (std::sscanf(line, " %*d: %*x:%x %*x:%*x %x %*s %*s %*s %*s %*s %lu", &port, &state,
                    &inode) == 3 &&
        state == 10 && inodes.count(std::to_string(inode)) != 0)
      ports.push_back(std::to_string(port));
  }
  if (table != nullptr) std::fclose(table);
  return ports;
}

class Proxy {
 public:
  Proxy() : wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), thread_([this] { run(); }) {}
  ~Proxy() {
    stop_ = true;
    wake();
    thread_.join();
  }

  /// Returns an address that leads to `address` through this proxy; the same one each time.
  std::string in_front_of(const std::string& address) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto known = routes_.find(address);
    if (known != routes_.end()) return known->second;
    Listener listener;
    listener.fd = Fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    listener.target = std::stoi(address.substr(address.rfind(':') + 1));
    sockaddr_in own = loopback(0);
    socklen_t size = sizeof own;
    if (bind(listener.fd.get(), reinterpret_cast<sockaddr*>(&own), size) != 0 ||
        listen(listener.fd.get(), 64) != 0 ||
        getsockname(listener.fd.get(), reinterpret_cast<sockaddr*>(&own), &size) != 0)
      return address;
    listeners_.push_back(std::move(listener));
    wake();
    return routes_[address] = "tcp://127.0.0.1:" + std::to_string(ntohs(own.sin_port));
  }
  /// Closes every connection with a reset; bytes on their way are lost.
  void drop_all() {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (Pair& pair : pairs_) pair.drop = true;
    wake();
  }
  std::size_t connections() const { return open_; }

 private:
  struct Listener {
    Fd fd;
    int target = 0;
  };
  struct Pair {
    Fd side[2];
    std::string waiting[2];  // bytes for side i
    bool drop = false;
  };
  void wake() {
    const std::uint64_t one = 1;
    (void)!write(wake_.get(), &one, sizeof one);
  }
  void run() {
    while (!stop_) {
      std::vector<pollfd> fds{{wake_.get(), POLLIN, 0}};
      {
        const std::lock_guard<std::mutex> lock(mutex_);
        for (Listener& l : listeners_) fds.push_back({l.fd.get(), POLLIN, 0});
        for (Pair& p : pairs_)
          for (int i : {0, 1})
            fds.push_back({p.side[i].get(),
                           static_cast<short>((p.waiting[1 - i].size() < 65536 ? POLLIN : 0) |
                                              (p.waiting[i].empty() ? 0 : POLLOUT)),
                           0});
      }
      ::poll(fds.data(), fds.size(), 1000);
      std::uint64_t drained;
      (void)!read(wake_.get(), &drained, sizeof drained);
      const std::lock_guard<std::mutex> lock(mutex_);
      accept_new();
      for (auto at = pairs_.begin(); at != pairs_.end();)
        at = carry(*at) ? std::next(at) : drop(at);
      open_ = pairs_.size();
    }
  }
  void accept_new() {
    for (Listener& listener : listeners_) {
      while (true) {
        Fd client(accept4(listener.fd.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (!client) break;
        Fd server = connect_raw(std::to_string(listener.target));
        if (!server) continue;
        fcntl(server.get(), F_SETFL, O_NONBLOCK);
        pairs_.emplace_back();
        pairs_.back().side[0] = std::move(client);
        pairs_.back().side[1] = std::move(server);
      }
    }
  }
  bool carry(Pair& pair) {
    if (pair.drop) return false;
    char buffer[65536];
    for (int i : {0, 1}) {
      std::string& out = pair.waiting[1 - i];
      if (out.size() < 65536) {
        const ssize_t n = recv(pair.side[i].get(), buffer, sizeof buffer, 0);
        if (n == 0 || (n < 0 && errno != EAGAIN)) return false;
        if (n > 0) out.append(buffer, static_cast<std::size_t>(n));
      }
      if (!out.empty()) {
        const ssize_t n = send(pair.side[1 - i].get(), out.data(), out.size(), MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN) return false;
        if (n > 0) out.erase(0, static_cast<std::size_t>(n));
      }
    }
    return true;
  }
  std::list<Pair>::iterator drop(std::list<Pair>::iterator at) {
    const linger reset{1, 0};
    for (Fd& side : at->side) setsockopt(side.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    return pairs_.erase(at);
  }

  Fd wake_;
  std::atomic<bool> stop_{false};
  std::atomic<std::size_t> open_{0};
  std::mutex mutex_;
  std::list<Listener> listeners_;
  std::map<std::string, std::string> routes_;
  std::list<Pair> pairs_;
  std::thread thread_;
};

}  // namespace troupe::test
