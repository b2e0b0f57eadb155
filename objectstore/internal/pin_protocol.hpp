/// The pin protocol: a get without a system call that can race with free and recycle. The steps are
/// written once, over a Memory that performs each shared access: the store passes its mapped
/// tables, the model test (tests/objectstore/pin_model_test.cpp) a memory that interleaves every
/// access of every party.
///
///     reader:  pin; then is it unretired and still published?  yes: the bytes stay until unpin
///     agent:   retire; then is no pin set?                     yes: the slot may be used again
///
/// It is Dekker's flag argument: both write first and read second in one total order (seq_cst), so
/// at least one sees the other. A reader that sees the retirement backs off; an agent that sees the
/// pin waits. Nobody waits for ever: whoever takes the last pin off looks at the retirement *after*
/// it and reports it, so the agent either saw no pin or gets the report (or the death notice of the
/// process). Cf. hazard pointers (Michael 2004); here a pin is a count of a process, not a pointer
/// of a thread, and the slot has generations.
///
/// All cross-process accesses are seq_cst reads, stores and read-modify-writes: no fences, which
/// ThreadSanitizer cannot see.
#pragma once

#include <cstdint>

namespace troupe::objectstore::internal {

/// State of a slot as its writer publishes it, with the generation in the upper 56 bits.
enum class SlotState : std::uint8_t { empty = 0, sealed = 1, dropped = 2 };

constexpr std::uint64_t head_word(std::uint64_t generation, SlotState state) noexcept {
  return generation << 8 | static_cast<std::uint64_t>(state);
}

enum class Pin : std::uint8_t {
  held,               ///< the slot holds that generation until unpin()
  missed,             ///< it does not; no pin is set
  missed_and_report,  ///< so, and the agent may have seen our pin: report it
};

template <class Memory>
struct PinProtocol {
  /// Reader: pins the slot if it holds `generation`. It looks before, so that readers of stale
  /// locations do not keep an agent waiting with pins that never hold.
  static Pin pin(Memory& memory, std::uint64_t generation) {
    if (!holds(memory, generation)) return Pin::missed;
    memory.add_pin();
    if (holds(memory, generation)) return Pin::held;
    return memory.remove_pin() == 1 ? Pin::missed_and_report : Pin::missed;
  }
  /// Reader: takes off a pin that was held. True when the agent may be waiting for it: report it.
  static bool unpin(Memory& memory, std::uint64_t generation) {
    return memory.remove_pin() == 1 && memory.retired() >= generation;
  }
  static bool holds(Memory& memory, std::uint64_t generation) {
    return memory.retired() < generation &&
           memory.head() == head_word(generation, SlotState::sealed);
  }

  /// Agent: from here on no reader pins `generation` anew.
  static void retire(Memory& memory, std::uint64_t generation) { memory.set_retired(generation); }
  /// Agent, after retire(): true when no process holds a pin; then the slot may be used again.
  /// False: ask again after each report of an unpin and each death.
  static bool is_clear(Memory& memory) {
    for (std::uint32_t p = 0; p < memory.processes(); ++p)
      if (memory.pins_of(p) != 0) return false;
    return true;
  }

  /// Writer, with the bytes in place: readers may have them. Precondition: the slot is new, or its
  /// last generation was retired and clear.
  template <class Fields>
  static void publish(Memory& memory, std::uint64_t generation, const Fields& fields) {
    memory.set_fields(fields);
    memory.set_head(head_word(generation, SlotState::sealed));
  }
};

}  // namespace troupe::objectstore::internal
