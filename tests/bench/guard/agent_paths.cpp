#include "bench/guard/agent_paths.hpp"

#include "runtime/agent/quiet_tables.hpp"
#include "troupe/runtime/agent/reference_table.hpp"
#include "troupe/runtime/agent/remote.hpp"
#include "troupe/runtime/scheduling/lease_table.hpp"
#include "troupe/runtime/wire/batch.hpp"
#include "troupe/runtime/wire/peer.hpp"
#include "troupe/runtime/wire/plain.hpp"

#include <array>
#include <cstdlib>
#include <string>
#include <variant>
#include <vector>

namespace {

using namespace troupe;

constexpr int kChunk = guard::kAgentChunk;
constexpr NodeId kHere{0, 1}, kThere{0, 2};

void expect(bool holds) {
  if (!holds) std::abort();
}

scheduling::LeaseOptions one_cpu() {
  scheduling::LeaseOptions options;
  options.total.cpus = scheduling::kUnit;
  options.max_workers = 1;
  return options;
}

/// One CPU and its worker: each round a request is granted and the lease returned.
struct Leases {
  scheduling::LeaseTable table{one_cpu(), kHere};
  scheduling::ResourceDemand demand;

  Leases() {
    demand.need.cpus = scheduling::kUnit;
    table.request(10, 1, demand, 1, Time{});
    expect(std::holds_alternative<scheduling::StartWorker>(table.take_events().at(0)));
    table.worker_started(20, Time{});
    const auto events = table.take_events();
    table.returned(std::get<scheduling::Granted>(events.at(0)).lease, Time{});
  }
};

struct Silent final : agent::ReferenceTable::Out {
  void ready(ProcessIndex, ObjectId, const wire::Value&, BlobView) override {}
  void free(const wire::Location&) override {}
  void unreferenced(ActorId) override {}
};

/// Promoted objects of a process; each round another process holds one and lets go of it.
struct References {
  Silent out;
  agent::ReferenceTable table{out};
  std::vector<ObjectId> objects;

  References() {
    for (int i = 0; i < kChunk; ++i) {
      objects.push_back({7, static_cast<std::uint64_t>(i + 1)});
      table.promote(10, objects.back(), {}, {});
    }
  }
};

/// A node as RemoteTable sees it: all its processes live.
struct Remote final : agent::QuietRemote {
  ProcessIndex next = 100;
  std::vector<wire::PeerMessage> sent;
  agent::RemoteTable table{*this, [this] { return next++; }};

  void send(NodeId, const wire::PeerMessage& message) override { sent.push_back(message); }
  bool hosts(ProcessIndex, ActorId, std::uint64_t) override { return true; }
};

/// A caller here and an actor's worker there, joined by a proxy channel on each side. A round is a
/// plain call out of the caller's ring, over a batch, to the place of the worker's ring.
struct Carriers {
  Remote here, there;
  ProcessIndex caller = 10, worker = 20, proxy = 0;
  wire::PeerWriter writer;
  wire::PlainFrame plain;
  wire::PlainCall call;
  Blob batch;
  std::uint64_t entered = 0;

  Carriers() {
    call.count = 2;
    proxy = here.table.connect(caller, kThere, worker, ActorId{3, 5}, 1);
    deliver();
  }
  void deliver() {
    for (const auto& message : std::exchange(here.sent, {})) there.table.on_message(kHere, message);
    for (const auto& message : std::exchange(there.sent, {}))
      here.table.on_message(kThere, message);
  }
};

}  // namespace

#define HOT extern "C" __attribute__((noinline, visibility("default"))) void

/// A lease granted and returned.
HOT hot_lease(Leases& s) {
  for (int i = 0; i < kChunk; ++i) {
    s.table.request(10, 1, s.demand, 1, Time{});
    const auto events = s.table.take_events();
    s.table.returned(std::get<scheduling::Granted>(events.at(0)).lease, Time{});
  }
}
/// A count taken and returned, in one pass of the loop for all of them.
HOT hot_hold(References& s) {
  for (const ObjectId& object : s.objects) s.table.hold(object, 20, +1, 10);
  for (const ObjectId& object : s.objects) s.table.hold(object, 20, -1, 20);
  s.table.settle();
}
/// A plain call between nodes, without rings and sockets.
HOT hot_carry(Carriers& s) {
  for (int i = 0; i < kChunk; ++i) {
    ++s.call.sequence;
    const BlobView frame = wire::write_plain(s.call, s.plain);
    wire::PlainCall read;
    BlobView payload;
    expect(wire::read_plain(frame, read, payload) && s.here.table.may_carry(s.caller, s.proxy));
    wire::PeerFrame carried;
    carried.from = s.caller;
    carried.to = s.here.table.target(s.proxy).process;
    wire::append_frame(s.batch, wire::Protocol::peer, s.writer.encode(carried, frame));
    s.here.table.carried(s.caller, s.proxy);
  }
  expect(wire::split_batch(s.batch, [&](wire::Protocol, BlobView frame) {
           const auto message = wire::decode_peer(frame);
           const auto& carried = std::get<wire::PeerFrame>(message->message);
           wire::PlainCall read;
           BlobView payload;
           expect(wire::read_plain(message->payload, read, payload));
           const auto proxy = s.there.table.arrived(kHere, carried);
           s.there.table.entered(carried.to, proxy.value(), ++s.entered);
           return true;
         }).ok());
  s.batch.clear();
}

namespace troupe::guard {

void run_agent_paths(int times) {
  Leases leases;
  References references;
  Carriers carriers;
  for (int i = 0; i < times; ++i) hot_lease(leases);
  for (int i = 0; i < times; ++i) hot_hold(references);
  for (int i = 0; i < times; ++i) {
    hot_carry(carriers);
    carriers.deliver();
  }
}

}  // namespace troupe::guard
