/// A group whose ranks move memory of GPUs by NCCL, which is opened at run time
/// (nccl/internal/library.hpp says where it is looked for).
///
///     auto host = join_shm_group(memory, rank, /*generation=*/7);
///     auto group = join_nccl_group(std::move(host), cuda_device(0));
///     Work sum = group->all_reduce(gradients);       // device memory; returns at once
///     sum.wait(device);                              // the device waits, the host does not
///
/// The host group has the same ranks and coordinates them. NCCL itself names no missing rank and
/// detects no difference between calls. So the ranks of a node agree on every operation over the
/// host group first, by a few words of shared memory, and only then NCCL gets it. COLL-1 and COLL-3
/// of communicator.hpp hold, with the same texts, for all errors before the devices begin.
///
/// A group over several nodes differs in this: a rank does not wait for other nodes' ranks before
/// its device begins, unless it sends to one of them or receives from it. Where nodes have made
/// different operations, the group's next operation on host memory ends with InvalidArgument, or a
/// device does not end its operation within the timeout. NCCL's traffic is not encrypted.
///
/// - A call returns when its ranks have started the same operation and it is in the device's queue.
///   Work ends when the device has done it. Progress::thread has no effect: NCCL is called on the
///   calling thread only.
/// - An operation begins after all work that was in the device's compute() queue at the call, and
///   after Terms::after.
/// - An operation on host memory runs over the host group, within the call. All memory of an
///   operation is of one kind.
/// - Each reduction has NCCL's own order. 16-bit numbers are rounded at every step. All ranks get
///   equal bits, but not those of other back ends. The minimum or maximum of values with a NaN may
///   be a number. Subnormal numbers count.
/// - A group() or exchange() begins when all its ends have been called. A host that waits for its
///   device between two of them may keep another rank's operation from its beginning. So within a
///   schedule of sends, let the device wait (Work::wait(device)) and the host go on.
/// - A send ends when its receiver has the message. A rank that sends to itself receives in the
///   same exchange() or group().
/// - The destructor of a communicator waits for the operations that Work::wait(device) has left to
///   the device, each within its timeout. So a rank may leave right after its last call.
/// - barrier() returns when every rank has called it and all earlier operations of each rank have
///   ended.
/// - The group ends with TimedOut when the device has not done an operation within the timeout,
///   with WorkerDied when a process dies, and with Cancelled after an error of NCCL. All of the
///   group's communicators of this device are aborted before any Work reports the error, so no
///   memory is written after that. An abort that hangs for NcclOptions::abort_within ends the
///   process by SIGKILL, after a line on stderr.
///
/// **NCCL has not run on a device so far.** The tests run this back end with a library of their own
/// in NCCL's place, on memory of the host.
#pragma once

#include "troupe/actors/collective/communicator.hpp"
#include "troupe/kernels/device/device.hpp"

#include <chrono>
#include <memory>

namespace troupe::collective {

struct NcclOptions {
  Duration abort_within = std::chrono::seconds(10);
};

/// Makes a group over `host`, a `local`, `shm` or `nodes` group, with its ranks and its timeout.
/// Blocks until all ranks of `host` have called it; NCCL's id travels over `host`.
///
/// Sets NCCL_LAUNCH_ORDER_IMPLICIT to 1 in the environment unless it is set. Operations of several
/// communicators then run on a device in the order of their calls.
///
/// Errors: throws InvalidArgument for the CPU, or a group of another back end. Throws Unavailable
/// when there is no NCCL, or NCCL refuses; the group is then over on all ranks. Throws as barrier()
/// when a rank does not come.
TROUPE_API std::unique_ptr<Communicator> join_nccl_group(std::unique_ptr<Communicator> host,
                                                         const kernels::Device& device,
                                                         const NcclOptions& options = {});

/// Returns the group for tensors of a device: `host` itself for the CPU, else join_nccl_group().
/// Returns null for a null group.
TROUPE_API std::unique_ptr<Communicator> join_device_group(std::unique_ptr<Communicator> host,
                                                           const kernels::Device& device);

}  // namespace troupe::collective
