// A man in the middle: a TCP proxy in front of a door that knows where frames begin and end. A test
// decides what becomes of each.
#pragma once

#include "tests/runtime/net/proxy.hpp"
#include "troupe/actors/collective/tcp/internal/opening.hpp"
#include "troupe/actors/collective/tcp/internal/wire.hpp"
#include "troupe/runtime/base/units.hpp"

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <functional>
#include <list>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace troupe::collective {

class FrameProxy {
 public:
  /// Direction of bytes: from the end that connected, or to it.
  enum Way { forth, back };
  /// Gets each frame with its number in its direction; number 0 is the hello or the proof. Returns
  /// what goes on in its place. It runs on the proxy's thread.
  using Alter = std::function<std::vector<Blob>(Way, std::size_t number, Blob frame)>;
  static std::vector<Blob> pass(Way, std::size_t, Blob frame) { return {std::move(frame)}; }

  explicit FrameProxy(const std::string& door, Alter alter = pass, bool listens = true)
      : target_(door.substr(door.rfind(':') + 1)),
        alter_(std::move(alter)),
        wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    sockaddr_in own = test::loopback(0);
    socklen_t size = sizeof own;
    if (bind(listener_.get(), reinterpret_cast<sockaddr*>(&own), size) != 0 ||
        getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&own), &size) != 0)
      std::abort();
    address_ = "127.0.0.1:" + std::to_string(ntohs(own.sin_port));
    if (listens) listen_now();
    thread_ = std::thread([this] { run(); });
  }
  ~FrameProxy() {
    stops_ = true;
    wake();
    thread_.join();
  }
  const std::string& address() const { return address_; }
  /// Until then connections are refused.
  void listen_now() { listen(listener_.get(), 16); }
  /// Closes all connections.
  void cut() {
    cuts_ = true;
    wake();
  }
  /// Returns all bytes that came from one side.
  Blob seen(Way way) {
    const std::lock_guard lock(mutex_);
    return seen_[way];
  }

 private:
  struct Pair {
    Fd side[2];   // side[forth]: who connected; side[back]: the door
    Blob in[2];   // bytes by direction that are no whole frame yet
    Blob out[2];  // bytes by direction that are to be written
    std::size_t number[2] = {0, 0};
  };

  void wake() {
    const std::uint64_t one = 1;
    (void)!write(wake_.get(), &one, sizeof one);
  }

  void run() {
    while (!stops_) {
      std::vector<pollfd> fds{{wake_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
      for (Pair& pair : pairs_)
        for (const Way way : {forth, back})
          fds.push_back({pair.side[way].get(),
                         static_cast<short>(POLLIN | (pair.out[1 - way].empty() ? 0 : POLLOUT)),
                         0});
      ::poll(fds.data(), fds.size(), 20);
      std::uint64_t ignored = 0;
      (void)!read(wake_.get(), &ignored, sizeof ignored);
      if (cuts_.exchange(false)) pairs_.clear();
      while (Fd client{accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)}) {
        Fd door = test::connect_raw(target_);
        if (!door) continue;
        fcntl(door.get(), F_SETFL, O_NONBLOCK);
        internal::send_at_once(client.get());
        internal::send_at_once(door.get());
        pairs_.emplace_back();
        pairs_.back().side[forth] = std::move(client);
        pairs_.back().side[back] = std::move(door);
      }
      pairs_.remove_if([this](Pair& pair) { return !carry(pair, forth) || !carry(pair, back); });
    }
  }

  /// Carries bytes of one direction. Returns false when its sender has closed and all is written.
  bool carry(Pair& pair, Way way) {
    std::byte buffer[65536];
    ssize_t n = 0;
    while ((n = recv(pair.side[way].get(), buffer, sizeof buffer, 0)) > 0) {
      const std::lock_guard lock(mutex_);
      seen_[way].insert(seen_[way].end(), buffer, buffer + n);
      pair.in[way].insert(pair.in[way].end(), buffer, buffer + n);
    }
    const bool ended = n == 0 || errno != EAGAIN;
    Blob& in = pair.in[way];
    Blob& out = pair.out[way];
    for (std::size_t size; (size = frame_size(pair, way)) <= in.size();) {
      const auto cut = in.begin() + static_cast<std::ptrdiff_t>(size);
      for (const Blob& frame : alter_(way, pair.number[way]++, Blob(in.begin(), cut)))
        out.insert(out.end(), frame.begin(), frame.end());
      in.erase(in.begin(), cut);
    }
    if (ended) {  // what is left of a frame goes on, too
      out.insert(out.end(), in.begin(), in.end());
      in.clear();
    }
    const int to = pair.side[1 - way].get();
    while (!out.empty() && (n = send(to, out.data(), out.size(), MSG_NOSIGNAL)) > 0)
      out.erase(out.begin(), out.begin() + n);
    if (!out.empty() && errno != EAGAIN) return false;
    return !ended || !out.empty();
  }

  static std::size_t frame_size(const Pair& pair, Way way) {
    using namespace internal;
    if (pair.number[way] == 0) return way == forth ? sizeof(Hello) : sizeof(Proof);
    if (pair.in[way].size() < kFrameHead) return kFrameHead;
    return length_of(std::span<const std::byte, kFrameHead>(pair.in[way].data(), kFrameHead)) +
           kFrameOverhead;
  }

  const std::string target_;
  const Alter alter_;
  Fd wake_, listener_;
  std::string address_;
  std::atomic<bool> stops_{false}, cuts_{false};
  std::mutex mutex_;
  Blob seen_[2];
  std::list<Pair> pairs_;
  std::thread thread_;
};

}  // namespace troupe::collective
