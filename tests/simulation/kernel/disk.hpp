/// The faults that the simulator injects into a node's storage. An in-memory Store implements
/// this interface, so a simulated crash takes from it exactly what a real crash may take.
///
///     struct MyDisk : sim::Disk { bool inject(sim::Fault f, Random& r) override { ... } };
///     world.attach_disk(0, std::make_shared<MyDisk>());
#pragma once

#include "tests/simulation/kernel/faults.hpp"

namespace troupe::sim {

/// The storage of one simulated machine; it outlives the processes on it.
class Disk {
 public:
  virtual ~Disk() = default;

  /// Applies a fault and says whether it changed anything:
  ///   lost_unsynced  the machine crashed: everything not yet synced is gone
  ///   torn_write     the same, but a random part of the last unsynced write remains
  ///   bit_flip       one stored bit changes
  ///   disk_full, slow_disk  holds until heal()
  /// Kinds it does not know return false.
  virtual bool inject(Fault fault, Random& random) = 0;
  /// Called when the process that used the disk is killed and the machine runs on. Writes that
  /// the process handed over survive.
  virtual void on_process_death() {}
  /// Ends disk_full and slow_disk.
  virtual void heal() {}
};

}  // namespace troupe::sim
