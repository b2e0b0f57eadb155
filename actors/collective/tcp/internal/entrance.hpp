/// The listening socket of a door, and the connections that have proven nothing yet. It has no
/// thread.
///
///     entrance.watch(watched);
///     wait_for(watched, ...);                        // until entrance.next_deadline()
///     entrance.advance(now, [&](Fd& connection, const Hello& hello) { ... });
#pragma once

#include "troupe/actors/collective/tcp/internal/wire.hpp"
#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/fd.hpp"

#include <poll.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace troupe::collective::internal {

class Entrance {
 public:
  static constexpr std::size_t kMostUnproven = 64;
  static constexpr Duration kUnproven = std::chrono::seconds(5);  ///< how long each may be so
  /// How long it accepts nothing after it found no descriptor left.
  static constexpr Duration kRest = std::chrono::milliseconds(100);

  enum class Verdict : std::uint8_t { taken, refused, later };
  /// Judges a connection whose hello is complete; moves the connection away when it is `taken`.
  using Judge = std::function<Verdict(Fd& connection, const Hello& hello)>;

  explicit Entrance(Fd listener) : listener_(std::move(listener)) {}
  /// Appends what poll(2) is to watch.
  void watch(std::vector<pollfd>& into) const;
  /// Reads, judges, ends late connections, and accepts some new ones. Does not block.
  void advance(Time now, const Judge& judge);
  /// When advance() has work although nothing is readable; Time::max(): never.
  Time next_deadline() const noexcept;

 private:
  struct Unproven {
    Fd fd;
    Time by;
    Hello hello{};
    std::size_t come = 0;
  };
  bool stays(Unproven& one, const Judge& judge);
  void accept_some(Time now, const Judge& judge);

  Fd listener_;
  std::vector<Unproven> unproven_;    ///< the oldest first
  Time accepts_after_ = Time::min();  ///< no descriptor was left
};

}  // namespace troupe::collective::internal
