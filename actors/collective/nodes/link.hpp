/// Link: a stream of frames between two ranks of a group, and LinkSource, which makes the links of
/// one rank. The back end `nodes` moves everything between nodes over links; `tcp` makes sealed
/// ones.
///
///     std::unique_ptr<Link> link = source.link({.first = 0, .lane = 2}, /*peer=*/3);
///     link->advance();                                   // opens, reads and writes; never waits
///     if (link->can_send()) link->send(FrameKind::data, bytes);
///     if (link->has_frame()) { use(link->front()); link->pop(); }
///     poll({link->watched(), ...});                      // then advance() again
#pragma once

#include "troupe/runtime/base/error.hpp"

#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace troupe::collective {

/// The most bytes of one frame.
inline constexpr std::size_t kMaxFrame = std::size_t{256} << 10;

/// What a frame says. `left`: its sender has left the group, and nothing follows. `end`: its sender
/// has ended the group (code and text). `waits`: its sender waits, and for which rank.
enum class FrameKind : std::uint8_t { data = 1, waits, end, left };

struct Frame {
  FrameKind kind = FrameKind::data;
  std::span<const std::byte> bytes;
};

/// Names a stream between two ranks: a group by the world rank of its first member and by that
/// member's lane, and a use within the group (0: the line of heads; others: pairs).
struct LinkName {
  std::uint32_t first = 0;
  std::uint32_t lane = 0;
  std::uint32_t use = 0;
  friend bool operator==(const LinkName&, const LinkName&) = default;
};

/// One end of a stream. One thread at a time; nothing waits or throws.
class Link {
 public:
  enum class State : std::uint8_t {
    opening,  ///< the other end has not proven itself yet; frames may be queued
    open,
    closed,  ///< no more frames come after those that has_frame() still shows; see code(), why()
  };
  Link() = default;
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  virtual ~Link() = default;

  /// Opens, reads and writes as far as that goes without waiting.
  virtual void advance() noexcept = 0;
  /// Returns what poll(2) is to watch before advance() is of use again. A descriptor of -1: nothing
  /// to watch, call advance() again within 10 ms. In state `opening`, which has a deadline, call it
  /// every 50 ms in any case.
  virtual pollfd watched() const noexcept = 0;

  /// Returns whether send() takes a frame now.
  virtual bool can_send() const noexcept = 0;
  /// Queues a frame of at most kMaxFrame bytes, which it copies (or seals), and writes what it can.
  /// Precondition: can_send().
  virtual void send(FrameKind kind, std::span<const std::byte> bytes) noexcept = 0;
  /// Returns whether all frames that were sent have been written to the system.
  virtual bool is_flushed() const noexcept = 0;

  /// The oldest frame that came. Its bytes are valid until pop(). Precondition: has_frame().
  virtual bool has_frame() const noexcept = 0;
  virtual Frame front() const noexcept = 0;
  virtual void pop() noexcept = 0;

  virtual State state() const noexcept = 0;
  /// closed: worker_died when the stream ended without `left`; unavailable when it ended after
  /// `left`, could not be opened, or brought a frame that is not authentic; and a sentence, which
  /// names an address where it helps.
  virtual Code code() const noexcept = 0;
  virtual std::string why() const = 0;
};

/// Makes the links of one rank of a world. Any thread. Outlives its links.
class LinkSource {
 public:
  LinkSource() = default;
  LinkSource(const LinkSource&) = delete;
  LinkSource& operator=(const LinkSource&) = delete;
  virtual ~LinkSource() = default;
  /// Returns this rank's end of the stream to rank `peer` of the world. The lower rank connects, the
  /// higher one is connected to. Each name and peer may be asked for once.
  virtual std::unique_ptr<Link> link(const LinkName& name, int peer) = 0;
};

}  // namespace troupe::collective
