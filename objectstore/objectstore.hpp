/// The object store: immutable bytes in shared memory that every process of a node reads in place.
///
/// A process writes an object directly into shared memory of its own, seals it, and passes on a
/// small Location. Another process opens the Location and gets a view of the same memory: no copy,
/// no system call, no message. The store knows bytes only. The runtime decides what they mean,
/// which process owns them, and when they are freed.
///
///     // in the agent
///     auto host = objectstore::Host::create({.arena = 2_GiB}).value();
///     auto membership = host->register_process().value();          // to a worker, by descriptor
///
///     // in a worker
///     auto client = objectstore::Client::attach(std::move(membership), report).value();
///     auto created = client->create(bytes).value();                // Allocation or ExtentRequest
///     Location at = client->seal(std::get<Allocation>(std::move(created)));
///
///     // in another worker
///     Opened got = client->open(at);
///     use(got.pinned.bytes());
///
/// The parts
///
///   location.hpp   Location, ExtentId, Layout: the values that travel in messages.
///   client.hpp     Client: one per process. create, seal, drop; open. Thread-safe, never waits.
///   host.hpp       Host: the agent's side. Grants memory, frees objects, handles deaths.
///   spiller.hpp    Spiller: in the agent. Moves objects to disk when memory is full, and back.
///   spill_files.hpp  SpillFiles: bytes on disk that come back as they were, or as an error.
///   shared_copies.hpp  SharedCopies: copies that other nodes can read after this one is gone.
///   arena.hpp      default_arena_bytes(): how much memory objects may take on this machine.
///
/// The shared memory and its writers
///
///   extent          a memfd of 64 MiB (or the size of a larger object), written by one process.
///   publications    a table per process, written by it: the objects in its slots.
///   pins            a table per process, written by it: the slots of all processes that it views.
///   retirements     one table, written by the agent: the objects that have been freed.
///
/// Each is sealed after its one writer has mapped it and before another process gets the
/// descriptor. So no other process can write, shrink or replace it, not even one of the same user.
///
/// The life of an object
///
///   create   takes space in an extent of the process. Without space the client returns an
///            ExtentRequest. The runtime carries it to the agent (Host::grant), gives the
///            descriptor to Client::add_extent and confirms (Host::confirm_extent).
///   seal     publishes the object under a slot and a generation. From now on it never changes.
///   drop     ends an object whose Location never left the process, without a message.
///   adopt    makes the agent responsible when the Location leaves the process (Host::adopt). From
///            now on the object outlives its writer.
///   free     ends an adopted object (Host::free). No new view begins. When the last view has
///            ended, the agent tells the writer to reuse the memory.
///
/// open() returns the view, or one of these states. needs_segment and needs_extent: ask the agent
/// once, add the descriptor, which stays mapped, and open again. moved: the object was freed,
/// spilled or is elsewhere; ask its owner. invalid: the Location is wrong.
///
/// Messages that the runtime carries
///
///   to the agent      Client::attach done         Host::confirm_process
///                     ExtentRequest               Host::grant, then back Client::add_extent
///                     Client::add_extent done     Host::confirm_extent
///                     a Location leaves           Host::adopt, before or with the message it is in
///                     UnpinReport                 Host::unpinned
///                     Client::trim                Host::release_extent
///                     needs_segment, needs_extent Host::segment_for_reader, extent_for_reader
///   from the agent    Notice::recycle             Client::recycle
///                     Notice::forget_extent       Client::forget_extent, in every process
///                     Notice::forget_segment      Client::forget_segment, in every process
///
/// Ordering: messages of one process are handled in their order. The runtime calls
/// Host::process_died after it has read the last message of the dead process.
///
/// Failures
///
///   A writer dies: objects that the agent adopted stay readable until they are freed, the others
///   are gone. Its memory is freed with its last object.
///   A reader dies: its pins count no more.
///   The agent dies: all memory is freed with the last process that maps it. No file is left.
///   Memory runs out: create or grant return out_of_memory, with the process that holds most. Only
///   a Spiller moves objects to disk.
#pragma once

#include "troupe/objectstore/arena.hpp"
#include "troupe/objectstore/client.hpp"
#include "troupe/objectstore/host.hpp"
#include "troupe/objectstore/location.hpp"
