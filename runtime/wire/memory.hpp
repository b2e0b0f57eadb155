/// The report about a node's memory, as its agent knows it: how much of the arena each process has,
/// where objects are, and who holds them. It answers an Inquire about memory; schema/memory.capnp
/// describes all fields.
///
///     Blob bytes = encode(report);
///     Result<MemoryReport> report = decode_memory(bytes);   // from another process: bounded
#pragma once

#include "troupe/runtime/base/ids.hpp"
#include "troupe/runtime/base/result.hpp"
#include "troupe/runtime/wire/messages.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace troupe::wire {

inline constexpr std::size_t kMaxMemoryRows = 4096;
inline constexpr std::size_t kMaxMemoryHolders = 8;
inline constexpr std::size_t kMaxMemoryProcesses = 4096;
inline constexpr std::size_t kMaxMemoryJobs = 4096;
inline constexpr std::size_t kMaxMemorySites = 256;

enum class MemoryUser : std::uint8_t { agent, driver, worker, actor, ended, node };
std::string_view name_of(MemoryUser user) noexcept;

struct MemoryProcess {
  MemoryUser kind = MemoryUser::agent;
  std::uint32_t pid = 0;
  JobId job;
  std::uint64_t silent_ns = 0;  ///< since its last message to the agent
  std::uint32_t extents = 0;    ///< number of extents granted to it
  std::uint64_t extent_bytes = 0;
  std::uint64_t objects = 0;  ///< objects that it made and that the agent knows
  std::uint64_t object_bytes = 0;
};

struct MemoryHolder {
  MemoryUser kind = MemoryUser::agent;  ///< agent: a value that the agent keeps names the object
  std::uint32_t pid = 0;
  NodeId node;
  std::int64_t refs = 0;
  std::uint64_t silent_ns = 0;
};

struct MemoryObject {
  /// forwarded: its value is another object's; elsewhere: its bytes are at another node.
  enum class State : std::uint8_t {
    pending,
    error,
    inline_bytes,
    memory,
    disk,
    elsewhere,
    forwarded
  };
  ObjectId id;  ///< zero: an object that only its holder can name
  State state = State::pending;
  std::uint64_t bytes = 0;
  NodeId owner;  ///< the node whose agent counts its holders
  std::uint32_t maker_pid = 0;
  JobId job;
  std::uint32_t pins = 0;       ///< views that are open now
  std::uint64_t age_ns = 0;     ///< 0: unknown
  std::uint64_t unused_ns = 0;  ///< since the last use that the agent saw; it misses short views
  std::vector<MemoryHolder> holders;  ///< at most kMaxMemoryHolders
  std::int64_t held = 0;              ///< number of all refs
  std::string site;                   ///< where it was made; empty: unknown
};
std::string_view name_of(MemoryObject::State state) noexcept;

/// Size of the objects that one job's processes have made at the node, in memory and on disk.
struct MemoryJob {
  JobId job;  ///< zero: a job that has ended
  std::uint64_t bytes = 0;
};

/// A place in a program that has made objects of the node.
struct MemorySite {
  std::string text;
  std::uint64_t objects = 0, bytes = 0;
  std::uint64_t made = 0;  ///< objects made since the node's start
  bool grows = false;      ///< in each of the last spans of time the number of objects has grown
};

struct MemoryReport {
  NodeId node;
  std::string name;
  std::uint64_t arena_bytes = 0;
  std::uint64_t extent_bytes = 0;  ///< of granted extents and those ready for the next grant
  std::uint64_t ready_bytes = 0;   ///< of the extents ready for the next grant alone
  std::uint64_t object_bytes = 0, objects = 0;  ///< in memory
  std::uint32_t waiting_objects = 0;            ///< freed objects that a reader still pins
  bool spills = false;                          ///< there is a folder to spill to
  std::uint64_t spilled = 0, spilled_bytes = 0, disk_bytes = 0;
  std::uint64_t restored = 0;      ///< objects read back from disk since the agent's start
  std::uint32_t bad_folders = 0;   ///< spill folders to which the agent does not write any more
  std::uint64_t asks_waiting = 0;  ///< requests that wait for memory
  std::uint32_t own_holes = 0;     ///< free blocks in the agent's own extents
  std::uint64_t own_free_bytes = 0, own_largest_free = 0;
  std::vector<MemoryProcess> processes;
  std::vector<MemoryObject> rows;     ///< the largest objects
  std::uint64_t rows_in_all = 0;      ///< number of all objects
  std::uint64_t job_quota_bytes = 0;  ///< of each job at this node; 0: no limit
  std::vector<MemoryJob> jobs;
  bool copies = false;                       ///< there is a shared folder for copies
  std::uint64_t copied = 0, copy_bytes = 0;  ///< objects of this node with a copy there; its size
  std::uint64_t copy_errors = 0;             ///< errors of the shared folders
  std::vector<MemorySite> sites;             ///< the call sites with most bytes
};

Blob encode(const MemoryReport& report);
/// Errors: invalid_argument that names the field.
Result<MemoryReport> decode_memory(BlobView bytes);

}  // namespace troupe::wire
