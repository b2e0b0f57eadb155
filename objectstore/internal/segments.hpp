/// The layout of a node's shared tables, and the Memory policies with which the pin protocol
/// accesses them. Publications and pins: one memfd each per process, which alone writes it.
/// Retirements: one memfd, which the agent alone writes.
#pragma once

#include "troupe/objectstore/internal/pin_protocol.hpp"
#include "troupe/objectstore/location.hpp"

#include <atomic>
#include <cstddef>
#include <span>

namespace troupe::objectstore::internal {

/// The extent of a large object has a multiple of this size.
constexpr std::uint64_t kExtentGrain = 64 << 10;

static_assert(std::atomic<std::uint64_t>::is_always_lock_free &&
                  std::atomic<std::uint32_t>::is_always_lock_free,
              "atomics in shared memory must be plain words");

/// One slot of a process's publications, on a cache line of its own. All bits zero is an empty
/// slot.
struct alignas(64) Publication {
  std::atomic<std::uint64_t> head;  ///< generation and SlotState; the other fields belong to them
  std::atomic<std::uint64_t> extent;
  std::atomic<std::uint64_t> offset;
  std::atomic<std::uint64_t> length;
  std::atomic<std::uint32_t> tag;
};
static_assert(sizeof(Publication) == 64);

using PinWord = std::atomic<std::uint32_t>;         ///< views of one object in one process
using RetirementWord = std::atomic<std::uint64_t>;  ///< highest retired generation of a slot

constexpr std::uint64_t publications_bytes(const Layout& layout) noexcept {
  return std::uint64_t{layout.slots} * sizeof(Publication);
}
constexpr std::uint64_t pins_bytes(const Layout& layout) noexcept {
  return std::uint64_t{layout.processes} * layout.slots * sizeof(PinWord);
}
constexpr std::uint64_t retirements_bytes(const Layout& layout) noexcept {
  return std::uint64_t{layout.processes} * layout.slots * sizeof(RetirementWord);
}
/// Returns the index of a slot in pins and retirements.
constexpr std::size_t cell(const Layout& layout, std::uint32_t process,
                           std::uint32_t slot) noexcept {
  return std::size_t{process} * layout.slots + slot;
}

/// The accesses of a reader to one slot.
struct ReaderMemory {
  PinWord& pins;
  const RetirementWord& retirement;
  const Publication& publication;

  void add_pin() noexcept { pins.fetch_add(1, std::memory_order_seq_cst); }
  std::uint32_t remove_pin() noexcept { return pins.fetch_sub(1, std::memory_order_seq_cst); }
  std::uint64_t retired() const noexcept { return retirement.load(std::memory_order_seq_cst); }
  std::uint64_t head() const noexcept { return publication.head.load(std::memory_order_seq_cst); }
};

/// The accesses of the agent to one slot; `pins` are the pin tables of the living processes.
struct AgentMemory {
  RetirementWord& retirement;
  std::span<const PinWord* const> pins;
  std::size_t at;  ///< cell() of the slot

  void set_retired(std::uint64_t generation) noexcept {
    retirement.store(generation, std::memory_order_seq_cst);
  }
  std::uint32_t processes() const noexcept { return static_cast<std::uint32_t>(pins.size()); }
  std::uint32_t pins_of(std::uint32_t p) const noexcept {
    return pins[p][at].load(std::memory_order_seq_cst);
  }
};

/// The accesses of the writer to one slot. The fields are stored relaxed: set_head() follows, and
/// its seq_cst store releases them. They are atomics since a reader of an older generation may load
/// them at the same time.
struct WriterMemory {
  Publication& publication;

  void set_fields(const Location& at) noexcept {
    publication.extent.store(at.extent.value, std::memory_order_relaxed);
    publication.offset.store(at.offset, std::memory_order_relaxed);
    publication.length.store(at.length, std::memory_order_relaxed);
    publication.tag.store(at.tag, std::memory_order_relaxed);
  }
  void set_head(std::uint64_t word) noexcept {
    publication.head.store(word, std::memory_order_seq_cst);
  }
};

}  // namespace troupe::objectstore::internal
