/// Line: a head's links to the heads of the segments below and above it, and how data moves over
/// them. Both directions move at once. What comes down waits only for what goes down, and the first
/// head waits for nothing there; so the line cannot lock up, however small the buffers are.
#pragma once

#include "troupe/actors/collective/nodes/internal/call_head.hpp"
#include "troupe/actors/collective/nodes/internal/wires.hpp"

#include <cstdint>
#include <vector>

namespace troupe::collective::nodes {

/// Rows of memory that count as one range of bytes. All rows have the same width.
struct View {
  std::vector<std::byte*> rows = {};
  std::uint64_t width = 0;
  std::uint64_t bytes() const noexcept { return rows.size() * width; }
  /// Returns bytes from `offset` on, in `scratch` where they are in several rows.
  const std::byte* read(std::uint64_t offset, std::uint64_t count, std::byte* scratch) const;
  void write(std::uint64_t offset, std::span<const std::byte> from) const;
};

/// The elements of a reduction that a head takes part in.
struct Sum {
  DType type = DType::u8;
  Reduce reduce = Reduce::sum;
  int ranks = 0;                 ///< of the group
  std::uint64_t chunk = 1;       ///< elements of a frame
  std::vector<View> parts = {};  ///< of the segment's ranks
  std::uint64_t count = 0;       ///< elements that go up
  std::uint64_t begin = 0;       ///< the segment gets the results from this element
  std::uint64_t end = 0;         ///< to this one
  std::byte* place = nullptr;    ///< where the segment's results go
};

/// What goes one way: this head's own bytes, and bytes that come from the side before.
struct Flow {
  struct Part {
    View view;
    bool own = false;
  };
  bool up = true;
  std::vector<Part> parts = {};  ///< in the order in which they go
};

class Line {
 public:
  Line(Wires& wires, internal::ArenaCommunicator& inner, const Layout& layout, int rank);
  bool has_lower() const noexcept { return lower_ != nullptr; }
  bool has_upper() const noexcept { return upper_ != nullptr; }

  /// Makes the links, unless they are there. Throws Unavailable.
  void open();
  /// Does the same; an error ends the group.
  void open_or_fail();
  /// Counts in an operation of the devices. Neighbours compare them when begin() meets them next.
  void note_device(const internal::Operation& operation) noexcept;
  /// Begins an operation: its neighbours get its call, and compare it.
  void begin(const internal::Operation& operation, Duration timeout, const Post* self);
  /// Move a piece, and wait for the ends. Throw as Wires::rest().
  void add(const Sum& sum);
  /// `chunk`: bytes of a frame.
  void move(const std::vector<Flow>& flows, std::uint64_t chunk);

 private:
  class Course;
  class Adding;
  class Moving;
  void run(Course& course);
  void take_call(Side& side);
  bool can_read(const Side* side) const noexcept;
  bool can_write(const Side* side) const noexcept;
  /// Returns the next frame of the side, which must have this size.
  const std::byte* take(Side& side, std::uint64_t bytes);
  std::byte* scratch(std::size_t which);

  struct Neighbour {
    Side* side = nullptr;
    bool call_sent = true;
    bool call_came = true;
  };

  Wires& wires_;
  internal::ArenaCommunicator& inner_;
  const Layout& layout_;
  int rank_;
  Side* lower_ = nullptr;
  Side* upper_ = nullptr;
  Neighbour up_, down_;
  const internal::Operation* operation_ = nullptr;
  Duration timeout_{};
  const Post* self_ = nullptr;
  CallHead mine_;
  std::uint64_t meetings_ = 0;  // operations of all ranks that have begun
  std::uint64_t device_ = 0;    // a hash of the devices' operations
  std::vector<std::vector<std::byte>> scratch_;
};

}  // namespace troupe::collective::nodes
