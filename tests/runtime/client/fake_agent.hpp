// An agent that a test plays. It introduces one engine, does what the object store needs, keeps
// all other messages of the engine, and sends what the test wants. The test's thread drives it;
// calls of the engine that block run on a thread of their own.
#pragma once

#include "troupe/objectstore/host.hpp"
#include "troupe/runtime/client/engine.hpp"
#include "troupe/runtime/version.hpp"
#include "troupe/runtime/wire/plain.hpp"

#include <gtest/gtest.h>
#include <cstring>
#include <deque>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace troupe::client {

using namespace std::chrono_literals;

template <class Message>
struct Said {
  Message message;
  std::string payload;
};

class FakeAgent {
 public:
  static constexpr ProcessIndex kProcess = 7;  // the engine's process index

  explicit FakeAgent(wire::ProcessKind kind = wire::ProcessKind::driver) {
    auto [mine, theirs] = os::LocalSocket::pair().value();
    socket_ = os::LocalSocket(std::move(mine));
    bell_ = ring::Doorbell::create().value();
    objectstore::HostOptions options;
    options.arena = Bytes{16 << 20};
    options.extent = Bytes{1 << 20};
    options.layout = {8, 256, 64};
    host_ = objectstore::Host::create(options).value();
    auto socket = std::make_shared<Fd>(std::move(theirs));
    engine = finish(std::async(std::launch::async, [socket, kind] {
      return std::make_unique<ClientEngine>(ClientEngine::Start{std::move(*socket), kind, 0});
    }));
  }

  // --- messages to the engine
  void tell(const wire::NodeMessage& message, BlobView payload = {}) {
    ASSERT_TRUE(channel_.send(writer_.encode(message), payload));
  }
  /// Grants the lease request `key`. The message is no temporary: g++ 12 warns that its optional
  /// member is uninitialized.
  void grant(LeaseKey key, LeaseId lease, ProcessIndex worker) {
    wire::LeaseGranted granted;
    granted.key = key;
    granted.lease = lease;
    granted.worker = worker;
    tell(granted);
  }
  // Opens a channel between the engine and a process that the test plays.
  void connect(ProcessIndex peer, bool remote, ProcessIndex holder = 0) {
    connect_on(static_cast<std::uint32_t>(2 + peers_.size()), peer, remote, holder);
  }
  void connect_on(std::uint32_t slot, ProcessIndex peer, bool remote, ProcessIndex holder = 0) {
    auto memory = ring::ChannelMemory::create().value();
    send_with(wire::Channel{peer, 1, slot, slot, remote, holder},
              {memory.fd(), bell_.memory_fd(), bell_.event_fd()});
    peers_[peer].channel = ring::Channel(std::move(memory), 0, engine_bell_, slot);
  }
  // Opens a channel between the engine and itself, as for a worker that leases itself.
  void connect_to_itself() {
    auto memory = ring::ChannelMemory::create().value();
    for (const std::uint32_t side : {0u, 1u})
      send_with(wire::Channel{kProcess, side, 100 + side, 101 - side},
                {memory.fd(), engine_bell_->memory_fd(), engine_bell_->event_fd()});
  }
  void send_broken_channel(ProcessIndex peer) { send_with(wire::Channel{peer, 1, 2, 2}, {}); }
  void peer_says(ProcessIndex peer, const wire::CallMessage& message, BlobView payload = {}) {
    ASSERT_TRUE(peers_.at(peer).channel.send(writer_.encode(message), payload));
  }
  // Sends a plain frame, as most frames are.
  template <class Plain>
  void peer_says_plainly(ProcessIndex peer, const Plain& message, BlobView payload) {
    wire::PlainFrame frame;
    ASSERT_TRUE(peers_.at(peer).channel.send(wire::write_plain(message, frame), payload));
  }
  // Makes an object of the agent's own in shared memory.
  wire::Value shared(const std::string& text) {
    auto allocation = host_->create_local(text.size()).value();
    std::memcpy(allocation.bytes().data(), text.data(), text.size());
    const auto at = host_->local().seal(std::move(allocation), 0, text.size());
    host_->adopt(0, at).value();
    wire::Value value;
    value.kind = wire::Value::Kind::shared;
    value.location = wire_location(at);
    return value;
  }
  std::string read(const wire::Location& at) {
    auto view = host_->open_local(store_location(at)).value();
    return {reinterpret_cast<const char*>(view.bytes().data()), view.bytes().size()};
  }

  // --- messages from the engine
  template <class Message>
  Message next() {
    Message found{};
    run_until([&] { return take(found); }, typeid(Message).name());
    return found;
  }
  // Returns whether the engine has sent such a message, after all messages so far have been read.
  template <class Message>
  bool has_said() {
    drain();
    for (const auto& said : said_)
      if (std::holds_alternative<Message>(said.message)) return true;
    return false;
  }
  // Returns whether a message One is unread and precedes every unread message Other.
  template <class One, class Other>
  bool says_before() {
    drain();
    for (const auto& said : said_)
      if (std::holds_alternative<One>(said.message) || std::holds_alternative<Other>(said.message))
        return std::holds_alternative<One>(said.message);
    return false;
  }
  template <class Message>
  Said<Message> next_from(ProcessIndex peer) {
    auto& said = peers_.at(peer).said;
    run_until([&] { return !said.empty(); }, "a frame for a peer");
    if (said.empty()) return {};
    Said<wire::CallMessage> first = std::move(said.front());
    said.pop_front();
    drain();  // reads messages that were published before the frame
    EXPECT_TRUE(std::holds_alternative<Message>(first.message));
    return {std::get<Message>(first.message), first.payload};
  }
  int holds(ObjectId object, ProcessIndex process) { return holds_[{object, process}]; }
  const wire::Hold& last_hold() const { return last_hold_; }
  const std::map<ObjectId, wire::Value>& promoted() const { return promoted_; }

  void run_until(const std::function<bool()>& done, const char* what) {
    const Time deadline = steady_now() + 10s;
    for (drain(); !done(); drain()) {
      if (steady_now() > deadline) {
        ADD_FAILURE() << "not within 10 s: " << what;
        return;
      }
      bell_.sleep(1ms);
    }
  }
  // Plays the agent until the other thread has its result.
  template <class T>
  T finish(std::future<T> future) {
    run_until([&] { return future.wait_for(0s) == std::future_status::ready; }, "the engine");
    return future.get();
  }
  template <class F>
  auto meanwhile(F f) {
    return std::async(std::launch::async, std::move(f));
  }

  void grant(const wire::NeedExtent& asked) {
    ++extents;
    const auto given = host_->grant(store_index_, asked.bytes).value();
    send_with(wire::GiveExtent{given.id.value, given.bytes, nullptr, asked.request},
              {given.memory.get()});
  }

  // Ends the agent: the connection closes, and it sends nothing more.
  void die() { socket_ = os::LocalSocket(); }

  std::unique_ptr<ClientEngine> engine;
  int extents = 0;     // granted extents
  bool grants = true;  // false: requests for extents are left to the test

 private:
  struct Peer {
    ring::Channel channel;
    std::deque<Said<wire::CallMessage>> said;
  };

  void send_with(const wire::NodeMessage& message, std::vector<int> descriptors) {
    ASSERT_TRUE(socket_.send(writer_.encode(message), descriptors));
    engine_bell_->ring(wire::kSocketSlot);
  }

  void drain() {
    std::vector<std::uint32_t> slots;
    bell_.take(slots);
    for (;;) {
      auto received = socket_.receive(frame_);
      if (received.kind != os::Received::Kind::packet) break;
      hear(BlobView(frame_.data(), received.size), std::move(received.descriptors));
    }
    std::size_t size = 0;
    for (auto& [index, peer] : peers_)
      while (peer.channel.receive(frame_.data(), size) == ring::Pop::frame) {
        auto decoded = wire::decode_call(BlobView(frame_.data(), size)).value();
        peer.said.push_back({std::move(decoded.message), text(decoded.payload)});
      }
    while (channel_ && channel_.receive(frame_.data(), size) == ring::Pop::frame)
      hear(BlobView(frame_.data(), size), {});
  }

  void hear(BlobView frame, std::vector<Fd> descriptors) {
    auto decoded = wire::decode_node(frame).value();
    if (std::holds_alternative<wire::Hello>(decoded.message))
      return welcome(std::move(descriptors));
    if (auto* m = std::get_if<wire::NeedExtent>(&decoded.message); m != nullptr && grants)
      return grant(*m);
    if (auto* m = std::get_if<wire::ExtentMapped>(&decoded.message))
      return host_->confirm_extent(store_index_, objectstore::ExtentId{m->extent}).value();
    if (std::holds_alternative<wire::StoreAttached>(decoded.message))
      return host_->confirm_process(store_index_).value();
    if (auto* m = std::get_if<wire::NeedReader>(&decoded.message)) return give_reader(*m);
    if (auto* m = std::get_if<wire::Adopt>(&decoded.message))
      host_->adopt(store_index_, store_location(m->location)).value();
    if (auto* m = std::get_if<wire::Hold>(&decoded.message)) {
      holds_[{m->object, m->process}] += m->delta;
      last_hold_ = *m;
      return;
    }
    if (auto* m = std::get_if<wire::Promote>(&decoded.message)) {
      holds_[{m->object, kProcess}] += 1;
      promoted_[m->object] = m->value;
    }
    said_.push_back({std::move(decoded.message), text(decoded.payload)});
  }

  void welcome(std::vector<Fd> descriptors) {
    ASSERT_EQ(descriptors.size(), 2u);
    engine_bell_ = std::make_shared<ring::Doorbell>(
        ring::Doorbell::attach(std::move(descriptors[0]), std::move(descriptors[1])).value());
    auto memory = ring::ChannelMemory::create().value();
    wire::Welcome message;
    message.protocol = kProtocolVersion;
    message.node_name = "here";
    message.process = kProcess;
    message.my_slot = message.agent_slot = 1;
    send_with(message, {memory.fd(), bell_.memory_fd(), bell_.event_fd()});
    channel_ = ring::Channel(std::move(memory), 0, engine_bell_, 1);
    const auto membership = host_->register_process().value();
    store_index_ = membership.process;
    wire::StoreTables tables;
    tables.processes = membership.layout.processes;
    tables.slots = membership.layout.slots;
    tables.extents = membership.layout.extents;
    tables.process = membership.process;
    tables.incarnation = membership.incarnation;
    tables.extent_bytes = membership.extent_bytes;
    send_with(tables,
              {membership.publications.get(), membership.pins.get(), membership.retirements.get()});
  }

  void give_reader(const wire::NeedReader& request) {
    wire::GiveReader answer;
    answer.is_segment = request.is_segment;
    answer.id = request.id;
    if (request.is_segment) {
      const auto segment =
          host_->segment_for_reader(static_cast<std::uint32_t>(request.id)).value();
      answer.incarnation = segment.incarnation;
      return send_with(answer, {segment.memory.get()});
    }
    const auto extent = host_->extent_for_reader(objectstore::ExtentId{request.id}).value();
    answer.bytes = extent.bytes;
    send_with(answer, {extent.memory.get()});
  }

  template <class Message>
  bool take(Message& found) {
    for (auto at = said_.begin(); at != said_.end(); ++at) {
      if (auto* message = std::get_if<Message>(&at->message)) {
        found = std::move(*message);
        said_.erase(at);
        return true;
      }
    }
    return false;
  }
  static std::string text(BlobView bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  os::LocalSocket socket_;
  ring::Doorbell bell_;
  std::shared_ptr<ring::Doorbell> engine_bell_;
  ring::Channel channel_;
  std::unique_ptr<objectstore::Host> host_;
  std::uint32_t store_index_ = 0;
  std::map<ProcessIndex, Peer> peers_;
  std::deque<Said<wire::NodeMessage>> said_;
  std::map<std::pair<ObjectId, ProcessIndex>, int> holds_;
  wire::Hold last_hold_;
  std::map<ObjectId, wire::Value> promoted_;
  wire::FrameWriter writer_;
  alignas(16) std::array<std::byte, ring::kMaxFrame> frame_;
};

}  // namespace troupe::client
