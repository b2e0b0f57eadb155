/// The pin protocol: a reader opens an object without a system call, while the agent may free it
/// and the writer may reuse its memory. The steps are written once, over a Memory that performs
/// each shared access. The store passes its mapped tables (segments.hpp). The model test
/// (tests/objectstore/pin_model_test.cpp) passes a memory that interleaves every access of every
/// process.
///
///     reader:  pin; then is it unretired and still published?  yes: the bytes stay until unpin
///     agent:   retire; then is no pin set?                     yes: the slot may be used again
///
/// Safety is Dekker's argument. Both sides write first and read second, in one total order
/// (seq_cst), so at least one sees the other's write. A reader that sees the retirement withdraws
/// its pin. An agent that sees the pin waits.
///
/// Progress: the reader that removes the last pin reads the retirement *after* that, and reports
/// the unpin if the object is retired. So the agent either saw no pin, or gets the report, or the
/// notice of the reader's death.
///
/// Cf. hazard pointers (Michael 2004). Here a pin is a count per process, not a pointer per thread,
/// and slots have generations.
///
/// All accesses across processes are seq_cst loads, stores and read-modify-writes, without fences:
/// ThreadSanitizer cannot see fences.
#pragma once

#include <cstdint>

namespace troupe::objectstore::internal {

/// The state of a slot. The writer publishes it in the low 8 bits of the head word, with the
/// generation in the upper 56: one atomic word, so a reader never sees the state of one generation
/// with the number of another.
enum class SlotState : std::uint8_t { empty = 0, sealed = 1, dropped = 2 };

constexpr std::uint64_t head_word(std::uint64_t generation, SlotState state) noexcept {
  return generation << 8 | static_cast<std::uint64_t>(state);
}

enum class Pin : std::uint8_t {
  held,               ///< the slot holds that generation until unpin()
  missed,             ///< the slot does not hold it; no pin is set
  missed_and_report,  ///< like missed, and the agent may have seen the pin meanwhile: report it
};

template <class Memory>
struct PinProtocol {
  /// Reader: pins the slot if it holds `generation`. The check before the pin is not needed for
  /// safety. Without it, readers of stale locations could keep an agent waiting with pins that
  /// never hold.
  static Pin pin(Memory& memory, std::uint64_t generation) {
    if (!holds(memory, generation)) return Pin::missed;
    memory.add_pin();
    if (holds(memory, generation)) return Pin::held;
    return memory.remove_pin() == 1 ? Pin::missed_and_report : Pin::missed;
  }
  /// Reader: removes a pin that was held. Returns true if it was the last one of this process and
  /// the object is retired: the agent may be waiting, so report it. remove_pin() returns the count
  /// before.
  static bool unpin(Memory& memory, std::uint64_t generation) {
    return memory.remove_pin() == 1 && memory.retired() >= generation;
  }
  static bool holds(Memory& memory, std::uint64_t generation) {
    return memory.retired() < generation &&
           memory.head() == head_word(generation, SlotState::sealed);
  }

  /// Agent: from here on no reader pins `generation` any more.
  static void retire(Memory& memory, std::uint64_t generation) { memory.set_retired(generation); }
  /// Agent, after retire(): returns true if no process has a pin; then the slot may be reused.
  /// After false, ask again at each report of an unpin and at each death.
  static bool is_clear(Memory& memory) {
    for (std::uint32_t p = 0; p < memory.processes(); ++p)
      if (memory.pins_of(p) != 0) return false;
    return true;
  }

  /// Writer: publishes bytes that are in place. The store of the head comes last and releases the
  /// fields and bytes to readers that see it. Precondition: the slot is new, or its last generation
  /// was retired and clear.
  template <class Fields>
  static void publish(Memory& memory, std::uint64_t generation, const Fields& fields) {
    memory.set_fields(fields);
    memory.set_head(head_word(generation, SlotState::sealed));
  }
};

}  // namespace troupe::objectstore::internal
