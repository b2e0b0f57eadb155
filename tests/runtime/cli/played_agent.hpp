/// An agent that the test plays: it has a door and a cluster file, and answers what verbs ask.
///
///     PlayedAgent agent([&](const wire::Inquire& asked, BlobView payload) { return bytes; });
///     troupe_command({"list", "processes", "--address", agent.file()});
#pragma once

#include "troupe/runtime/os/cluster_file.hpp"
#include "troupe/runtime/os/local_listener.hpp"
#include "troupe/runtime/os/local_socket.hpp"
#include "troupe/runtime/version.hpp"
#include "troupe/runtime/wire/messages.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <variant>

namespace troupe::cli {

/// The thread of the door has one visitor at a time, and calls `answers`. The destructor ends it.
class PlayedAgent {
 public:
  using Answers = std::function<Blob(const wire::Inquire& asked, BlobView payload)>;

  explicit PlayedAgent(Answers answers) : answers_(std::move(answers)) {
    os::ClusterFile file;
    file.cluster = ClusterId::random();
    file.node = NodeId::random();
    file.node_name = "node-0";
    file.version = TROUPE_VERSION_TEXT;
    file.protocol = kProtocolVersion;
    file.socket_name = os::door_name(file.cluster, file.node);
    file.control_door = "tcp://127.0.0.1:1";
    file.nodes = 1;
    file.launcher = getpid();
    file.launched = os::start_of(getpid());
    file_ = testing::TempDir() + "troupe-played-" + file.node.str() + ".json";
    node_ = file.node;
    os::write_cluster_file(file_, file).value();
    door_ =
        std::make_unique<os::LocalListener>(os::LocalListener::listen(file.socket_name).value());
    thread_ = std::thread([this] { serve(); });
  }
  ~PlayedAgent() {
    ends_ = true;
    thread_.join();
    unlink(file_.c_str());
  }
  PlayedAgent(const PlayedAgent&) = delete;
  PlayedAgent& operator=(const PlayedAgent&) = delete;
  const std::string& file() const noexcept { return file_; }
  NodeId node() const noexcept { return node_; }

 private:
  static constexpr int kLook = 50;  ///< milliseconds between looks at ends_

  static bool is_readable(int fd) {
    pollfd entry{fd, POLLIN, 0};
    return poll(&entry, 1, kLook) == 1;
  }
  void serve() {
    while (!ends_) {
      if (!is_readable(door_->fd())) continue;
      if (auto visitor = door_->accept()) talk(os::LocalSocket(std::move(visitor->socket)));
    }
  }
  void talk(os::LocalSocket socket) {
    while (!ends_) {
      if (!is_readable(socket.fd())) continue;
      const os::Received received = socket.receive(packet_);
      if (received.kind == os::Received::Kind::closed) return;
      if (received.kind != os::Received::Kind::packet) continue;
      auto decoded = wire::decode_node(BlobView(packet_.data(), received.size));
      ASSERT_TRUE(decoded);
      if (std::holds_alternative<wire::Hello>(decoded->message)) {
        wire::Welcome welcome;
        welcome.protocol = kProtocolVersion;
        welcome.node = node_;
        welcome.node_name = "node-0";
        ASSERT_TRUE(socket.send(writer_.encode(wire::NodeMessage(welcome)), {}));
      } else if (const auto* asked = std::get_if<wire::Inquire>(&decoded->message)) {
        answer(socket, asked->request, answers_(*asked, decoded->payload));
      }
    }
  }
  void answer(os::LocalSocket& socket, std::uint64_t request, const Blob& bytes) {
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t size = std::min<std::size_t>(bytes.size() - at, 16 * 1024);
      wire::Answer piece;
      piece.request = request;
      piece.offset = at;
      piece.bytes = bytes.size();
      const BlobView head = writer_.encode(wire::NodeMessage(piece));
      Blob frame(head.begin(), head.end());
      const auto from = bytes.begin() + static_cast<std::ptrdiff_t>(at);
      frame.insert(frame.end(), from, from + static_cast<std::ptrdiff_t>(size));
      ASSERT_TRUE(socket.send(frame, {}));
      at += size;
    }
    while (socket.has_queued() && !ends_) {
      pollfd entry{socket.fd(), POLLOUT, 0};
      poll(&entry, 1, kLook);
      if (!socket.flush()) return;
    }
  }

  const Answers answers_;
  std::string file_;
  NodeId node_;
  std::unique_ptr<os::LocalListener> door_;
  wire::FrameWriter writer_;
  std::array<std::byte, os::kMaxPacket> packet_;
  std::atomic<bool> ends_{false};
  std::thread thread_;
};

}  // namespace troupe::cli
