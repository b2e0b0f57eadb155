/// Asks a study from another process: through its owner, or in its store when no process owns it.
///
///     auto study = StudyClient::open("studies/resnet").value();
///     Json state = study.ask({.about = StudyQuestion::About::state}).value();
///     study.command({.what = StudyCommand::What::stop, .trial = 17}).value();
#pragma once

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/fd.hpp"
#include "troupe/tune/study/study_protocol.hpp"
#include "troupe/tune/study/study_store.hpp"

#include <optional>
#include <string>

namespace troupe::tune {

/// For one thread. Each call blocks for 5 s at most when an owner is asked, and for as long as the
/// disk takes otherwise. Without an owner the object holds the folder's read lock.
class TROUPE_API StudyClient {
 public:
  static constexpr Duration kPatience = std::chrono::seconds(5);

  /// Connects to the owner, or opens the store to read. Errors: those of StudyReader::open();
  /// Unavailable, which names the owner, when it serves nobody or belongs to another user; TimedOut.
  static Result<StudyClient> open(const std::string& folder, Duration patience = kPatience);

  /// The process that runs the study; nothing when none does.
  const std::optional<StudyOwner>& owner() const noexcept { return owner_; }
  /// Errors: those of the answer; TimedOut, which names the owner's pid; Unavailable when the owner
  /// has ended. No later call succeeds after the last two.
  Result<Json> ask(const StudyQuestion& question);
  /// The same for a command. Refused with Unavailable, and nothing done, when no process runs the
  /// study. After TimedOut the command may still have an effect.
  Result<Json> command(const StudyCommand& command);

 private:
  explicit StudyClient(std::string folder) : folder_(std::move(folder)) {}
  static Result<StudyClient> connect(const std::string& folder, Duration patience,
                                     const Error& refusal);
  Result<Json> call(const std::string& line);
  Error gone() const;
  Error silent() const;

  std::string folder_;
  Duration patience_{};
  std::optional<StudyReader> reader_;  ///< without an owner
  std::optional<StudyOwner> owner_;
  Fd socket_;  ///< to the owner
};

}  // namespace troupe::tune
