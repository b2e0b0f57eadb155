/// Floors of shared memory: the best that two processes of this machine reach with nothing in
/// between. Measured are a message and its answer, messages in one direction, and bytes copied
/// into memory that was touched before. The same with troupe's ring and doorbell shows the cost
/// of their checks.
///
///     const Sample s = ring_round_trip(Waiting::parked, Placement::one_cpu);   // microseconds
///
/// Every function forks the other side, pins both, and returns the median of several runs. The
/// calling process must have no other threads. A call takes about half a second.
#pragma once

#include "measure.hpp"

#include <memory>

namespace troupe::bench {

/// How a side waits until the other one has written.
enum class Waiting { spinning, parked };

/// Bytes of a message in all measurements here.
inline constexpr int kMessageBytes = 100;

// --- floors: slots of two cache lines each, no length, no check, one eventfd to park on ---

/// Microseconds for a message and its answer. Spinning on one CPU is not supported.
Sample ring_round_trip(Waiting waiting, Placement placement);

/// The same round trips in slices, which alternate with slices of a measurement. The process must
/// have one thread when the object is made, and may have more later.
class RoundTrips {
 public:
  RoundTrips(Waiting waiting, Placement placement);
  ~RoundTrips();
  RoundTrips(const RoundTrips&) = delete;
  RoundTrips& operator=(const RoundTrips&) = delete;
  /// Returns the microseconds of one of `rounds` round trips, after some uncounted ones. The
  /// calling thread must be on its CPU of the placement. The other side sleeps between two calls.
  double run(int rounds);

 private:
  struct Sides;
  std::unique_ptr<Sides> sides_;
};
/// Messages per second from one CPU to another, with both sides spinning.
Sample ring_one_way();
/// GB/s of memcpy into shared memory that was touched before, by one or two threads.
Sample memcpy_into_shared(int threads);

/// The floor of memcpy, measured next to a measurement. The speed of memory changes by tens of
/// per cent within a second.
class WarmMemory {
 public:
  /// Allocates and touches shared memory of that size.
  explicit WarmMemory(std::size_t bytes);
  ~WarmMemory();
  WarmMemory(const WarmMemory&) = delete;
  WarmMemory& operator=(const WarmMemory&) = delete;
  /// Returns the GB/s of one memcpy of all its bytes.
  double copy_rate(const void* from);

 private:
  void* at_;
  std::size_t bytes_;
};

// --- the same with runtime/ring ---

Sample troupe_ring_round_trip(Waiting waiting, Placement placement);
/// When the ring is empty, the reader spins briefly and then sleeps on its doorbell, as a worker
/// does.
Sample troupe_ring_one_way();

/// Nanoseconds to encode and to decode a call with two small inline arguments.
Sample call_encode();
Sample call_decode();

/// All measurements above as rows. `ring_*` and `memcpy_*` are the floors of `troupe_*`.
std::vector<Row> ring_rows();

}  // namespace troupe::bench
