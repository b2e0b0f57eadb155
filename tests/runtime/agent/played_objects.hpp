/// Objects on a real store, with the parts around it, for tests.
#pragma once

#include "tests/runtime/agent/played_processes.hpp"
#include "troupe/runtime/agent/objects.hpp"

#include <memory>

namespace troupe::agent {

struct PlayedObjects : PlayedProcesses {
  AgentOptions options;
  std::unique_ptr<objectstore::Host> host =
      objectstore::Host::create({.arena = Bytes{4 << 20}, .extent = Bytes{1 << 20}}).value();
  std::unique_ptr<Transfers> transfers;
  ClusterLink cluster{kSelfNode, table};
  Inquiries inquiries{*this};
  MemoryWatch memory{{name, events, options, *host, table, actors, processes}};
  ReplicaHost replica_host{kSelfNode,
                           {references, owners, cluster, inquiries, quiet_actors, *this, objects}};
  Extents extents{{name, options, *host, references, memory.accounting(), memory.prefault(), copies,
                   replica_host, *this, objects}};
  FolderCopies copies{{name, *host, references, owners, extents}};
  Objects objects{{kSelfNode, events, options, *host, references, remote, owners, actors, lineage,
                   replica_host, copies, extents, memory, processes, transfers, *this}};
};

}  // namespace troupe::agent
