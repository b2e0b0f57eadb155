/// Saves what can be read of a data folder on which control refuses to start. `troupe doctor` calls
/// it.
///
///     auto seen = salvage_store("/var/lib/troupe", "").value();   // looks, writes nothing
///     auto done = salvage_store("/var/lib/troupe", "/var/lib/troupe-2").value();
///
/// The damaged folder is only read; all attempts work on copies. The readable records are not
/// exactly the acknowledged ones: some may be missing, and some that were deleted last may be there
/// again. Therefore control does not do this by itself.
///
/// The new store begins with epochs above all that the old one can have given. A process that still
/// obeys the old control then obeys the new one. Nodes are left out: those of the old cluster have
/// ended, and new ones register.
#pragma once

#include "troupe/runtime/base/result.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace troupe::control {

struct Salvage {
  bool damaged = false;                          ///< false: control starts on the folder as it is
  std::string why;                               ///< the error of a start; empty when not damaged
  std::map<std::string, std::uint64_t> records;  ///< how many were read, by kind ("actors")
  std::uint64_t bytes = 0;
  std::uint64_t last_commit = 0;    ///< the last one found; 0: none
  std::uint64_t marked_commit = 0;  ///< the last one that was acknowledged; 0: not known
  std::vector<std::string> notes;   ///< what could not be read
};

/// Reads what it can of a store and writes it to a new one. `folder`: control's, or the `db` in it.
/// `to`: the folder of the new store; empty: none is written. Errors: Unavailable when a control
/// runs on the folder or I/O fails; InvalidArgument when there is no store, nothing of it can be
/// read, or `to` exists already; NoSpace. After an error `to` is not made. Cost: copies and reads
/// everything twice, a damaged store three times.
Result<Salvage> salvage_store(const std::string& folder, const std::string& to);

}  // namespace troupe::control
