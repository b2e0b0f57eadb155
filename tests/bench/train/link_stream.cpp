#include "train/link_stream.hpp"

#include "tools.hpp"
#include "troupe/actors/collective/tcp/door.hpp"
#include "troupe/runtime/base/sealing/sealing.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace troupe::bench {
namespace {

constexpr std::size_t kFrame = std::size_t{256} << 10;
constexpr std::size_t kHead = 8;

int cpu_of_side(int side) {
  return possible(Placement::two_cpus) ? cpu_of(Placement::two_cpus, side)
                                       : cpu_of(Placement::one_cpu, side);
}

/// Reads or writes all of a small text on a blocking stream.
void put(int stream, const void* bytes, std::size_t size) {
  expect(::write(stream, bytes, size) == static_cast<ssize_t>(size), "a word to the other side");
}
void get(int stream, void* bytes, std::size_t size) {
  auto* at = static_cast<char*>(bytes);
  while (size > 0) {
    pollfd one{stream, POLLIN, 0};
    const bool came =
        ::poll(&one, 1, static_cast<int>(std::chrono::milliseconds(kBound).count())) == 1;
    const ssize_t n = came ? ::read(stream, at, size) : 0;
    expect(n > 0, "a word from the other side");
    at += n;
    size -= static_cast<std::size_t>(n);
  }
}

void await(pollfd watched) {
  int wait = static_cast<int>(std::chrono::milliseconds(kBound).count());
  if (watched.fd < 0) wait = 1;
  expect(::poll(&watched, 1, wait) > 0 || watched.fd < 0, "bytes to move");
}

Secret<32> key_from(int side) {
  Secret<32> key;
  std::fill_n(key.data(), key.size(), static_cast<std::byte>(side + 1));
  return key;
}

/// Returns a connection over loopback. Side 1 listens.
Fd connect_sides(int side, int stream) {
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* const raw = reinterpret_cast<sockaddr*>(&at);
  socklen_t size = sizeof at;
  Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (side == 1) {
    expect(::bind(fd.get(), raw, size) == 0 && ::listen(fd.get(), 1) == 0 &&
               ::getsockname(fd.get(), raw, &size) == 0,
           "a listening socket");
    put(stream, &at.sin_port, sizeof at.sin_port);
    fd = Fd(::accept4(fd.get(), nullptr, nullptr, SOCK_CLOEXEC));
  } else {
    get(stream, &at.sin_port, sizeof at.sin_port);
    expect(::connect(fd.get(), raw, size) == 0, "a connection");
  }
  const int on = 1;
  ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  expect(fd && ::fcntl(fd.get(), F_SETFL, O_NONBLOCK) == 0, "a connection that does not block");
  return fd;
}

/// One side of the floor: one frame that is being written, one that is being read.
class SealedSocket {
 public:
  SealedSocket(Fd fd, int side, std::size_t bytes, bool adds)
      : fd_(std::move(fd)),
        sealer_(key_from(side), FrameCipher::Use::seal),
        opener_(key_from(1 - side), FrameCipher::Use::open),
        slab_(bytes / sizeof(float), 1.0f),
        adds_(adds) {}

  void exchange() {
    const std::size_t bytes = slab_.size() * sizeof(float);
    sealed_ = opened_ = 0;
    while (opened_ < bytes || sealed_ < bytes || at_ < out_.size()) {
      const bool wrote = write(bytes), read_some = read();
      if (wrote || read_some) continue;
      const bool writes = at_ < out_.size();
      await({fd_.get(), static_cast<short>(POLLIN | (writes ? POLLOUT : 0)), 0});
    }
  }

 private:
  bool write(std::size_t bytes) {
    if (at_ == out_.size() && sealed_ < bytes) {
      const auto* from = reinterpret_cast<const std::byte*>(slab_.data()) + sealed_;
      sealer_.begin(std::span(out_).first<kHead>());
      sealer_.update(from, out_.data() + kHead, kFrame);
      sealer_.seal(std::span(out_).last<kSealTag>());
      sealed_ += kFrame;
      at_ = 0;
    }
    if (at_ == out_.size()) return false;
    const ssize_t n = ::send(fd_.get(), out_.data() + at_, out_.size() - at_, MSG_NOSIGNAL);
    expect(n > 0 || (n < 0 && errno == EAGAIN), "a socket to write to");
    at_ += n > 0 ? static_cast<std::size_t>(n) : 0;
    return n > 0;
  }

  bool read() {
    if (opened_ == slab_.size() * sizeof(float)) return false;
    const ssize_t n = ::recv(fd_.get(), in_.data() + have_, in_.size() - have_, 0);
    expect(n > 0 || (n < 0 && errno == EAGAIN), "a socket to read from");
    have_ += n > 0 ? static_cast<std::size_t>(n) : 0;
    if (have_ < in_.size()) return n > 0;
    std::byte* const text = in_.data() + kHead;
    opener_.begin(std::span(in_).first<kHead>());
    opener_.update(text, text, kFrame);
    expect(opener_.open(std::span<const std::byte>(in_).last<kSealTag>()), "an authentic frame");
    float* const own = slab_.data() + opened_ / sizeof(float);
    float theirs = 0;
    for (std::size_t i = 0; adds_ && i < kFrame / sizeof(float); ++i) {
      std::memcpy(&theirs, text + i * sizeof(float), sizeof theirs);
      own[i] += theirs;
    }
    opened_ += kFrame;
    have_ = 0;
    return true;
  }

  Fd fd_;
  FrameCipher sealer_, opener_;
  std::vector<float> slab_;
  bool adds_;
  std::array<std::byte, kHead + kFrame + kSealTag> out_{}, in_{};
  std::size_t sealed_ = 0, opened_ = 0, have_ = 0, at_ = out_.size();
};

/// One side of a link.
class LinkEnd {
 public:
  LinkEnd(int side, int stream, std::size_t bytes)
      : door_(met_door(side, stream)), slab_(bytes, std::byte{1}) {
    link_ = door_->link({}, 1 - side);
  }

  void exchange() {
    std::size_t sent = 0, come = 0;
    while (true) {
      link_->advance();
      if (come == slab_.size() && sent == slab_.size() && link_->is_flushed()) return;
      expect(link_->state() != collective::Link::State::closed, "a link that lives");
      const bool sends = sent < slab_.size() && link_->can_send();
      if (sends) {
        link_->send(collective::FrameKind::data, std::span(slab_).subspan(sent, kFrame));
        sent += kFrame;
      }
      const bool takes = come < slab_.size() && link_->has_frame();
      if (takes) {
        expect(link_->front().bytes.size() == kFrame && link_->front().bytes[7] == slab_[7],
               "the other side's bytes");
        link_->pop();
        come += kFrame;
      }
      if (!sends && !takes) await(link_->watched());
    }
  }

 private:
  std::shared_ptr<collective::Door> door_;
  std::vector<std::byte> slab_;
  std::unique_ptr<collective::Link> link_;
};

}  // namespace

Exchange::Exchange(const std::function<std::function<void()>(int, int)>& connect) {
  int ends[2];
  expect(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, "a pair of sockets");
  stream_ = Fd(ends[0]);
  const Fd theirs(ends[1]);
  other_ = std::make_unique<Other>(cpu_of_side(1), [&] {
    const std::function<void()> once = connect(1, theirs.get());
    for (char word = 0; ::read(theirs.get(), &word, 1) == 1;) {
      put(theirs.get(), &word, 1);
      once();
    }
  });
  const Pinned here(cpu_of_side(0));
  once_ = connect(0, stream_.get());
}

Exchange::~Exchange() = default;

double Exchange::measure(int times) {
  const Pinned here(cpu_of_side(0));
  std::vector<double> seconds;
  for (int i = 0; i < times + 1; ++i) {
    char word = 1;
    put(stream_.get(), &word, 1);
    get(stream_.get(), &word, 1);
    const Stopwatch watch;
    once_();
    if (i > 0) seconds.push_back(watch.seconds());  // the first one touches the memory
  }
  return middle(std::move(seconds));
}

LinkFloor::LinkFloor(std::size_t bytes, bool adds)
    : Exchange([=](int side, int stream) -> std::function<void()> {
        auto end = std::make_shared<SealedSocket>(connect_sides(side, stream), side, bytes, adds);
        return [end] { end->exchange(); };
      }) {}

std::shared_ptr<collective::Door> met_door(int side, int stream) {
  auto door = std::make_shared<collective::Door>(collective::DoorOptions{.rank = side});
  std::vector<std::string> addresses(2, door->address());
  char text[32] = {};
  std::copy(door->address().begin(), door->address().end(), text);
  put(stream, text, sizeof text);
  get(stream, text, sizeof text);
  addresses[static_cast<std::size_t>(1 - side)] = text;
  door->meet(addresses, key_from(0));
  return door;
}

LinkStream::LinkStream(std::size_t bytes)
    : Exchange([=](int side, int stream) -> std::function<void()> {
        auto end = std::make_shared<LinkEnd>(side, stream, bytes);
        return [end] { end->exchange(); };
      }) {}

}  // namespace troupe::bench
