/// What two processes of one machine can do with nothing in between: a message through shared
/// memory and back, messages one way, bytes copied into shared memory that is warm. And the same
/// with troupe's ring and doorbell, to see what their checks cost.
///
///     const Sample s = ring_round_trip(Waiting::parked, Placement::one_cpu);   // microseconds
///
/// Every function forks its other side, pins both, and returns the median of several runs. To be
/// called from a process without other threads; takes about half a second each.
#pragma once

#include "measure.hpp"

#include <memory>

namespace troupe::bench {

/// What a side does until the other one has written.
enum class Waiting { spinning, parked };

/// Bytes of a message in all of these.
inline constexpr int kMessageBytes = 100;

// --- floors: slots of a cache line pair each, no length, no check, one eventfd to park on ---

/// Microseconds for a message there and one back. Spinning on one CPU makes no sense.
Sample ring_round_trip(Waiting waiting, Placement placement);

/// The same in slices, between those of what is measured beside it. The process may have threads by
/// then; it has none when this is made.
class RoundTrips {
 public:
  RoundTrips(Waiting waiting, Placement placement);
  ~RoundTrips();
  RoundTrips(const RoundTrips&) = delete;
  RoundTrips& operator=(const RoundTrips&) = delete;
  /// Microseconds for one of so many, after some that do not count. The calling thread is on its
  /// CPU of the placement. From one call to the next the other side sleeps.
  double run(int rounds);

 private:
  struct Sides;
  std::unique_ptr<Sides> sides_;
};
/// Messages a second from one CPU to another, both spinning.
Sample ring_one_way();
/// GB/s of memcpy into shared memory that has been touched before, by one or two threads.
Sample memcpy_into_shared(int threads);

/// The memcpy floor beside what is measured: memory drifts by tens of per cent within a second.
class WarmMemory {
 public:
  /// Shared memory of so many bytes, touched.
  explicit WarmMemory(std::size_t bytes);
  ~WarmMemory();
  WarmMemory(const WarmMemory&) = delete;
  WarmMemory& operator=(const WarmMemory&) = delete;
  /// GB/s of one memcpy of all of its bytes.
  double copy_rate(const void* from);

 private:
  void* at_;
  std::size_t bytes_;
};

// --- the same with runtime/ring ---

Sample troupe_ring_round_trip(Waiting waiting, Placement placement);
/// The reader spins briefly and then sleeps on its doorbell when the ring is empty, as a worker
/// does.
Sample troupe_ring_one_way();

/// Nanoseconds to encode and to decode a call with two small inline arguments.
Sample call_encode();
Sample call_decode();

/// All of the above as rows: `ring_*` and `memcpy_*` are floors, `troupe_*` have them as floor.
std::vector<Row> ring_rows();

}  // namespace troupe::bench
