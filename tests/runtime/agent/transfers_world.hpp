// Two or more nodes in one process, for tests of transfers. Hosts and transfers are joined by a
// queue of messages that a test can watch, alter and drop. A proxy cuts bulk connections after a
// number of bytes.
#pragma once

#include "troupe/runtime/agent/transfers.hpp"

#include "troupe/runtime/base/random.hpp"
#include "troupe/runtime/client/outgoing_value.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <atomic>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <thread>

namespace troupe::agent::test {

using namespace std::chrono_literals;
using client::store_location;
using client::wire_location;

inline void fill(std::span<std::byte> bytes, std::uint64_t seed) {
  std::size_t at = 0;
  for (; at + 8 <= bytes.size(); at += 8) {
    const std::uint64_t word = splitmix64(seed);
    std::memcpy(bytes.data() + at, &word, 8);
  }
  for (; at < bytes.size(); ++at) bytes[at] = static_cast<std::byte>(splitmix64(seed));
}
inline std::uint64_t checksum(BlobView bytes) {
  std::uint64_t sum = bytes.size();
  std::size_t at = 0;
  for (; at + 8 <= bytes.size(); at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, 8);
    sum = (sum ^ word) * 0x9e3779b97f4a7c15ULL;
    sum ^= sum >> 29;
  }
  for (; at < bytes.size(); ++at)
    sum = (sum ^ static_cast<std::uint64_t>(bytes[at])) * 1099511628211ULL;
  return sum;
}

/// Forwards one direction of TCP to 127.0.0.1:port, one connection at a time. It cuts each
/// connection after `budget` bytes.
class Cutter {
 public:
  explicit Cutter(std::uint16_t target) : target_(target), wake_(eventfd(0, EFD_CLOEXEC)) {
    listener_ = Fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in at = address(0);
    socklen_t size = sizeof at;
    if (bind(listener_.get(), reinterpret_cast<sockaddr*>(&at), size) != 0 ||
        listen(listener_.get(), 8) != 0 ||
        getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&at), &size) != 0)
      std::abort();
    port_ = ntohs(at.sin_port);
    thread_ = std::thread([this] { run(); });
  }
  ~Cutter() {
    const std::uint64_t one = 1;
    (void)!write(wake_.get(), &one, sizeof one);
    thread_.join();
  }
  std::uint16_t port() const { return port_; }
  static constexpr std::uint64_t kWhole = ~std::uint64_t{0};
  std::atomic<std::uint64_t> budget{kWhole};
  std::atomic<bool> once{false};  ///< whether the budget is for the next connection only
  std::atomic<int> cuts{0};

 private:
  static sockaddr_in address(std::uint16_t port) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(port);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return at;
  }
  bool readable(int fd) {
    pollfd fds[2] = {{fd, POLLIN, 0}, {wake_.get(), POLLIN, 0}};
    ::poll(fds, 2, 20'000);
    return fds[1].revents == 0 && fds[0].revents != 0;
  }
  void run() {
    while (readable(listener_.get())) {
      const Fd in(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      const Fd out(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      const sockaddr_in to = address(target_);
      if (connect(out.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) continue;
      std::vector<char> buffer(65536);
      for (std::uint64_t left = once ? budget.exchange(kWhole) : budget.load(); left > 0;) {
        if (!readable(in.get())) break;
        const ssize_t n = recv(in.get(), buffer.data(), std::min<std::uint64_t>(65536, left), 0);
        if (n <= 0) break;
        left -= static_cast<std::uint64_t>(n);
        if (left == 0) ++cuts;
        if (::send(out.get(), buffer.data(), static_cast<std::size_t>(n), MSG_NOSIGNAL) != n) break;
      }
    }
  }

  const std::uint16_t target_;
  std::uint16_t port_ = 0;
  Fd wake_, listener_;
  std::thread thread_;
};

struct World;

/// A node: its object store and its transfers.
class End final : public Transfers::Out {
 public:
  End(World& world, NodeId id, TransfersOptions options, std::uint64_t arena);

  /// Makes an object of this node whose bytes depend on its id.
  void make(ObjectId object, std::uint64_t bytes) {
    objectstore::Allocation made = host->create_local(bytes).value();
    fill(made.bytes(), object.low);
    const objectstore::Location at = host->local().seal(std::move(made));
    host->adopt(0, at).value();
    objects[object] = wire_location(at);
  }
  void free(ObjectId object) {
    host->free(store_location(objects.at(object))).value();
    objects.erase(object);
    host->take_notices();
  }
  BlobView bytes(ObjectId object) {
    pinned_ = host->open_local(store_location(done_.at(object))).value();
    return pinned_.bytes();
  }
  void pull(ObjectId object, std::uint64_t bytes);
  void pull_from(NodeId owner, ObjectId object, std::uint64_t bytes);
  bool has(ObjectId object) const { return done_.count(object) != 0; }
  bool ended(ObjectId object) const { return has(object) || failures.count(object) != 0; }

  void send(NodeId to, const wire::PeerMessage& message, BlobView payload) override;
  void short_of_memory(std::uint64_t bytes) override { wanted = std::max(wanted, bytes); }
  std::uint64_t wanted = 0;  ///< the most bytes that were reported as missing
  std::optional<Transfers::Held> find(ObjectId object) override {
    if (const auto at = objects.find(object); at != objects.end())
      return Transfers::Held{at->second, at->second, true};
    if (const auto copy = done_.find(object); copy != done_.end())
      return Transfers::Held{copy->second, copy->second, false};
    return std::nullopt;
  }
  void done(ObjectId object, NodeId, const wire::Location& location) override {
    EXPECT_TRUE(done_.emplace(object, location).second) << "an object came twice";
  }
  void failed(ObjectId object, NodeId, const Error& error) override {
    EXPECT_TRUE(failures.emplace(object, error).second) << "an object failed twice";
  }

  World& world;
  NodeId id;
  std::unique_ptr<objectstore::Host> host;
  std::unique_ptr<Transfers> transfers;
  std::map<ObjectId, wire::Location> objects, done_;
  std::map<ObjectId, Error> failures;

 private:
  objectstore::Pinned pinned_;
};

struct Carried {
  NodeId from, to;
  wire::PeerMessage message;
  Blob payload;
};

struct World {
  explicit World(const TransfersOptions& options = {}, std::uint64_t arena = 512u << 20,
                 std::size_t nodes = 2)
      : one(*this, NodeId{0, 1}, options, arena), two(*this, NodeId{0, 2}, options, arena) {
    for (std::size_t n = 3; n <= nodes; ++n)
      more.push_back(std::make_unique<End>(*this, NodeId{0, n}, options, arena));
  }
  std::vector<End*> ends() {
    std::vector<End*> all = {&one, &two};
    for (auto& each : more) all.push_back(each.get());
    return all;
  }
  End& end(NodeId id) { return *ends().at(id.low - 1); }

  /// Runs all nodes until the condition holds; returns false when it does not within the limit.
  bool until(const std::function<bool()>& holds, Duration limit = 20s) {
    const Time end = steady_now() + limit;
    while (true) {
      carry();
      Time due = end;
      std::vector<pollfd> fds;
      for (End* each : ends()) {
        if (!each->transfers) continue;
        each->transfers->poll(steady_now());
        each->host->take_notices();
        due = std::min(due, each->transfers->next_deadline());
        fds.push_back({each->transfers->fd(), POLLIN, 0});
      }
      if (holds()) return true;
      const Time now = steady_now();
      if (now >= end) return false;
      if (!carried.empty() || due <= now) continue;
      const auto ms = std::chrono::ceil<std::chrono::milliseconds>(
          std::min<Duration>(due - now, 20ms));  // conditions may depend on other processes
      ::poll(fds.data(), fds.size(), static_cast<int>(ms.count()));
    }
  }
  void carry() {
    while (!carried.empty()) {
      Carried next = std::move(carried.front());
      carried.pop_front();
      if (on_message && !on_message(next)) continue;
      if (std::holds_alternative<wire::PullRequest>(next.message)) ++requests[next.to];
      End& to = end(next.to);
      if (to.transfers)
        to.transfers->on_message(next.from, next.message, next.payload, steady_now());
    }
  }
  /// Ends a node like the death of its process: its memory, threads and connections are gone.
  void kill(End& end) {
    end.transfers.reset();
    carried.clear();
    for (End* other : ends())
      if (other->transfers) other->transfers->node_died(end.id, true, steady_now());
  }

  /// May alter a message; returns false to drop it.
  std::function<bool(Carried&)> on_message;
  std::deque<Carried> carried;
  std::map<NodeId, int> requests;  ///< requests that came to each node
  End one, two;
  std::vector<std::unique_ptr<End>> more;  ///< the third node and further ones
};

inline End::End(World& w, NodeId i, TransfersOptions options, std::uint64_t arena)
    : world(w), id(i) {
  objectstore::HostOptions store;
  store.arena = Bytes{arena};
  store.layout = {8, 4096, 256};
  host = objectstore::Host::create(store).value();
  transfers = Transfers::open(*host, *this, std::move(options)).value();
}
inline void End::send(NodeId to, const wire::PeerMessage& message, BlobView payload) {
  world.carried.push_back({id, to, message, Blob(payload.begin(), payload.end())});
}
inline void End::pull(ObjectId object, std::uint64_t bytes) {
  pull_from(this == &world.one ? world.two.id : world.one.id, object, bytes);
}
inline void End::pull_from(NodeId owner, ObjectId object, std::uint64_t bytes) {
  transfers->pull(owner, object, bytes, steady_now());
}

}  // namespace troupe::agent::test
