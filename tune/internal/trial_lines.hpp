/// TrialLines: brings the lines that trials print to the driver, and keeps their files.
///
///     TrialLines lines(ctx, folder.logs_path());   // empty: a temporary folder
///     setup.output = lines.place_of(setup.number);
///     for (const auto& [trial, text] : lines.take().lines) view.line(trial, text);
///     lines.ended(trial);                          // its attempt
///     lines.over(trial, failed);
///     lines.finish(until);                         // then take() until it has all
///
/// In a private cluster the processes of a trial write its file (LoopOutput). In another one the
/// pipes of their nodes bring the lines (PipedLines). In both, a death loses no line.
#pragma once

#include "troupe/actors/loop_actor/output_place.hpp"
#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/context.hpp"
#include "troupe/tune/export/trial_logs.hpp"
#include "troupe/tune/internal/piped_lines.hpp"

#include <chrono>
#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace troupe::tune {

/// For one thread.
class TrialLines {
 public:
  static constexpr std::size_t kMostAtOnce = 1 << 20;
  static constexpr Duration kLateLines = std::chrono::seconds(10);

  /// Throws InvalidArgument when the folder cannot be made. In a task or actor, the lines that
  /// pipes take go to the driver of the job.
  TrialLines(Context ctx, const std::string& folder, TrialLogLimits limits = {});
  TrialLines(const TrialLines&) = delete;
  TrialLines& operator=(const TrialLines&) = delete;
  /// Removes a temporary folder.
  ~TrialLines();

  loops::OutputPlace place_of(int trial);
  using Lines = std::vector<std::pair<int, std::string>>;
  struct Taken {
    Lines lines;      ///< those of one trial in their order
    bool all = true;  ///< nothing is unread, and no process of a trial that is over prints any more
  };
  /// Returns the whole lines since the last call, at most kMostAtOnce bytes of a file. `last`: also
  /// what stands behind them, without an end.
  Taken take(bool last = false);
  /// The processes of the trial's attempt have ended, or are killed.
  void ended(int trial) { pipes_.ended(trial); }
  /// The trial is over. Its last lines come with a later take(), those too that its processes print
  /// within kLateLines from now.
  void over(int trial, bool failed);
  /// Waits until the lines that pipes have taken are here, of dead processes too. Blocks until
  /// `until` at most. Does nothing in a private cluster. Throws Unavailable when this node stands
  /// still.
  void finish(Time until);

 private:
  struct File {
    std::uint64_t read = 0;   ///< bytes that take() has looked at
    std::string half;         ///< a line without its end
    Time over = Time::max();  ///< when its trial was; max: it is not
    bool piped = false;       ///< this object writes the file
  };
  bool read(int trial, File& file, Taken& taken);
  void write_piped();
  std::size_t mark_all_nodes(Time until);

  Context ctx_;
  std::string folder_;
  bool temporary_ = false;
  const TrialLogLimits limits_;
  TrialLogs logs_;
  std::map<int, File> files_;
  Lines piped_;           ///< for the next take()
  bool listens_ = false;  ///< pipes bring lines to this process
  PipedLines pipes_;
};

}  // namespace troupe::tune
