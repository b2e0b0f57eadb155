/// TrialLines: brings the lines that trials print to the driver, and keeps their files.
///
///     TrialLines lines(ctx, folder.logs_path());   // empty: a temporary folder
///     setup.output = lines.place_of(setup.number);
///     for (const auto& [trial, text] : lines.take()) view.line(trial, text);
///     lines.over(trial, failed);
///     lines.finish(until);                         // then take() once more
///
/// In a private cluster the processes of a trial write its file (LoopOutput). In another one the
/// pipes of their nodes bring the lines (PipedLines). In both, a death loses no line.
#pragma once

#include "troupe/actors/loop_actor/output_place.hpp"
#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/context.hpp"
#include "troupe/tune/export/trial_logs.hpp"
#include "troupe/tune/internal/piped_lines.hpp"

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace troupe::tune {

/// For one thread.
class TrialLines {
 public:
  /// Throws InvalidArgument when the folder cannot be made. In a task or actor, the lines that
  /// pipes take go to the driver of the job.
  TrialLines(Context ctx, const std::string& folder, TrialLogLimits limits = {});
  TrialLines(const TrialLines&) = delete;
  TrialLines& operator=(const TrialLines&) = delete;
  /// Removes a temporary folder.
  ~TrialLines();

  loops::OutputPlace place_of(int trial);
  /// Returns the whole lines since the last call, those of one trial in their order.
  std::vector<std::pair<int, std::string>> take();
  /// The trial is over. Its last lines come with a later take().
  void over(int trial, bool failed);
  /// Waits until the lines that pipes have taken are here, of dead processes too. Blocks until
  /// `until` at most. Does nothing in a private cluster. Throws Unavailable when this node stands
  /// still.
  void finish(Time until);

 private:
  struct File {
    std::uint64_t read = 0;  ///< bytes that take() has looked at
    std::string half;        ///< a line without its end
    bool over = false;
    bool piped = false;  ///< this object writes the file
  };
  using Lines = std::vector<std::pair<int, std::string>>;
  bool read(int trial, File& file, Lines& lines);
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
