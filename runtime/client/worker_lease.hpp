/// What the lease of this worker reserves, and shows it to the libraries of user code: the devices
/// in CUDA_VISIBLE_DEVICES, the CPUs as threads of OpenMP and BLAS. Has the timer of its actor's
/// lease. Serves ClientEngine, under its lock. A driver has an empty one.
///
///     lease.granted(message);          // the agent has leased this worker out
///     lease.show_devices();            // on the thread that runs user code, before it runs
///
/// Invariants: WORKER-LEASE-1 Devices stay until the agent names others: a grant without devices
/// changes the demand alone. WORKER-LEASE-2 The environment changes in show_devices() only. It
/// names each device as the variable did before the first change.
#pragma once

#include "troupe/runtime/client/actor_lease_timer.hpp"
#include "troupe/runtime/client/in_place.hpp"
#include "troupe/runtime/os/library_threads.hpp"
#include "troupe/runtime/wire/messages.hpp"

#include <optional>
#include <string>
#include <vector>

namespace troupe::client {

class WorkerLease {
 public:
  /// Handles LeaseGranted without a lease, which tells a worker whose it is.
  void granted(const wire::LeaseGranted& message);
  const std::vector<int>& devices() const noexcept { return gpus_; }
  /// Returns whether the lease reserves all that a task of this demand needs, on this node.
  bool covers(const wire::ResourceDemand& demand, NodeId node) const {
    return demand_ && client::covers(*demand_, demand, node);
  }
  /// Sets CUDA_VISIBLE_DEVICES to the devices, if there is news. A library that reads the variable
  /// at its first use then sees those only.
  void show_devices() {
    if (is_news_) set_variable();
  }
  /// The worker's thread applies them before each run.
  os::LibraryThreads& library_threads() noexcept { return library_threads_; }
  /// Of the actor that lives in this process.
  ActorLeaseTimer& actor_timer() noexcept { return actor_timer_; }

 private:
  void set_variable();

  std::optional<wire::ResourceDemand> demand_;  ///< once the agent has said it
  std::vector<int> gpus_;
  std::optional<std::string> inherited_;  ///< CUDA_VISIBLE_DEVICES before the first change
  bool is_news_ = false;                  ///< the environment lacks gpus_ yet
  os::LibraryThreads library_threads_;
  ActorLeaseTimer actor_timer_;
};

}  // namespace troupe::client
