#include "troupe/objectstore/spill_plan.hpp"

#include <algorithm>
#include <limits>
#include <string>

namespace troupe::objectstore {

SpillPlan::SpillPlan(Options options) : options_(options), folders_(options.folders) {
  TROUPE_ASSERT(options.folders > 0, "spilling needs a folder");
}

bool SpillPlan::quarantined(std::uint32_t folder) const noexcept {
  return folders_[folder].errors >= options_.errors;
}

bool SpillPlan::usable(std::uint32_t folder, Time now) const noexcept {
  const auto& until = folders_[folder].full_until;
  return !quarantined(folder) && (!until || *until <= now);
}

std::optional<std::uint32_t> SpillPlan::next_folder(Time now) {
  for (std::uint32_t tries = 0; tries < options_.folders; ++tries) {
    const std::uint32_t folder = turn_;
    turn_ = (turn_ + 1) % options_.folders;
    if (usable(folder, now)) return folder;
  }
  return std::nullopt;
}

Result<SpillPlace> SpillPlan::place(std::uint64_t bytes, Time now) {
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max() / 2;
  const std::uint64_t padded =
      (std::min(std::max<std::uint64_t>(bytes, 1), kMost) + kPage - 1) / kPage * kPage;
  const std::uint64_t quota = options_.quota.count;
  if (quota != 0 && (padded > quota || bytes_ > quota - padded))
    return Error(Code::out_of_disk,
                 "spilling " + std::to_string(padded) + " more bytes would exceed the limit: " +
                     std::to_string(bytes_) + " of " + std::to_string(quota) + " are on disk");
  const bool alone = padded >= options_.file.count;
  auto file = alone ? files_.end() : files_.find(fusing_);
  if (file != files_.end() &&
      (file->second.end + padded > options_.file.count || !usable(file->second.folder, now)))
    file = files_.end();
  if (file == files_.end()) {
    const auto folder = next_folder(now);
    if (!folder) {
      const auto bad = static_cast<std::uint32_t>(
          std::count_if(folders_.begin(), folders_.end(),
                        [&](const Folder& one) { return one.errors >= options_.errors; }));
      return Error(Code::out_of_disk, "no spill folder takes " + std::to_string(padded) +
                                          " more bytes: of " + std::to_string(options_.folders) +
                                          " " + std::to_string(bad) +
                                          " failed too often and the others are full; " +
                                          std::to_string(bytes_) + " bytes are on disk");
    }
    file = files_.emplace(++last_file_, File{*folder, 0, 0}).first;
    if (!alone) fusing_ = file->first;
  }
  const SpillPlace place{file->first, file->second.folder, file->second.end, padded};
  file->second.end += padded;
  ++file->second.objects;
  bytes_ += padded;
  return place;
}

bool SpillPlan::release(const SpillPlace& place) {
  const auto file = files_.find(place.file);
  TROUPE_ASSERT(file != files_.end() && bytes_ >= place.bytes, "a place is released once");
  bytes_ -= place.bytes;
  if (--file->second.objects != 0) return false;
  if (fusing_ == place.file) fusing_ = 0;
  files_.erase(file);
  return true;
}

void SpillPlan::full(std::uint32_t folder, Time now) {
  folders_[folder].full_until = now + options_.full;
  end_fusing_in(folder);
}

bool SpillPlan::failed(std::uint32_t folder) {
  end_fusing_in(folder);
  return ++folders_[folder].errors == options_.errors;
}

/// Appends nothing more to the present fused file if it is in this folder: the file itself may be
/// damaged.
void SpillPlan::end_fusing_in(std::uint32_t folder) {
  const auto file = files_.find(fusing_);
  if (file != files_.end() && file->second.folder == folder) fusing_ = 0;
}

}  // namespace troupe::objectstore
