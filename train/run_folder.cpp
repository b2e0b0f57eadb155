#include "troupe/train/internal/run_folder.hpp"

#include "troupe/runtime/base/random_bytes.hpp"
#include "troupe/train/checkpoint/folder/commit.hpp"
#include "troupe/train/checkpoint/folder/folder_checkpoint.hpp"
#include "troupe/train/checkpoint/folder/names.hpp"
#include "troupe/train/fit.hpp"
#include "troupe/train/internal/reject.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

namespace troupe::train::internal {
namespace {

/// A run ends with this failure in a row.
constexpr int kMostFailures = 3;

std::string not_saved(long step, const std::string& why) {
  return "the checkpoint of step " + std::to_string(step) + " was not saved: " + why;
}

}  // namespace

void check_run(const FitOptions& options) {
  const RunOptions& run = options.run;
  if (run.every < 0)
    reject("train: run.every is " + std::to_string(run.every) +
           ": give the steps between two checkpoints, or 0 for none");
  if (run.keep < 1)
    reject("train: run.keep is " + std::to_string(run.keep) +
           ": give the number of checkpoints that stay, 1 or more");
  const std::string& folder = run.folder;
  if (folder.empty()) return;
  if (folder.front() != '/')
    reject("train: run.folder is \"" + folder +
           "\", which each node would look for elsewhere: give a path that begins with /");
  std::error_code problem;
  if (!std::filesystem::is_directory(folder, problem))
    reject("train: run.folder " + folder + " is no folder" +
           (problem ? " (" + problem.message() + ")" : "") + ": make it first");
  if (::access(folder.c_str(), R_OK | W_OK | X_OK) != 0)
    reject("train: run.folder " + folder + " cannot be written: " + std::strerror(errno) +
           ": give a folder that this program may write");
}

RunFolder::RunFolder(const FitOptions& options)
    : folder_(options.run.folder),
      setup_{.folder = folder_, .every = options.run.every},
      keep_(options.run.keep),
      maximize_(options.maximize),
      lock_(folder_),
      reports_(folder_ + "/" + kReportsFile) {}

const RunSetup& RunFolder::begin_gang() {
  remove_all_writing(folder_);
  setup_.driver = lock_.id();
  setup_.gang = random_id();
  setup_.starts.clear();
  failures_ = 0;  // the end of a gang may have been their cause
  const Start start = choose_start(folders_in(folder_));
  if (!resumed_from_) notes_.insert(notes_.end(), start.skipped.begin(), start.skipped.end());
  complete_.clear();
  for (const long step : start.steps) {
    complete_[step] = saved(step);
    setup_.starts.push_back(complete_[step].folder);
  }
  reports_.cut_after(start.steps.empty() ? 0 : start.steps.front());
  return setup_;
}

bool RunFolder::ended(const Saves::Ended& save) {
  if (save.left_out) {  // no failure: the save before it goes on
    notes_.push_back(not_saved(save.step, save.error));
    return false;
  }
  if (!save.error.empty()) {
    failed(save.step, save.error);
    return false;
  }
  try {
    commit(save);
  } catch (const Error& error) {
    lock_.check();
    failed(save.step, error.message());
    return false;
  }
  return true;
}

void RunFolder::started(const FolderEvent& event) {
  if (event.kind == FolderEvent::Kind::unseen) reject(event.error);
  notes_.insert(notes_.end(), event.skipped.begin(), event.skipped.end());
  std::erase_if(complete_, [&](const auto& each) { return each.first > event.step; });
  reports_.cut_after(event.step);
  if (!resumed_from_) resumed_from_ = event.step;
}

void RunFolder::commit(const Saves::Ended& save) {
  CheckpointDocument document = document_of(save.document).value();
  commit_checkpoint(folder_, setup_.gang, lock_, document, save.files);
  failures_ = 0;
  complete_[save.step] = saved(save.step);
  for (const long step : unneeded(steps(), values(), keep_, maximize_)) {
    remove_checkpoint(folder_, step);
    complete_.erase(step);
  }
}

void RunFolder::failed(long step, const std::string& why) {
  remove_writing(folder_, setup_.gang, step);
  const std::string sentence = not_saved(step, why);
  notes_.push_back(sentence);
  if (++failures_ >= kMostFailures)
    throw Unavailable(Code::unavailable, "train: " + std::to_string(kMostFailures) +
                                             " checkpoints in a row failed in run.folder " +
                                             folder_ + ", so the run ends; the last: " + sentence);
}

void RunFolder::reported(const Metrics& metrics, std::optional<double> value) {
  reports_.append({metrics, value});
}

SavedModel RunFolder::saved(long step) const {
  SavedModel model;
  model.folder = folder_ + "/" + step_folder_name(step);
  model.step = step;
  return model;
}

SavedModel RunFolder::latest() const {
  return complete_.empty() ? SavedModel{} : complete_.rbegin()->second;
}

SavedModel RunFolder::best() const {
  const std::optional<long> step = best_step(steps(), values(), maximize_);
  return step ? complete_.at(*step) : SavedModel{};
}

std::optional<double> RunFolder::best_value() const {
  const std::map<long, double> all = values();
  const std::optional<long> step = best_step(steps(), all, maximize_);
  return step ? std::optional(all.at(*step)) : std::nullopt;
}

std::map<long, double> RunFolder::values() const {
  std::map<long, double> values;
  for (const Reported& report : reports_.all())
    if (report.value) values[report.metrics.step] = *report.value;
  return values;
}

std::vector<long> RunFolder::steps() const {
  std::vector<long> steps;
  for (const auto& [step, model] : complete_) steps.push_back(step);
  return steps;
}

}  // namespace troupe::train::internal
