// Links for tests of groups over nodes: frames in clear over pairs of Unix sockets, which do not
// block. PlainLinks serves all ranks of a world, as threads of one process or, when their pairs are
// made before, as processes.
#pragma once

#include "troupe/actors/collective/nodes/link.hpp"
#include "troupe/runtime/base/fd.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <utility>
#include <vector>

namespace troupe::collective {

class PlainLink final : public Link {
 public:
  explicit PlainLink(Fd socket) : socket_(std::move(socket)) {}
  void advance() noexcept override {
    write();
    read();
  }
  pollfd watched() const noexcept override {
    short events = 0;
    if (!has_frame() && state_ == State::open) events |= POLLIN;
    if (!is_flushed()) events |= POLLOUT;
    return {events != 0 ? socket_.get() : -1, events, 0};
  }
  bool can_send() const noexcept override { return out_.size() - written_ < kMaxFrame; }
  void send(FrameKind kind, std::span<const std::byte> bytes) noexcept override {
    const Head head{static_cast<std::uint32_t>(bytes.size()), static_cast<std::uint32_t>(kind)};
    const auto* first = reinterpret_cast<const std::byte*>(&head);
    if (written_ != 0) out_.erase(out_.begin(), out_.begin() + static_cast<long>(written_));
    written_ = 0;
    out_.insert(out_.end(), first, first + sizeof head);
    out_.insert(out_.end(), bytes.begin(), bytes.end());
    write();
  }
  bool is_flushed() const noexcept override { return written_ == out_.size() || broken_; }
  bool has_frame() const noexcept override {
    return came_ >= sizeof(Head) && came_ - sizeof(Head) >= head().size;
  }
  Frame front() const noexcept override {
    return {static_cast<FrameKind>(head().kind), {in_.data() + sizeof(Head), head().size}};
  }
  void pop() noexcept override {
    const std::size_t frame = sizeof(Head) + head().size;
    std::memmove(in_.data(), in_.data() + frame, came_ - frame);
    came_ -= frame;
    read();
  }
  State state() const noexcept override { return state_; }
  Code code() const noexcept override { return Code::worker_died; }
  std::string why() const override { return state_ == State::closed ? "its stream ended" : ""; }

 private:
  struct Head {
    std::uint32_t size = 0, kind = 0;
  };
  Head head() const noexcept {
    Head head;
    std::memcpy(&head, in_.data(), sizeof head);
    return head;
  }
  void write() noexcept {
    while (!is_flushed()) {
      const ssize_t n = ::send(socket_.get(), out_.data() + written_, out_.size() - written_,
                               MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno != EAGAIN) broken_ = true;
      if (n <= 0) return;
      written_ += static_cast<std::size_t>(n);
    }
  }
  /// Reads until a frame is whole.
  void read() noexcept {
    while (!has_frame() && state_ == State::open) {
      const std::size_t want =
          came_ < sizeof(Head) ? sizeof(Head) - came_ : sizeof(Head) + head().size - came_;
      const ssize_t n = ::recv(socket_.get(), in_.data() + came_, want, MSG_DONTWAIT);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno == EAGAIN) return;
      if (n <= 0)
        state_ = State::closed;
      else
        came_ += static_cast<std::size_t>(n);
    }
  }

  Fd socket_;
  State state_ = State::open;
  bool broken_ = false;
  std::vector<std::byte> out_;
  std::size_t written_ = 0;
  std::vector<std::byte> in_ = std::vector<std::byte>(sizeof(Head) + kMaxFrame);
  std::size_t came_ = 0;
};

/// The links of a world. Any thread.
class PlainLinks : public std::enable_shared_from_this<PlainLinks> {
 public:
  /// `buffer`: bytes of a socket's buffers; 0: those of the system.
  explicit PlainLinks(int buffer = 0) : buffer_(buffer) {}

  /// Returns rank `rank`'s source.
  std::shared_ptr<LinkSource> source(int rank) {
    return std::make_shared<Source>(shared_from_this(), rank);
  }

  /// Makes the pairs of the whole group's line and of its pairs, before ranks become processes.
  void make_for_processes(int ranks) {
    for (int a = 0; a < ranks; ++a)
      for (int b = a + 1; b < ranks; ++b)
        for (const std::uint32_t use : {0u, 1u}) make({0, 0, use, a, b});
  }
  /// Closes the ends of the other ranks, in the process of a rank; -1: all ends.
  void keep_only(int rank) {
    for (auto& [key, ends] : made_) {
      if (std::get<3>(key) != rank) ends[0].reset();
      if (std::get<4>(key) != rank) ends[1].reset();
    }
  }
  /// Ends all streams between two ranks, as the death of a rank does.
  void cut() {
    const std::lock_guard lock(mutex_);
    for (const int socket : taken_) ::shutdown(socket, SHUT_RDWR);
  }

 private:
  using Key = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, int, int>;
  class Source final : public LinkSource {
   public:
    Source(std::shared_ptr<PlainLinks> links, int rank) : links_(std::move(links)), rank_(rank) {}
    std::unique_ptr<Link> link(const LinkName& name, int peer) override {
      return std::make_unique<PlainLink>(links_->take(name, rank_, peer));
    }

   private:
    std::shared_ptr<PlainLinks> links_;
    int rank_;
  };

  std::array<Fd, 2>& make(const Key& key) {
    std::array<Fd, 2>& ends = made_[key];
    int pair[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0)
      std::abort();
    for (const int end : pair)
      if (buffer_ != 0) {
        ::setsockopt(end, SOL_SOCKET, SO_SNDBUF, &buffer_, sizeof buffer_);
        ::setsockopt(end, SOL_SOCKET, SO_RCVBUF, &buffer_, sizeof buffer_);
      }
    ends = {Fd(pair[0]), Fd(pair[1])};
    return ends;
  }
  Fd take(const LinkName& name, int rank, int peer) {
    const std::lock_guard lock(mutex_);
    const Key key{name.first, name.lane, name.use, std::min(rank, peer), std::max(rank, peer)};
    const auto found = made_.find(key);
    std::array<Fd, 2>& ends = found == made_.end() ? make(key) : found->second;
    Fd& mine = ends[rank < peer ? 0 : 1];
    if (!mine) std::abort();  // each name and peer is asked for once
    taken_.push_back(mine.get());
    return std::move(mine);
  }

  int buffer_;
  std::mutex mutex_;
  std::map<Key, std::array<Fd, 2>> made_;
  std::vector<int> taken_;  // while all links live
};

}  // namespace troupe::collective
