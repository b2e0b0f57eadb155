/// The programs of jobs. A program is an executable with its own shared objects, identified by
/// their content. The agent uses Programs to get a job's program to this node, and to serve the
/// programs of local drivers to other nodes.
///
///     Programs programs(out, {.cache = folder});
///     programs.describe(job, program, libraries, now);  // → out.described(job, files)
///     programs.want(record, now);                       // → out.program(job, Program or Error)
///     programs.on_message(from, message, payload, now); // ProgramRequest, ProgramData
///
/// A file that lies at the same path here with the same SHA-256 is used as it is (several nodes on
/// one machine, or a shared file system). Otherwise a file of that digest in the cache folder
/// (0700) is checked and used. Otherwise the file is fetched in pieces from the driver's node into
/// the cache folder, checked, and made executable. Libraries are linked under their names in one
/// folder of the cache, which goes in front of LD_LIBRARY_PATH. Hashing and disk access run on one
/// thread of Programs, so that no call blocks. A program's own shared objects are those that the
/// driver's dynamic loader found outside the folders which the system's loader searches by
/// default.
///
/// Errors of a program: Unavailable (the driver's node is gone or cannot read a file), OutOfDisk,
/// InvalidArgument (more than kMaxFiles files or kMaxBytes bytes).
#pragma once

#include "troupe/runtime/agent/program_files.hpp"
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
  std::uint64_t cache_bytes = 4ull << 30;      ///< beyond it the least recently used files go
  Duration silence{std::chrono::seconds(10)};  ///< a fetch without progress ends
};

class Programs {
 public:
  static constexpr std::size_t kMaxFiles = 64;
  static constexpr std::uint64_t kMaxBytes = 4ull << 30;
  using Files = ProgramFiles;

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

  /// Opens the program of a driver of this node and serves its present content to other nodes.
  /// out.described() answers. Its files are served until forget(), and for some time after it,
  /// since detached actors of an ended job may start again. `libraries` are the program's own
  /// shared objects, as the driver names them.
  void describe(JobId job, const std::string& path, std::vector<std::string> libraries, Time now);
  /// The program of the job's record, with the path at the driver's node.
  static os::Program program_of(const control::JobRecord& job);
  /// The program of a local driver as it was described, even if its file has been replaced since.
  /// The caller sets the arguments. nullopt if the job has no local driver.
  std::optional<os::Program> local(JobId job) const;
  /// Gets the job's program to this node; out.program() answers.
  void want(const control::JobRecord& job, Time now);
  /// Ends describe() and want() of the job. Its files in the cache may go.
  void forget(JobId job);
  /// Handles ProgramRequest and ProgramData. Returns false for other messages.
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
