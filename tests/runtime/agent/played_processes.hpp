/// Processes with the parts around it, for tests: it notes which messages were handled.
#pragma once

#include "tests/runtime/agent/played_outgoing.hpp"
#include "tests/runtime/agent/quiet_tables.hpp"
#include "troupe/runtime/agent/processes.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace troupe::agent {

/// A process's side of its socket and rings.
struct PlayedPeer {
  ProcessIndex index;
  os::LocalSocket socket;
  ring::Channel ring;

  void say(const wire::NodeMessage& message) {
    EXPECT_TRUE(socket.send(wire::FrameWriter().encode(message), {}));
  }
  /// Returns the next message of this kind on the socket and forgets those before; nullopt: none.
  template <class Message>
  std::optional<Message> read(std::vector<Fd>* descriptors = nullptr) {
    std::vector<std::byte> packet(os::kMaxPacket);
    for (;;) {
      os::Received received = socket.receive(packet);
      if (received.kind != os::Received::Kind::packet) return std::nullopt;
      auto decoded = wire::decode_node(BlobView(packet.data(), received.size));
      if (!decoded) return std::nullopt;
      if (auto* message = std::get_if<Message>(&decoded->message)) {
        if (descriptors != nullptr) *descriptors = std::move(received.descriptors);
        return *message;
      }
    }
  }
  /// Returns the number of messages of this kind in the ring, and forgets all others.
  template <class Message>
  int in_ring() {
    alignas(16) static std::array<std::byte, ring::kMaxFrame> frame;
    int count = 0;
    for (std::size_t size = 0; ring.receive(frame.data(), size) == ring::Pop::frame;) {
      auto decoded = wire::decode_node(BlobView(frame.data(), size));
      count += decoded && std::holds_alternative<Message>(decoded->message);
    }
    return count;
  }
};

struct PlayedProcesses : PlayedOutgoing, Processes::Out, Proxies::Nodes {
  using Peer = PlayedPeer;
  struct NoProcesses : Leases::Processes {
    void start_worker(bool, JobNumber) override {}
    void end_worker(ProcessIndex) override {}
    void connect(ProcessIndex, ProcessIndex) override {}
    std::optional<std::pair<JobId, JobNumber>> job_of(ProcessIndex) override { return {}; }
    JobNumber number_of(JobId) override { return 1; }
    std::string why_none_starts(JobId) override { return {}; }
    std::optional<ProcessIndex> lasting_process(JobNumber) override { return {}; }
  };
  explicit PlayedProcesses(scheduling::LeaseOptions options = {})
      : table(std::move(options), kSelfNode) {}
  // Processes::Out
  void handle(Process& from, wire::NodeMessage& message, BlobView, std::vector<Fd>&) override {
    handled.emplace_back(from.index, message.index());
    if (answer) answer(from);
  }
  // Proxies::Nodes
  bool may_serve() override { return true; }
  void drop(NodeId, const std::string&) override {}

  /// Returns the end of a process that has connected and said nothing.
  PlayedPeer connect() {
    auto ends = os::LocalSocket::pair().value();
    Process& process = processes.add(os::LocalSocket(std::move(ends.first)));
    return {process.index, os::LocalSocket(std::move(ends.second)), {}};
  }
  /// Returns the end of a worker that has its ring.
  PlayedPeer worker() {
    PlayedPeer peer = connect();
    Process& process = of(peer);
    process.kind = wire::ProcessKind::worker;
    process.speaks_as = Talker::worker;
    processes.open_ring(process, ring::Doorbell::create().value(),
                        ring::ChannelMemory::create().value(), {});
    std::vector<Fd> ends;
    const auto welcome = peer.read<wire::Welcome>(&ends);
    EXPECT_TRUE(welcome && ends.size() == 3);
    if (!welcome || ends.size() != 3) return peer;
    EXPECT_EQ(welcome->process, peer.index);
    auto bell = std::make_shared<ring::Doorbell>(
        ring::Doorbell::attach(std::move(ends[1]), std::move(ends[2])).value());
    peer.ring = ring::Channel(ring::ChannelMemory::attach(std::move(ends[0])).value(), 1,
                              std::move(bell), welcome->agent_slot);
    return peer;
  }
  Process& of(const PlayedPeer& peer) { return *processes.record(peer.index); }
  bool post(PlayedPeer& peer, const wire::NodeMessage& message) {
    return peer.ring.send(wire::FrameWriter().encode(message));
  }

  static constexpr NodeId kSelfNode{0, 1};
  const std::string name = "node";
  std::vector<std::pair<ProcessIndex, std::size_t>> handled;  ///< sender, kind
  std::function<void(Process& from)> answer;                  ///< what follows each of them
  QuietReferences quiet;
  QuietActors quiet_actors;
  NoProcesses none;
  InFlightRefs in_flight_refs;
  scheduling::LeaseTable table;
  ReferenceTable references{quiet};
  ActorHost actors{quiet_actors, quiet_actors, kSelfNode};
  Leases leases{kSelfNode, false, {table, remote, actors, lineage, *this, none}};
  LineageCache lineage{references, leases, Bytes{1 << 20}};
  Proxies proxies{kSelfNode,
                  {references, remote, owners, actors, table, leases, *this, processes, *this}};
  RemoteTable remote{proxies, [this] { return processes.take_index(); }};
  Owners owners{kSelfNode, references, remote};
  NodeEvents events{name, kSelfNode};
  Processes processes{
      {name, events, references, in_flight_refs, table, remote, actors, proxies, *this}};
};

}  // namespace troupe::agent
