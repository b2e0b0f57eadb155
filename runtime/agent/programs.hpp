/// The programs that jobs consist of: an executable and the shared objects that are its own, by
/// content. Makes a job's program available on this node, and serves those of local drivers.
///
///     Programs programs(out, {.cache = folder});
///     programs.describe(job, "/proc/4711/exe", "/home/me/app");   // → out.described(job, files)
///     programs.want(record, now);                       // → out.program(job, Program or Error)
///     programs.on_message(from, message, payload, now); // ProgramRequest, ProgramData
///
/// A file that lies at the same path here with the same SHA-256 is used as it is (several nodes on
/// one machine, or a shared file system). Otherwise it is fetched from the driver's node in pieces
/// into the cache folder (0700), under its digest, checked, and made executable; a file that is
/// there already is checked and used. Libraries that do not lie where the driver has them are
/// linked under their names in one folder of the cache, which goes in front of LD_LIBRARY_PATH.
/// Hashing and disk run on one thread of its own, so that no call blocks. Symbols: "its own" are
/// the shared objects outside the folders that the system's loader searches by default, as the
/// dynamic loader of the driver found them.
///
/// Errors of a program: Unavailable (the driver's node is gone or cannot read a file), OutOfDisk,
/// InvalidArgument (more than kMaxFiles files or kMaxBytes bytes).
#pragma once

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/control/jobs.hpp"
#include "troupe/runtime/os/role.hpp"
#include "troupe/runtime/wire/peer.hpp"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe::agent {

struct ProgramsOptions {
  std::string cache;                           ///< folder; made at first need
  std::uint64_t cache_bytes = 4ull << 30;      ///< beyond it the least recently used go
  Duration silence{std::chrono::seconds(10)};  ///< a fetch without progress ends
};

class Programs {
 public:
  static constexpr std::size_t kMaxFiles = 64;
  static constexpr std::uint64_t kMaxBytes = 4ull << 30;
  using Files = std::vector<std::pair<std::string, std::string>>;  ///< path, SHA-256 in hex

  class Out {
   public:
    virtual ~Out() = default;
    virtual void send(NodeId to, const wire::PeerMessage& message, BlobView payload) = 0;
    /// Answers describe(): the files of a local driver's program, for its JobRecord.
    virtual void described(JobId job, const Result<Files>& files) = 0;
    /// Answers want().
    virtual void program(JobId job, const Result<os::Program>& program) = 0;
  };

  Programs(Out& out, NodeId self, ProgramsOptions options);
  ~Programs();
  Programs(const Programs&) = delete;
  Programs& operator=(const Programs&) = delete;

  /// The program of a driver of this node, to be served to other nodes, as it is now, until
  /// forget() and somewhat longer: detached actors start again when their job is over. `libraries`:
  /// its own shared objects as the driver names them.
  void describe(JobId job, const std::string& path, std::vector<std::string> libraries, Time now);
  /// As the record has it, where the driver is.
  static os::Program program_of(const control::JobRecord& job);
  /// A local driver's program as it was described, also when its file has been replaced; its
  /// arguments are the caller's. nullopt: it is no local driver's.
  std::optional<os::Program> local(JobId job) const;
  /// The job's program is needed here.
  void want(const control::JobRecord& job, Time now);
  void forget(JobId job);
  /// True for ProgramRequest and ProgramData.
  bool on_message(NodeId from, const wire::PeerMessage& message, BlobView payload, Time now);
  void node_died(NodeId node, Time now);

  /// Readable when poll() has work; poll() calls out.described and out.program.
  int fd() const noexcept;
  void poll(Time now);
  Time next_deadline() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace troupe::agent
