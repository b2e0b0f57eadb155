/// Where spilled bytes lie on disk: which folder and file, at which offset, and which space can go.
/// A plain state machine: it touches no file.
///
///     auto place = plan.place(bytes, now);          // or out_of_disk, saying why
///     ... write there; on an error plan.full(place.folder, now) or plan.failed(place.folder)
///     if (plan.release(*place)) close_file(place->file); else punch_hole(*place);
///
/// Small objects are fused: appended to one file until it is full. Larger ones get a file each. New
/// files go to the folders in turn. Each object takes whole pages, so that a hole can be punched
/// for it alone. A folder that is full is left alone for a while, one that has failed too often for
/// good; what lies there can still be read.
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
  std::uint64_t file = 0;    ///< numbers are never used again
  std::uint32_t folder = 0;  ///< by its index
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;  ///< whole pages
};

class SpillPlan {
 public:
  struct Options {
    std::uint32_t folders = 1;
    Bytes quota;  ///< most bytes on disk; zero: no limit but the disk's
    Bytes file{
        16u << 20};  ///< fused files are about this large; objects from here on are not fused
    std::uint32_t errors{3};                 ///< a folder with so many is quarantined
    Duration full{std::chrono::seconds(1)};  ///< a full folder is tried again after this
  };
  static constexpr std::uint64_t kPage = 4096;

  explicit SpillPlan(Options options);

  /// Room for so many bytes. Error: out_of_disk at the quota, or when no folder can take anything.
  Result<SpillPlace> place(std::uint64_t bytes, Time now);
  /// Nothing lies there any more. True: nor anywhere else in its file, which can be closed.
  bool release(const SpillPlace& place);
  /// The folder has no space left.
  void full(std::uint32_t folder, Time now);
  /// Reading or writing there went wrong. True: the folder is quarantined by this.
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
  std::uint64_t fusing_ = 0;  ///< the file that small objects are appended to, or 0
  std::uint32_t turn_ = 0;
  std::uint64_t bytes_ = 0;
};

}  // namespace troupe::objectstore
