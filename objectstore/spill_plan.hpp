/// SpillPlan: chooses folder, file and offset of spilled bytes, and says which space can be freed.
/// It serves SpillFiles and SharedCopies. A plain state machine: it touches no file.
///
///     auto place = plan.place(bytes, now);          // or out_of_disk, saying why
///     ... write there; on an error plan.full(place.folder, now) or plan.failed(place.folder)
///     if (plan.release(*place)) close_file(place->file); else punch_hole(*place);
///
/// Small objects are fused: appended to one file until it is full. Larger ones get a file each. New
/// files go to the folders in turn. Each object takes whole pages, so that its space alone can be
/// freed by a hole in the file. A full folder is not used for a while. A folder that has failed too
/// often is quarantined: nothing more is written there, but its files can still be read.
#pragma once

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/result.hpp"
#include "troupe/runtime/base/units.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace troupe::objectstore {

struct SpillPlace {
  std::uint64_t file = 0;    ///< a number that is never reused
  std::uint32_t folder = 0;  ///< index of the folder
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;  ///< whole pages
};

class SpillPlan {
 public:
  struct Options {
    std::uint32_t folders = 1;
    Bytes quota;  ///< most bytes on disk; zero: no limit but the disk's
    Bytes file{
        16u << 20};  ///< about the size of fused files; an object of that size gets a file alone
    std::uint32_t errors{3};                 ///< errors after which a folder is quarantined
    Duration full{std::chrono::seconds(1)};  ///< a full folder is tried again after this
  };
  static constexpr std::uint64_t kPage = 4096;

  explicit SpillPlan(Options options);

  /// Returns a place for an object of `bytes`. Error: out_of_disk at the quota, or when no folder
  /// is usable.
  Result<SpillPlace> place(std::uint64_t bytes, Time now);
  /// Frees a place. Returns true if its file has no object left and can be closed.
  bool release(const SpillPlace& place);
  /// Records that the folder has no space left.
  void full(std::uint32_t folder, Time now);
  /// Records a failed read or write. Returns true if this one quarantines the folder.
  bool failed(std::uint32_t folder);

  std::uint64_t bytes() const noexcept { return bytes_; }
  std::size_t files() const noexcept { return files_.size(); }
  bool quarantined(std::uint32_t folder) const noexcept;

 private:
  struct Folder {
    std::uint32_t errors = 0;
    std::optional<Time> full_until;
  };
  struct File {
    std::uint32_t folder = 0;
    std::uint64_t end = 0;
    std::uint64_t objects = 0;
  };
  bool usable(std::uint32_t folder, Time now) const noexcept;
  std::optional<std::uint32_t> next_folder(Time now);
  void end_fusing_in(std::uint32_t folder);

  Options options_;
  std::vector<Folder> folders_;
  std::map<std::uint64_t, File> files_;
  std::uint64_t last_file_ = 0;
  std::uint64_t fusing_ = 0;  ///< the file to which small objects are appended, or 0
  std::uint32_t turn_ = 0;
  std::uint64_t bytes_ = 0;
};

}  // namespace troupe::objectstore
