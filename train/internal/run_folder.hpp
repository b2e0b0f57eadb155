/// RunFolder: a run's folder, as its driver keeps it. It has the lock, the reports and the
/// checkpoints, and it alone renames and removes.
///
///     RunFolder folder(options);                  // throws while another driver has the folder
///     RunSetup setup = folder.begin_gang();       // for each rank of the next gang
///     if (folder.ended(save)) go_on(folder.latest());   // when all ranks have written
#pragma once

#include "troupe/train/checkpoint.hpp"
#include "troupe/train/checkpoint/folder/run_lock.hpp"
#include "troupe/train/detail/run_setup.hpp"
#include "troupe/train/internal/report_file.hpp"
#include "troupe/train/internal/saves.hpp"

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe::train {
struct FitOptions;
}

namespace troupe::train::internal {

/// Throws InvalidArgument, one sentence that says what to change, for options of a run that are
/// out of range, and for a folder that is relative, missing, no folder or read-only.
void check_run(const FitOptions& options);

class RunFolder {
 public:
  /// Takes the folder, and reads what is in it. Throws as RunLock.
  explicit RunFolder(const FitOptions& options);

  /// Prepares the next gang: finds the checkpoints that it may start from.
  const RunSetup& begin_gang();
  /// Returns what each rank of the gang is told.
  const RunSetup& setup() const noexcept { return setup_; }
  /// Takes rank 0's word on where the gang starts. Throws InvalidArgument when the event is that of
  /// a rank that does not see the folder.
  void started(const FolderEvent& event);
  /// Commits a save that every rank has written, or cleans up after one that failed. Returns
  /// whether it is complete. Throws Unavailable when another driver has the folder, and when saves
  /// failed three times in a row.
  bool ended(const Saves::Ended& save);
  void reported(const Metrics& metrics, std::optional<double> value);

  /// Returns the reports up to the step from which the gang starts, and those of the gang.
  const std::vector<Reported>& reports() const noexcept { return reports_.all(); }
  /// Returns sentences on what went wrong since the last call.
  std::vector<std::string> take_notes() { return std::exchange(notes_, {}); }
  /// Returns the step after which the first gang began; 0: at the beginning.
  long resumed_from() const noexcept { return resumed_from_.value_or(0); }
  /// Returns the newest checkpoint, or the best; empty when there is none.
  SavedModel latest() const;
  SavedModel best() const;
  std::optional<double> best_value() const;

 private:
  void commit(const Saves::Ended& save);
  void failed(long step, const std::string& why);
  SavedModel saved(long step) const;
  std::map<long, double> values() const;
  std::vector<long> steps() const;

  std::string folder_;
  RunSetup setup_;
  int keep_;
  bool maximize_;
  RunLock lock_;
  ReportFile reports_;
  int failures_ = 0;  // in a row
  std::map<long, SavedModel> complete_;
  std::vector<std::string> notes_;
  std::optional<long> resumed_from_;
};

}  // namespace troupe::train::internal
