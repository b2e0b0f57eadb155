/// A driver without an engine. It sends arbitrary messages to an agent over a valid connection.
///
///     RawDriver driver(door);                                  // welcome, with a job
///     driver.say(wire::LeaseReturned{7});
///     auto nodes = driver.hear<wire::Nodes>();
#pragma once

#include "tests/eventually.hpp"
#include "troupe/runtime/os/local_listener.hpp"
#include "troupe/runtime/os/local_socket.hpp"
#include "troupe/runtime/ring/channel.hpp"
#include "troupe/runtime/version.hpp"
#include "troupe/runtime/wire/messages.hpp"

#include <poll.h>
#include <unistd.h>
#include <array>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe::cli {

class RawDriver {
 public:
  struct Heard {
    wire::NodeMessage message;
    Blob payload;
  };

  /// `program` is the executable from which its workers start. It must not be the test: a zygote
  /// of the test's program would run the tests.
  RawDriver(const std::string& door, const std::string& program) {
    auto visitor = os::knock(door);
    auto bell = ring::Doorbell::create();
    if (!visitor || !bell) return;
    socket_ = os::LocalSocket(std::move(visitor->socket));
    bell_ = std::make_shared<ring::Doorbell>(std::move(*bell));
    wire::Hello hello;
    hello.protocol = kProtocolVersion;
    hello.pid = static_cast<std::uint32_t>(getpid());
    hello.program = program;
    hello.job_name = "raw";
    say_hello(hello);
  }

  /// Sends Hello, the right one or another.
  void say_hello(const wire::Hello& hello) {
    (void)socket_.send(writer_.encode(wire::NodeMessage(hello)),
                       std::array<int, 2>{bell_->memory_fd(), bell_->event_fd()});
  }
  /// Waits until the agent welcomes it; returns false when it is cut off.
  bool is_welcome() {
    return eventually([this] { return listen(), channel_ || cut_off_; }) && !cut_off_;
  }
  ProcessIndex index() const noexcept { return welcome_.process; }
  JobId job() const noexcept { return welcome_.job; }
  bool is_cut_off() {
    return eventually([this] { return listen(), cut_off_; });
  }
  bool is_cut_off_now() {
    listen();
    return cut_off_;
  }

  void say(const wire::NodeMessage& message, BlobView payload = {}) {
    Blob frame = frame_of(message, payload);
    say_bytes(frame);
  }
  /// Sends arbitrary bytes. `by_socket` sends them through the socket, as messages with
  /// descriptors, but without any.
  void say_bytes(BlobView frame, bool by_socket = false) {
    if (by_socket)
      (void)(frame.size() <= os::kMaxPacket && socket_.send(frame, {}));
    else if (channel_ && frame.size() <= ring::kMaxFrame)
      (void)channel_.send(frame);
  }
  Blob frame_of(const wire::NodeMessage& message, BlobView payload) {
    const BlobView head = writer_.encode(message);
    Blob frame(head.begin(), head.end());
    frame.insert(frame.end(), payload.begin(), payload.end());
    return frame;
  }

  /// Returns the next message of this kind that the agent has sent or sends in time. Drops the
  /// messages before it.
  template <class Message>
  std::optional<Message> hear(Blob* payload = nullptr) {
    std::optional<Message> found;
    eventually([&] {
      listen();
      while (!heard_.empty() && !found) {
        if (auto* one = std::get_if<Message>(&heard_.front().message)) {
          found = std::move(*one);
          if (payload != nullptr) *payload = heard_.front().payload;
        }
        heard_.pop_front();
      }
      return found || cut_off_;
    });
    return found;
  }
  /// Reads all messages that have arrived; keeps the last thousand.
  void listen() {
    while (!cut_off_) {
      auto received = socket_.receive(packet_);
      if (received.kind == os::Received::Kind::empty) break;
      if (received.kind == os::Received::Kind::closed) {
        cut_off_ = true;
        break;
      }
      take(BlobView(packet_.data(), received.size), std::move(received.descriptors));
    }
    std::size_t size = 0;
    if (!channel_) return;
    channel_.flush();
    while (channel_.receive(frame_.data(), size) == ring::Pop::frame)
      take(BlobView(frame_.data(), size), {});
  }

 private:
  void take(BlobView bytes, std::vector<Fd> descriptors) {
    auto decoded = wire::decode_node(bytes);
    if (!decoded) return;
    if (const auto* welcome = std::get_if<wire::Welcome>(&decoded->message);
        welcome != nullptr && descriptors.size() == 3) {
      welcome_ = *welcome;
      auto memory = ring::ChannelMemory::attach(std::move(descriptors[0]));
      auto bell = ring::Doorbell::attach(std::move(descriptors[1]), std::move(descriptors[2]));
      if (memory && bell)
        channel_ =
            ring::Channel(std::move(*memory), 1, std::make_shared<ring::Doorbell>(std::move(*bell)),
                          welcome->agent_slot);
    }
    heard_.push_back(
        {std::move(decoded->message), Blob(decoded->payload.begin(), decoded->payload.end())});
    if (heard_.size() > 1000) heard_.pop_front();
  }

  os::LocalSocket socket_;
  std::shared_ptr<ring::Doorbell> bell_;
  ring::Channel channel_;
  wire::Welcome welcome_;
  wire::FrameWriter writer_;
  std::deque<Heard> heard_;
  bool cut_off_ = false;
  std::array<std::byte, os::kMaxPacket> packet_{};
  alignas(16) std::array<std::byte, ring::kMaxFrame> frame_{};
};

}  // namespace troupe::cli
