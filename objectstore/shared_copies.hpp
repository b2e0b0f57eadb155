/// SharedCopies: copies of objects in folders that several nodes see, so that an object may outlive
/// its node. Each node writes copies of its own objects and reads those of any other node.
///
///     auto copies = SharedCopies::open({.folders = {"/nfs/spill"}, .cluster = c, .node = self});
///     copies->write(object, note, bytes, now);   // keep the bytes until its CopyDone
///     copies->drop(object);                      // it is not needed any more
///     copies->look(dead_node, object);           // its note, and how many bytes it has
///     copies->read(dead_node, object, memory);
///     for (const CopyDone& done : copies->take_done(now)) ...   // when fd() is readable
///
/// A copy is one file, `FOLDER/troupe-CLUSTER/NODE/OBJECT`, written under another name and renamed
/// when it is complete. So the file names are the index. The index is on the disk when the copy is,
/// and needs no log. A node reads it without a message to the node that wrote it, which may be
/// dead. The file has checksums (XXH3, 64 bits) of its name, its note and its bytes: a damaged,
/// shortened or exchanged file is `object_lost` and never gives wrong bytes. Nothing is synced:
/// bytes that a machine has not sent to the folder's own server when it fails are lost.
///
/// The files in a folder belong to their cluster. Each node of the cluster holds a lock there while
/// it lives. The last node to end removes everything. After a cluster that was killed, the next
/// node of any cluster that uses the folder does so.
///
/// Threads: one thread uses it. No call but open() and the destructor waits for a disk.
#pragma once

#include "troupe/objectstore/spill_files.hpp"
#include "troupe/runtime/base/ids.hpp"

namespace troupe::objectstore {

struct SharedOptions {
  std::vector<std::string> folders;  ///< existing, writable folders; used in turn
  ClusterId cluster;
  NodeId node;
  Bytes quota;                             ///< most bytes of this node's copies; zero: no limit
  double keep_free = 0.05;                 ///< part of each file system left to other programs
  Duration full{std::chrono::seconds(1)};  ///< a full folder is tried again after this
  /// As in SpillOptions.
  decltype(SpillOptions::pwrite) pwrite = nullptr;
  decltype(SpillOptions::pread) pread = nullptr;
};

/// The end of one write, look or read.
struct CopyDone {
  enum class Kind : std::uint8_t { wrote, looked, read };
  Kind kind = Kind::wrote;
  NodeId node;  ///< the node that wrote the copy
  ObjectId object;
  /// Of a write: out_of_disk, and there is no copy. Of a look or read: object_lost, or unavailable
  /// when the folder could not be read, so that there may be a copy.
  std::optional<Error> error;
  Blob note;               ///< of a look: the note that was written with the copy
  std::uint64_t size = 0;  ///< of a look: bytes of the object
};

struct SharedStats {
  std::uint64_t copies = 0;  ///< of this node, those being written included
  std::uint64_t bytes = 0;   ///< on disk for them, in whole pages
  std::uint64_t written = 0, read = 0;
  std::uint64_t errors = 0;       ///< of the folders, a full disk not counted
  std::uint32_t quarantined = 0;  ///< folders that failed too often to be written to
};

class TROUPE_API SharedCopies {
 public:
  /// Joins the cluster's folder in each shared folder. Error: invalid_argument, which names the
  /// folder that does not exist, or cannot be written or locked.
  static Result<std::unique_ptr<SharedCopies>> open(SharedOptions options);
  SharedCopies(const SharedCopies&) = delete;
  /// Waits for the present job of the thread, one object. This node's copies stay for other nodes;
  /// the last node of the cluster removes all.
  ~SharedCopies();

  /// Returns whether write() would find room for `bytes` by what is known now. Error: as write().
  Result<void> has_room(std::uint64_t bytes, Time now);
  /// Begins to write a copy of an object of this node. `bytes` must not change until its CopyDone,
  /// even if the copy is dropped before. Precondition: the object has no copy. Error: out_of_disk.
  Result<void> write(ObjectId object, Blob note, std::span<const std::byte> bytes, Time now);
  /// Removes this node's copy of an object, if there is one. A write that has begun still gets its
  /// CopyDone.
  void drop(ObjectId object);
  /// Begins to read the note and the size of a copy.
  void look(NodeId node, ObjectId object);
  /// Begins to read all bytes of a copy. The thread uses the memory until the CopyDone. A copy
  /// whose size is not that of `into` is object_lost.
  void read(NodeId node, ObjectId object, std::span<std::byte> into);

  /// Returns a descriptor that is readable when take_done() has results.
  int fd() const noexcept;
  std::vector<CopyDone> take_done(Time now);
  SharedStats stats() const;

 private:
  struct Impl;
  explicit SharedCopies(std::unique_ptr<Impl> impl) noexcept;
  std::unique_ptr<Impl> impl_;
};

}  // namespace troupe::objectstore
