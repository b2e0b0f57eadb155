/// What two processes of one machine can do over loopback TCP with encryption and nothing else: a
/// message there and back through ZeroMQ with CURVE, such messages one way, bytes through a socket
/// in the clear and sealed with AES-256-GCM.
///
///     const Sample s = zmq_round_trip(Placement::two_cpus);   // microseconds
///
/// Every function forks its other side, which stays on its CPU with all its threads, as this side
/// does, and returns the median of several runs. To be called from a process without other threads;
/// takes up to a second each.
#pragma once

#include "measure.hpp"

#include <cstddef>

namespace troupe::bench {

/// Bytes of an object that crosses.
inline constexpr std::size_t kCrossing = std::size_t{64} << 20;

/// Microseconds for a message of kMessageBytes there and one back.
Sample zmq_round_trip(Placement placement);
/// Messages of kMessageBytes a second.
Sample zmq_one_way(Placement placement);
/// GB/s of kCrossing bytes into the other side's memory, warm on both sides.
Sample tcp_rate(Placement placement, bool sealed);

/// All of the above.
std::vector<Row> net_rows();

}  // namespace troupe::bench
