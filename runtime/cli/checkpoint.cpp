/// The verbs `troupe checkpoint`: what a checkpoint in a folder has, and one file of it.
#include "troupe/runtime/cli/internal/print.hpp"
#include "troupe/runtime/cli/verbs.hpp"
#include "troupe/train/checkpoint/folder/folder_checkpoint.hpp"
#include "troupe/train/checkpoint/folder/names.hpp"
#include "troupe/train/checkpoint/safetensors.hpp"

#include <algorithm>
#include <cstdio>
#include <filesystem>

namespace troupe::cli {
namespace {

namespace fs = std::filesystem;

/// What is known of a checkpoint or of a file.
struct Found {
  std::string path;
  std::string problem;  ///< empty: complete, and every hash is right
  long step = -1;
  std::uint64_t bytes = 0;
  std::vector<std::string> tensors;  ///< a line of each
  std::string layout;
  std::size_t files = 0;
};

std::string line_of(const std::string& name, const std::string& type,
                    const std::vector<std::int64_t>& shape) {
  std::string line = name + " " + type + "[";
  for (std::size_t d = 0; d < shape.size(); ++d)
    line += (d == 0 ? "" : ", ") + std::to_string(shape[d]);
  return line + "]";
}

std::string layout_text(const train::Layout& layout) {
  return "dp=" + std::to_string(layout.dp) + ",tp=" + std::to_string(layout.tp) +
         ",pp=" + std::to_string(layout.pp) + " zero=" + std::to_string(layout.zero) + " " +
         std::string(kernels::name_of(layout.compute));
}

Found look_at_file(const std::string& path) {
  Found found{.path = path};
  const Result<train::SafetensorsFile> file = train::read_safetensors_file(path);
  if (!file) {
    found.problem = file.error().message();
    return found;
  }
  found.files = 1;
  found.bytes = file->storage.size();
  for (const train::FileTensor& tensor : file->tensors)
    found.tensors.push_back(
        line_of(tensor.name, std::string(train::name_of(tensor.type)), tensor.shape));
  const auto step = file->metadata.find("step");
  if (step != file->metadata.end()) found.step = std::atol(step->second.c_str());
  return found;
}

Found look_at_checkpoint(const std::string& path) {
  Found found{.path = path};
  const auto named = train::step_of_folder(fs::path(path).filename().string());
  if (named) found.step = *named;
  try {
    const train::FolderCheckpoint saved = train::FolderCheckpoint::open(path);
    const train::CheckpointDocument& document = saved.document();
    found.step = document.step;
    found.bytes = document.bytes();
    found.layout = layout_text(document.layout);
    found.files = document.files.size();
    for (const auto& tensor : saved.view().tensors)
      found.tensors.push_back(line_of(tensor.name, "F32", tensor.shape));
    if (named && *named != document.step)
      found.problem = "its checkpoint.json is of step " + std::to_string(document.step);
    for (std::size_t f = 0; f < document.files.size() && found.problem.empty(); ++f)
      if (const Result<void> sound = saved.verify(f); !sound)
        found.problem = sound.error().message();
  } catch (const Error& error) {
    found.problem = error.message();
  }
  std::sort(found.tensors.begin(), found.tensors.end());
  return found;
}

/// Returns the checkpoints of a run's folder, the newest first, or the one checkpoint or file.
std::vector<Found> look(const std::string& path) {
  std::error_code problem;
  const fs::file_status status = fs::status(path, problem);
  if (!fs::exists(status))
    throw Failure{Exit::usage, Error(Code::invalid_argument, "there is no " + path)};
  if (!fs::is_directory(status)) return {look_at_file(path)};
  std::vector<train::FoundFolder> steps = train::folders_in(path);
  if (steps.empty()) return {look_at_checkpoint(path)};
  std::sort(steps.begin(), steps.end(),
            [](const auto& a, const auto& b) { return a.step > b.step; });
  std::vector<Found> all;
  for (const train::FoundFolder& step : steps)
    all.push_back(look_at_checkpoint(path + "/" + train::step_folder_name(step.step)));
  return all;
}

Json document_of(const Found& found) {
  Json tensors = Json::array();
  for (const std::string& tensor : found.tensors) tensors.push_back(tensor);
  Json json{{"path", found.path},
            {"complete", found.problem.empty()},
            {"files", found.files},
            {"bytes", found.bytes},
            {"tensors", tensors}};
  if (!found.problem.empty()) json["problem"] = found.problem;
  if (found.step >= 0) json["step"] = found.step;
  if (!found.layout.empty()) json["layout"] = found.layout;
  return json;
}

void tell(const Found& found, bool tensors) {
  const std::string step = found.step < 0 ? "no step" : "step " + std::to_string(found.step);
  std::printf("%s: %s, %zu tensors, %s in %zu file%s", found.path.c_str(), step.c_str(),
              found.tensors.size(), size_text(found.bytes).c_str(), found.files,
              found.files == 1 ? "" : "s");
  if (!found.layout.empty()) std::printf(", saved by %s", found.layout.c_str());
  std::printf("; %s\n",
              found.problem.empty() ? "complete" : ("not complete: " + found.problem).c_str());
  for (const std::string& tensor : found.tensors)
    if (tensors) std::printf("  %s\n", tensor.c_str());
}

/// Returns the checkpoint itself, or the newest complete one of a run's folder.
std::string checkpoint_of(const std::string& path) {
  const train::Start start = train::choose_start(train::folders_in(path));
  for (const std::string& skipped : start.skipped)
    std::fprintf(stderr, "troupe checkpoint consolidate: %s\n", skipped.c_str());
  return start.steps.empty() ? path : path + "/" + train::step_folder_name(start.steps.front());
}

}  // namespace

Exit inspect_checkpoint(const CheckpointRequest& request) {
  const std::vector<Found> all = look(request.path);
  if (request.json) {
    Json list = Json::array();
    for (const Found& found : all) list.push_back(document_of(found));
    print({{"checkpoints", list}});
  } else {
    for (const Found& found : all) tell(found, all.size() == 1);
  }
  const bool sound =
      std::any_of(all.begin(), all.end(), [](const Found& found) { return found.problem.empty(); });
  return sound ? Exit::ok : Exit::failed;
}

Exit consolidate_checkpoint(const CheckpointRequest& request) {
  std::error_code problem;
  if (!fs::is_directory(request.path, problem))
    throw Failure{Exit::usage, Error(Code::invalid_argument, request.path + " is no folder")};
  try {
    const std::string from = checkpoint_of(request.path);
    train::consolidate(from, request.to, request.all);
    std::printf("%s: %s of %s\n", request.to.c_str(),
                request.all ? "weights and moments" : "weights", from.c_str());
  } catch (const Error& error) {
    throw Failure{Exit::failed, error};
  }
  return Exit::ok;
}

}  // namespace troupe::cli
