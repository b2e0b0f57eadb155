/// The suite "remote": calls and objects that cross from one node to another, both on this machine,
/// over encrypted loopback TCP, against what ZeroMQ with CURVE and a sealed TCP stream can do.
///
///     std::vector<Judged> rows = run_remote({.rounds = 5});
///
/// Every row is measured `rounds` times, its floor just before it in the same round. Placement
/// two_cpus: driver and its agent on one CPU, the other node with its worker on the other, and the
/// floor's two processes likewise; one_cpu: everything on one.
#pragma once

#include "core.hpp"

namespace troupe::bench {

/// Precondition: as of run_core().
std::vector<Judged> run_remote(const CoreOptions& options);
std::vector<std::string> remote_names();

}  // namespace troupe::bench
