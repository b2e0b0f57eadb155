/// Bytes between two processes over loopback, sealed, both ways at once: over links, and over plain
/// sockets, which is the floor of links.
///
///     double seconds = LinkStream(16 << 20).measure(/*times=*/20);     // the median of one time
///     double floor = LinkFloor(16 << 20, /*adds=*/false).measure(20);
#pragma once

#include "measure.hpp"

#include "troupe/actors/collective/tcp/door.hpp"
#include "troupe/runtime/base/fd.hpp"

#include <cstddef>
#include <functional>
#include <memory>

namespace troupe::bench {

/// Two processes, each on its CPU, that exchange on command. The other one is forked and ends with
/// this object. Precondition: this process has no other threads. Throws std::runtime_error when a
/// side does not come to an end within kBound.
class Exchange {
 public:
  /// `connect` runs in each process, with its side (0: this one) and a stream to the other. It
  /// returns the function that exchanges the bytes once.
  explicit Exchange(const std::function<std::function<void()>(int side, int stream)>& connect);
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;
  /// Returns the median seconds of one exchange.
  double measure(int times);

 private:
  Fd stream_;
  std::unique_ptr<Other> other_;
  std::function<void()> once_;
};

/// Returns the door of a side that has met the other one's over the stream.
std::shared_ptr<collective::Door> met_door(int side, int stream);

/// Each side seals `bytes` in frames of 256 KiB and sends them while it receives and opens as many.
/// `adds`: it also adds them to its own, as floats.
class LinkFloor : public Exchange {
 public:
  LinkFloor(std::size_t bytes, bool adds);
};

/// The same over a link of two doors, without adding.
class LinkStream : public Exchange {
 public:
  explicit LinkStream(std::size_t bytes);
};

}  // namespace troupe::bench
