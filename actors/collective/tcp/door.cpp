#include "troupe/actors/collective/tcp/door.hpp"

#include "troupe/actors/collective/tcp/internal/entrance.hpp"
#include "troupe/actors/collective/tcp/internal/opening.hpp"
#include "troupe/actors/collective/tcp/internal/sealed_stream.hpp"
#include "troupe/actors/collective/tcp/internal/tcp_link.hpp"
#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/deadline.hpp"
#include "troupe/runtime/base/error.hpp"
#include "troupe/runtime/base/fd.hpp"
#include "troupe/runtime/base/signal_masked_thread.hpp"
#include "troupe/runtime/base/standard_descriptors.hpp"
#include "troupe/runtime/base/wait.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>
#include <utility>

namespace troupe::collective {
namespace {

using namespace internal;

constexpr int kBacklog = 1024;

std::optional<sockaddr_in> address_of(const std::string& host, std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  if (::inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1) return {};
  return address;
}

/// Returns nothing for a text that is not "IPv4:port".
std::optional<sockaddr_in> parse(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos) return {};
  std::uint16_t port = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, port);
  if (error != std::errc() || stop != end || port == 0) return {};
  return address_of(text.substr(0, colon), port);
}

[[noreturn]] void refuse(Code code, const std::string& why) {
  raise(Error(code, why));
}

/// Binds to any port of the address, or of all addresses when no interface has this one. Returns
/// the port.
std::uint16_t listen_on(const Fd& socket, const DoorOptions& options) {
  std::optional<sockaddr_in> address = address_of(options.host, 0);
  if (!address)
    refuse(Code::invalid_argument, "a door cannot listen on '" + options.host +
                                       "', which is no IPv4 address like 10.0.0.2; give the "
                                       "address by which other nodes reach this one");
  auto* const raw = reinterpret_cast<sockaddr*>(&*address);
  socklen_t size = sizeof *address;
  bool bound = socket && ::bind(socket.get(), raw, size) == 0;
  if (socket && !bound && errno == EADDRNOTAVAIL) {
    address->sin_addr.s_addr = htonl(INADDR_ANY);
    bound = ::bind(socket.get(), raw, size) == 0;
  }
  if (bound) set_buffers(socket.get(), static_cast<int>(options.buffer.count));
  if (!bound || ::listen(socket.get(), kBacklog) != 0 ||
      ::getsockname(socket.get(), raw, &size) != 0)
    refuse(Code::unavailable, "rank " + std::to_string(options.rank) + " cannot listen on " +
                                  options.host + ": " + std::strerror(errno));
  return ntohs(address->sin_port);
}

}  // namespace

class Door::Impl {
 public:
  explicit Impl(const DoorOptions& options)
      : options_(options),
        wake_(make_fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))),
        listener_(make_fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0))),
        address_(options.host + ":" + std::to_string(listen_on(listener_, options))),
        entrance_(std::move(listener_)) {
    if (!wake_)
      refuse(Code::unavailable, std::string("a door has no event: ") + std::strerror(errno));
    thread_ = SignalMaskedThread("troupe-door", [this] { run(); });
  }
  ~Impl() {
    {
      const std::lock_guard lock(mutex_);
      stops_ = true;
    }
    wake();
    thread_.join();
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  const std::string& address() const noexcept { return address_; }

  void meet(const std::vector<std::string>& addresses, Secret<32> key) {
    if (static_cast<std::size_t>(options_.rank) >= addresses.size())
      refuse(Code::invalid_argument, "rank " + std::to_string(options_.rank) +
                                         " is not among the " + std::to_string(addresses.size()) +
                                         " doors of its gang");
    std::vector<Other> others;
    for (const std::string& text : addresses) {
      const std::optional<sockaddr_in> at = parse(text);
      if (!at)
        refuse(Code::invalid_argument, "the door of rank " + std::to_string(others.size()) +
                                           " is '" + text +
                                           "', which is no address like "
                                           "10.0.0.2:4711");
      others.push_back({text, *at});
    }
    {
      const std::lock_guard lock(mutex_);
      TROUPE_ASSERT(others_.empty(), "a door has met the others before");
      others_ = std::move(others);
      key_ = std::move(key);
    }
    wake();
  }

  std::unique_ptr<Link> link(const LinkName& name, int peer) {
    const std::lock_guard lock(mutex_);
    TROUPE_ASSERT(
        peer >= 0 && peer != options_.rank && static_cast<std::size_t>(peer) < others_.size(),
        "a link to a rank that does not exist");
    Stream& stream = streams_[key_of(name, peer)];
    TROUPE_ASSERT(!stream.asked, "a link that was asked for before");
    Secret<32> there = key_of_direction(key_, name, options_.rank, peer);
    Secret<32> back = key_of_direction(key_, name, peer, options_.rank);
    std::unique_ptr<Opening> opening;
    if (options_.rank < peer) {
      const Other& other = others_[static_cast<std::size_t>(peer)];
      opening = std::make_unique<Connector>(
          Connector::Target{.rank = options_.rank,
                            .peer = peer,
                            .address = other.text,
                            .at = other.at,
                            .buffer = static_cast<int>(options_.buffer.count),
                            .deadline = deadline_after(steady_now(), options_.timeout / 4 * 3)},
          make_hello({name, options_.rank, peer}, there), back.copy());
    } else {
      opening = std::make_unique<Awaiting>(handover_of(stream));
    }
    auto link = std::make_unique<TcpLink>(options_.rank, peer, std::move(opening),
                                          SealedOutput(std::move(there), options_.per_key),
                                          SealedInput(std::move(back), options_.per_key));
    stream.asked = true;  // after all that throws, since a group that ends asks again
    if (stream.proven) stream.handover.reset();
    return link;
  }

 private:
  struct Other {
    std::string text;
    sockaddr_in at{};
  };
  /// A stream that this rank asked for, or that another rank has proven.
  struct Stream {
    bool asked = false, proven = false;
    std::shared_ptr<Handover> handover;  ///< until both
  };
  using StreamKey = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, int>;

  static StreamKey key_of(const LinkName& name, int peer) noexcept {
    return {name.first, name.lane, name.use, peer};
  }
  static std::shared_ptr<Handover> handover_of(Stream& stream) {
    if (!stream.handover) stream.handover = std::make_shared<Handover>();
    return stream.handover;
  }

  void wake() noexcept {
    const std::uint64_t one = 1;
    (void)!::write(wake_.get(), &one, sizeof one);
  }

  void run() {
    const auto judge = [this](Fd& connection, const Hello& hello) {
      return this->judge(connection, hello);
    };
    std::vector<pollfd> watched;
    while (true) {
      watched.assign(1, {wake_.get(), POLLIN, 0});
      entrance_.watch(watched);
      const Duration left = std::min<Duration>(time_left(entrance_.next_deadline(), steady_now()),
                                               std::chrono::hours(1));
      (void)wait_for(watched, left);
      std::uint64_t ignored = 0;
      (void)!::read(wake_.get(), &ignored, sizeof ignored);
      {
        const std::lock_guard lock(mutex_);
        if (stops_) return;
      }
      entrance_.advance(steady_now(), judge);
    }
  }

  /// Takes each stream of a lower rank once, after the proof of its key, and answers with the own
  /// proof, which always fits into the buffer of a fresh connection.
  Entrance::Verdict judge(Fd& connection, const Hello& hello) {
    using enum Entrance::Verdict;
    const std::optional<Beginning> said = beginning_of(hello);
    if (!said || said->to != options_.rank || said->from < 0 || said->from >= options_.rank)
      return refused;
    const std::lock_guard lock(mutex_);
    if (others_.empty()) return later;
    const StreamKey key = key_of(said->name, said->from);
    const auto known = streams_.find(key);
    if (known != streams_.end() && known->second.proven) return refused;
    if (!is_proof(proof_of(hello), key_of_direction(key_, said->name, said->from, said->to)))
      return refused;
    Stream& stream = streams_[key];
    std::shared_ptr<Handover> handover;
    try {
      handover = handover_of(stream);
    } catch (const Unavailable&) {  // no descriptor: the other end tries again
      return refused;
    }
    const Proof proof = make_proof(key_of_direction(key_, said->name, said->to, said->from));
    (void)!::send(connection.get(), proof.data(), proof.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    stream.proven = true;
    handover->give(std::move(connection));
    if (stream.asked) stream.handover.reset();
    return taken;
  }

  const DoorOptions options_;
  Fd wake_, listener_;
  const std::string address_;
  Entrance entrance_;  ///< of the thread
  std::mutex mutex_;   ///< guards what follows
  std::vector<Other> others_;
  Secret<32> key_;
  std::map<StreamKey, Stream> streams_;
  bool stops_ = false;
  SignalMaskedThread thread_;
};

Door::Door(const DoorOptions& options) : impl_(std::make_unique<Impl>(options)) {}
Door::~Door() = default;

const std::string& Door::address() const noexcept {
  return impl_->address();
}

void Door::meet(const std::vector<std::string>& addresses, Secret<32> key) {
  impl_->meet(addresses, std::move(key));
}

std::unique_ptr<Link> Door::link(const LinkName& name, int peer) {
  return impl_->link(name, peer);
}

}  // namespace troupe::collective
