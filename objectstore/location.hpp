/// Names of objects and extents in a node's shared memory: plain values that travel in messages.
///
///     Location at = client.seal(std::move(allocation));   // where the bytes lie on this node
///     send(peer, at);                                     // field by field; a peer opens it
#pragma once

#include <compare>
#include <cstdint>

namespace troupe::objectstore {

/// The sizes of the shared tables of a node. The agent chooses them once, and every process gets
/// them in its Membership. The tables are sparse: only the pages of slots in use cost memory. The
/// rest is address space, by default 1 GiB of pins per process and 2 GiB of retirements, which all
/// share.
struct Layout {
  std::uint32_t processes = 1024;  ///< processes at one time, the agent included
  std::uint32_t slots = 1 << 18;   ///< objects of one process at one time
  std::uint32_t extents = 1 << 14;
  friend bool operator==(const Layout&, const Layout&) = default;
};

/// Names one extent of a node: a table index (20 bits), which is reused, and a serial number, which
/// is not. Zero names no extent.
struct ExtentId {
  std::uint64_t value = 0;
  static constexpr ExtentId make(std::uint64_t serial, std::uint32_t index) noexcept {
    return {serial << 20 | index};
  }
  constexpr std::uint32_t index() const noexcept {
    return static_cast<std::uint32_t>(value & 0xfffff);
  }
  explicit constexpr operator bool() const noexcept { return value != 0; }
  friend constexpr auto operator<=>(ExtentId, ExtentId) = default;
};

/// Where an object lies on its node, and which generation of the slot is meant. A location is a
/// hint that open() verifies: an old, forged or damaged one is refused and never leads to other
/// bytes.
struct Location {
  std::uint32_t process = 0;     ///< index of the process whose segment publishes it
  std::uint32_t slot = 0;        ///< in that segment
  std::uint64_t generation = 0;  ///< incarnation of the process index (high half), count (low half)
  ExtentId extent;
  std::uint64_t offset = 0;  ///< bytes from the start of the extent; a multiple of 64
  std::uint64_t length = 0;  ///< bytes
  std::uint32_t tag = 0;     ///< chosen by the writer; compared, never interpreted

  constexpr std::uint32_t incarnation() const noexcept {
    return static_cast<std::uint32_t>(generation >> 32);
  }
  friend bool operator==(const Location&, const Location&) = default;
};

}  // namespace troupe::objectstore
