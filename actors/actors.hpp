/// Collectives among ranks: groups of threads or processes that add, share and pass tensors.
///
///     auto ranks = collective::local_group(2);
///     std::thread other([&] { ranks[1]->all_reduce(theirs).wait(); });
///     ranks[0]->all_reduce(mine).wait();                    // every rank has the sum
///     other.join();
///
/// Front door. Communicator is one rank's end of a group, Work an operation in progress, Mesh one
/// rank's groups in a world that is divided along three axes, Call the name of what a program does
/// with them. Groups come from local/ (threads of one process), shm/ (processes of one node) or
/// Mesh::from_environment() (a launcher's processes).
#pragma once

#include "troupe/actors/collective/call.hpp"
#include "troupe/actors/collective/communicator.hpp"
#include "troupe/actors/collective/local/local.hpp"
#include "troupe/actors/collective/mesh.hpp"
#include "troupe/actors/collective/shm/shm.hpp"
#include "troupe/actors/collective/traffic.hpp"
#include "troupe/actors/collective/work.hpp"
