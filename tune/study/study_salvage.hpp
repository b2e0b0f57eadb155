/// Saves what can be read of a study that does not open. `troupe tune doctor` calls it.
///
///     StudySalvage seen = salvage_study("studies/resnet", "saved.jsonl").value();
///
/// The folder is only read; all attempts work on copies. What is saved may lack events that were
/// synced, so a study never continues from it by itself.
#pragma once

#include "troupe/runtime/base/assert.hpp"
#include "troupe/runtime/base/result.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace troupe::tune {

struct StudySalvage {
  bool damaged = false;                          ///< false: the study opens as it is
  std::string why;                               ///< why it does not open
  std::map<std::string, std::uint64_t> records;  ///< how many were read, by kind ("event", "trial")
  std::uint64_t last_event = 0;                  ///< the last one that was read; 0: none
  std::uint64_t synced_event = 0;    ///< the one that the file `synced` names; 0: not known
  std::uint64_t missing_events = 0;  ///< numbers up to both of these that were not read
  std::vector<std::string> notes;    ///< what could not be read
};

/// Reads what it can of a study's store and writes it to the file `to`, one JSON object a line:
/// {"kind":"event","number":8,"value":…}. Values that are not JSON become texts. Empty `to`: writes
/// nothing. Blocks. Errors: those of StudyFolder::open(); InvalidArgument when nothing can be read,
/// or `to` exists; OutOfDisk. After an error `to` is not made.
TROUPE_API Result<StudySalvage> salvage_study(const std::string& folder, const std::string& to);

}  // namespace troupe::tune
