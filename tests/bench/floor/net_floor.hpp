/// Floors of the network: the best that two processes of this machine reach over encrypted
/// loopback TCP. Measured are a message and its answer through ZeroMQ with CURVE, such messages
/// in one direction, and bytes through a socket, in the clear and sealed with AES-256-GCM.
///
///     const Sample s = zmq_round_trip(Placement::two_cpus);   // microseconds
///
/// Every function forks the other side and returns the median of several runs. Each side stays on
/// its CPU with all its threads. The calling process must have no other threads. A call takes up
/// to a second.
#pragma once

#include "measure.hpp"

#include <cstddef>

namespace troupe::bench {

/// Size of the object that is sent, in bytes.
inline constexpr std::size_t kCrossing = std::size_t{64} << 20;

/// Microseconds for a message of kMessageBytes and an answer of the same size.
Sample zmq_round_trip(Placement placement);
/// Messages of kMessageBytes per second.
Sample zmq_one_way(Placement placement);
/// GB/s for kCrossing bytes into the other side's memory, which both sides have touched before.
Sample tcp_rate(Placement placement, bool sealed);

/// All floors above, as rows.
std::vector<Row> net_rows();

}  // namespace troupe::bench
