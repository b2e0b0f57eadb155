/// A group whose ranks move memory of GPUs by NCCL, which is opened at run time
/// (nccl/internal/library.hpp says where it is looked for).
///
///     auto host = join_shm_group(memory, rank, /*generation=*/7);
///     auto group = join_nccl_group(std::move(host), cuda_device(0));
///     Work sum = group->all_reduce(gradients);       // device memory; returns at once
///     sum.wait(device);                              // the device waits, the host does not
///
/// The group that it is made over has the same ranks and speaks for them. NCCL itself names no rank
/// that is missing and finds no call that differs. So every operation is agreed on by its ranks
/// over that group first, by a few words of shared memory; only then NCCL gets it. COLL-1 and
/// COLL-3 of communicator.hpp hold as there, with its words, for all that happens before the devices begin.
///
/// - A call returns when its ranks have asked for the same and the operation is in the device's
///   queue; Work ends when the device has done it. Progress::thread changes nothing: NCCL is called
///   on the calling thread alone.
/// - An operation begins after all that compute() of the device held when it was called, and after
///   Terms::after.
/// - Memory of the host goes over the group below, within the call. Within one operation all memory
///   is of one kind.
/// - Each reduction has NCCL's own order, also of 16-bit numbers, which are rounded at every step:
///   ranks get equal bits, other back ends get others (E1). The least and the greatest of values
///   with a NaN may be a number. Subnormal numbers count.
/// - A group() or exchange() begins when all its ends have been asked for. A host that waits for its
///   device between two of them may keep another rank's from its beginning: within a schedule of
///   sends, let the device wait (Work::wait(device)) and the host go on.
/// - A send ends when its receiver has the message. Who sends to itself receives in the same
///   exchange() or group().
/// - The end of a communicator waits for the operations that Work::wait(device) has left to the
///   device, each within its timeout, so a rank may leave right after its last call.
/// - barrier() returns when every rank has called it and what each asked for before has ended.
/// - An operation that the device has not done within the timeout ends the group with TimedOut, as
///   does the death of a process with WorkerDied and an error of NCCL with Cancelled. All of the
///   group's communicators of this device are aborted before anybody hears of it, so no memory is
///   written any more then. One that cannot be aborted within NcclOptions::abort_within ends the
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

/// Blocks until all ranks of `host`, a `local` or `shm` group, have called it; NCCL's id travels
/// over that group. The result has its ranks and its timeout.
///
/// While NCCL is opened, NCCL_LAUNCH_ORDER_IMPLICIT is set to 1 unless it is set: operations of
/// several communicators then run on a device in the order of their calls.
///
/// Throws InvalidArgument for a device that is the CPU, or a group that is neither; Unavailable
/// when there is no NCCL, or it refuses: the group is over then on all ranks. Throws what a
/// barrier() throws when a rank does not come.
TROUPE_API std::unique_ptr<Communicator> join_nccl_group(std::unique_ptr<Communicator> host,
                                                         const kernels::Device& device,
                                                         const NcclOptions& options = {});

/// The group for tensors of a device: `host` itself for the CPU, else join_nccl_group(). A null
/// group stays one.
TROUPE_API std::unique_ptr<Communicator> join_device_group(std::unique_ptr<Communicator> host,
                                                           const kernels::Device& device);

}  // namespace troupe::collective
