/// What can be saved of a data folder on which control refuses to start.
///
///     auto seen = salvage_store("/var/lib/troupe", "").value();            // looks, writes
///     nothing auto done = salvage_store("/var/lib/troupe", "/var/lib/troupe-2").value();
///
/// The damaged folder is only read: everything is tried on copies. What is saved is what can be
/// read, which is not what was acknowledged: records may be missing, and such as were deleted last
/// may be there again. That is why control does not do this by itself.
///
/// The new store begins with epochs above all that the old one can have given, so that whoever
/// still obeys the old control obeys the new one. Nodes are left out: those of the old cluster have
/// ended, and new ones register.
#pragma once

#include "troupe/runtime/base/result.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace troupe::control {

struct Salvage {
  bool damaged = false;                          ///< else control starts on it as it is
  std::string why;                               ///< what a start says; empty when not damaged
  std::map<std::string, std::uint64_t> records;  ///< how many were read, by kind ("actors")
  std::uint64_t bytes = 0;
  std::uint64_t last_commit = 0;    ///< that was found; 0: none
  std::uint64_t marked_commit = 0;  ///< that was acknowledged; 0: not known
  std::vector<std::string> notes;   ///< what could not be read
};

/// `folder`: control's, or the `db` in it. `to`: where a new store is written; empty: nowhere.
/// Errors: Unavailable when a control runs on the folder or I/O fails, InvalidArgument when there
/// is no store or nothing of it can be read, or `to` is there already, NoSpace; then `to` is not
/// made. Cost: copies and reads everything twice, a damaged one three times.
Result<Salvage> salvage_store(const std::string& folder, const std::string& to);

}  // namespace troupe::control
