/// A Store without files, for control without a data folder and for the simulator. The simulator's
/// disk tears, loses and flips bytes as a seed says.
///
///     auto disk = std::make_shared<MemoryDisk>(seed);
///     auto store = open_memory_store(disk, {}).value();      // control runs
///     disk->crash_after(2);                                  // the second durable step tears
///     … store.reset(); disk->restart();                      // power is back
///     store = open_memory_store(disk, {}).value();           // recovers, or refuses
#pragma once

#include "troupe/runtime/base/random.hpp"
#include "troupe/runtime/control/store.hpp"

#include <array>
#include <cstdint>
#include <memory>
#include <string>

namespace troupe::control {

/// The part that survives a crash: a journal of framed records and the two mark slots. The owner
/// keeps it across stores. Not thread-safe.
class MemoryDisk {
 public:
  explicit MemoryDisk(std::uint64_t seed = 0) : random_(seed) {}

  /// Makes the `steps`-th durable step from now (1 = the next) fail: any part of it takes effect,
  /// from none to all. Every later step fails until restart().
  void crash_after(int steps) { steps_to_crash_ = steps; }
  bool crashed() const noexcept { return crashed_; }
  void restart() {
    crashed_ = false;
    steps_to_crash_ = 0;
  }
  void set_free_space(Bytes free) { free_ = free; }
  std::uint64_t durable_steps() const noexcept { return steps_; }

  // Damage, for tests of what open() refuses. Each returns false when there was nothing to damage.
  bool flip_bit();   ///< one bit of the journal or of a slot
  bool cut_tail();   ///< the journal loses a random number of its last bytes, synced or not
  bool zero_part();  ///< up to 512 bytes become zero, in the journal or a slot
  bool swap_slots_with(MemoryDisk& other);  ///< the mark of another store
  bool drop_slots();

 private:
  friend class MemoryMedium;
  bool begin_step();  ///< returns false when the step must fail
  std::byte* random_byte();

  Random random_;
  std::string journal_;
  std::array<Slot, 2> slots_{};
  bool settled_ = false;
  bool crashed_ = false;
  int steps_to_crash_ = 0;
  std::uint64_t steps_ = 0;
  Bytes free_{1ull << 40};
};

/// Does what Store::open does. The disk may be opened again once the store is destroyed.
Result<std::unique_ptr<Store>> open_memory_store(std::shared_ptr<MemoryDisk> disk,
                                                 StoreOptions options);

}  // namespace troupe::control
