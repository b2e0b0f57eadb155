/// Processes with the parts around it, for tests: it notes which messages were handled.
#pragma once

#include "tests/runtime/agent/played_outgoing.hpp"
#include "tests/runtime/agent/quiet_tables.hpp"
#include "troupe/runtime/agent/processes.hpp"

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe::agent {

struct PlayedProcesses : PlayedOutgoing, Processes::Out, Proxies::Nodes {
  struct NoProcesses : Leases::Processes {
    void start_worker(bool, JobNumber) override {}
    void end_worker(ProcessIndex) override {}
    void connect(ProcessIndex, ProcessIndex) override {}
    std::optional<std::pair<JobId, JobNumber>> job_of(ProcessIndex) override { return {}; }
    JobNumber number_of(JobId) override { return 1; }
    std::optional<ProcessIndex> lasting_process(JobNumber) override { return {}; }
  };
  explicit PlayedProcesses(scheduling::LeaseOptions options = {})
      : table(std::move(options), kSelfNode) {}
  // Processes::Out
  void handle(Process& from, wire::NodeMessage& message, BlobView, std::vector<Fd>&) override {
    handled.emplace_back(from.index, message.index());
  }
  // Proxies::Nodes
  bool may_serve() override { return true; }
  void drop(NodeId, const std::string&) override {}

  static constexpr NodeId kSelfNode{0, 1};
  const std::string name = "node";
  std::vector<std::pair<ProcessIndex, std::size_t>> handled;  ///< sender, kind
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
