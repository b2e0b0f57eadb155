/// The object store: immutable bytes in shared memory that every process of a node reads in place.
///
/// A process writes an object directly into memory of its own, seals it, and hands out a Location,
/// which is forty-odd bytes. Another process opens the Location and gets a view of the same memory:
/// no copy, no system call, no message. The store knows bytes; what they mean, who owns them and
/// when they may be freed is decided above.
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
///   location.hpp   Location, ExtentId, Layout: the values that travel.
///   client.hpp     Client: one per process. create, seal, drop; open. Thread-safe, never waits.
///   host.hpp       Host: the agent's side. Makes memory, frees objects, buries processes, counts.
///   spiller.hpp    Spiller: the agent's, too. More objects than memory: some are on disk.
///   spill_files.hpp  SpillFiles: bytes on disk that come back as they were, or as an error.
///   shared_copies.hpp  SharedCopies: copies that other nodes can read when this one is gone.
///   arena.hpp      default_arena_bytes(): how much memory objects may take on this machine.
///
/// Who writes what
///
///   extent          a memfd of 64 MiB (or the size of a larger object) with one writing process.
///   publications    a table of each process, written by it: what lies in its slots.
///   pins            a table of each process, written by it: which slots of whom it looks at.
///   retirements     one table, written by the agent: what has been freed.
///
/// Each is sealed after its one writer mapped it and before anybody else gets the descriptor, so
/// that nobody can write, shrink or replace it, a process of the same user neither.
///
/// The life of an object
///
///   create   space in an extent of ours. Without space the client returns an ExtentRequest; the
///            runtime carries it to the agent (Host::grant), gives the descriptor to
///            Client::add_extent and confirms (Host::confirm_extent).
///   seal     publishes it under a slot and a generation. From now on it never changes.
///   drop     ends it when its Location never left the process: no message.
///   adopt    the agent takes it over when the Location leaves the process (Host::adopt). From now
///            on it outlives its writer, until
///   free     (Host::free): no new view from here on; when the last view is gone the writer is told
///            to recycle the memory, still warm.
///
/// What open() may answer: the view; needs_segment or needs_extent (ask the agent once, add the
/// descriptor, open again: it stays mapped); moved (ask the owner: freed, spilled, elsewhere);
/// invalid.
///
/// What the runtime carries, each as one message
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
/// Messages of one process are handled in their order. A death is told (Host::process_died) after
/// the last message of the dead has been read.
///
/// Failures
///
///   A writer dies: what the agent adopted stays readable until freed, the rest is gone, and its
///   memory is given back with its last object. A reader dies: its pins count no more. The agent
///   dies: everything goes with the last process that maps it; nothing is left in a file system.
///   Memory runs out: create or grant say so (out_of_memory, with who holds how much); only a
///   Spiller moves objects to disk.
#pragma once

#include "troupe/objectstore/arena.hpp"
#include "troupe/objectstore/client.hpp"
#include "troupe/objectstore/host.hpp"
#include "troupe/objectstore/location.hpp"
