/// Copies of objects in folders that several nodes see, so that an object may outlive its node:
/// each node writes its own and reads those of any other.
///
///     auto copies = SharedCopies::open({.folders = {"/nfs/spill"}, .cluster = c, .node = self});
///     copies->write(object, note, bytes, now);   // keep the bytes until its CopyDone
///     copies->drop(object);                      // it is not needed any more
///     copies->look(dead_node, object);           // its note, and how many bytes it has
///     copies->read(dead_node, object, memory);
///     for (const CopyDone& done : copies->take_done(now)) ...   // when fd() is readable
///
/// A copy is one file, `FOLDER/troupe-CLUSTER/NODE/OBJECT`, written under another name and renamed
/// when it is whole. So the names are the index: it is on the disk when the copy is, needs no log,
/// and a node reads that of another, which may be dead, without a word. The file has checksums
/// (XXH3, 64 bits) of its name, its note and its bytes: a damaged, shortened or exchanged one is
/// `object_lost` and never wrong bytes. Nothing is synced: what a machine has not handed to the
/// folder's own server when it fails is lost with it.
///
/// What is in a folder belongs to its cluster. Each of its nodes holds a lock there while it lives;
/// the last to end removes everything, and after a cluster that was killed the next node of any
/// cluster does that uses the folder.
///
/// One thread uses it and no call but open() and the destructor waits for a disk.
#pragma once

#include "troupe/objectstore/spill_files.hpp"
#include "troupe/runtime/base/ids.hpp"

namespace troupe::objectstore {

struct SharedOptions {
  std::vector<std::string> folders;  ///< that exist and can be written; used in turn
  ClusterId cluster;
  NodeId node;
  Bytes quota;                             ///< most bytes of this node's copies; zero: no limit
  double keep_free = 0.05;                 ///< part of each file system that others are left
  Duration full{std::chrono::seconds(1)};  ///< a full folder is tried again after this
  /// As in SpillOptions.
  decltype(SpillOptions::pwrite) pwrite = nullptr;
  decltype(SpillOptions::pread) pread = nullptr;
};

/// The end of one write, look or read.
struct CopyDone {
  enum class Kind : std::uint8_t { wrote, looked, read };
  Kind kind = Kind::wrote;
  NodeId node;  ///< whose copy it is
  ObjectId object;
  /// Of a write: out_of_disk, and there is none; else object_lost, or unavailable when the folder
  /// did not say whether there is one.
  std::optional<Error> error;
  Blob note;               ///< of a look: what was written with it
  std::uint64_t size = 0;  ///< of a look: bytes
};

struct SharedStats {
  std::uint64_t copies = 0;  ///< of this node, or on their way
  std::uint64_t bytes = 0;   ///< that they take, whole pages
  std::uint64_t written = 0, read = 0;
  std::uint64_t errors = 0;       ///< of the folders, a full disk not counted
  std::uint32_t quarantined = 0;  ///< folders that nothing is written to any more
};

class TROUPE_API SharedCopies {
 public:
  /// Errors: invalid_argument naming the folder that is none, cannot be written or locked.
  static Result<std::unique_ptr<SharedCopies>> open(SharedOptions options);
  SharedCopies(const SharedCopies&) = delete;
  /// Waits for what the thread is doing now, one object. This node's copies stay for the others;
  /// the last node of its cluster takes everything along.
  ~SharedCopies();

  /// Whether write() would find room for so many bytes, as far as is known. Error: as write()'s.
  Result<void> has_room(std::uint64_t bytes, Time now);
  /// A copy of an object of this node; `bytes` must stay as they are until its CopyDone, whether it
  /// is dropped before or not. Precondition: it has none. Error: out_of_disk.
  Result<void> write(ObjectId object, Blob note, std::span<const std::byte> bytes, Time now);
  /// Of this node. Without one, nothing happens. A CopyDone of what is under way still comes.
  void drop(ObjectId object);
  void look(NodeId node, ObjectId object);
  /// All of its bytes. The memory is the thread's until its CopyDone. A copy of another size is
  /// object_lost.
  void read(NodeId node, ObjectId object, std::span<std::byte> into);

  /// Readable when take_done() has something.
  int fd() const noexcept;
  std::vector<CopyDone> take_done(Time now);
  SharedStats stats() const;

 private:
  struct Impl;
  explicit SharedCopies(std::unique_ptr<Impl> impl) noexcept;
  std::unique_ptr<Impl> impl_;
};

}  // namespace troupe::objectstore
