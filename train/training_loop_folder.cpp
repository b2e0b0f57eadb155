// A training loop and the folder of its run.
#include "troupe/train/checkpoint/folder/run_lock.hpp"
#include "troupe/train/detail/training_loop.hpp"

#include <chrono>
#include <string>

namespace troupe::train::internal {
namespace {

/// How long a rank looks for the driver's file; a network file system shows it late.
constexpr Duration kFolderWait = std::chrono::seconds(5);

std::string node_name() {
  const Context ctx = Context::current();
  const NodeId here = ctx.node();
  for (const NodeInfo& node : ctx.cluster().nodes)
    if (node.id == here) return node.name;
  return "unknown";
}

}  // namespace

/// Looks for the driver's file in the run's folder. When it is not there, tells the supervisor,
/// which ends the run, and returns false.
bool TrainingLoop::sees_folder() {
  if (setup_.run.folder.empty()) return true;
  const std::string why = why_not_shared(setup_.run.folder, setup_.run.driver,
                                         std::to_string(setup_.rank), kFolderWait);
  if (why.empty()) return true;
  WorkerEvent unseen;
  unseen.kind = WorkerEvent::Kind::folder;
  unseen.folder = {.kind = FolderEvent::Kind::unseen,
                   .error = "train: node " + node_name() + " does not see run.folder " +
                            setup_.run.folder + ": " + why +
                            ": give a folder that all nodes share at this path"};
  emit(std::move(unseen));
  return false;
}

void TrainingLoop::open_folder() {
  if (setup_.run.folder.empty()) return;
  saves_ = std::make_unique<FolderSaves>(setup_, group_.get(), [this](FolderEvent event) {
    WorkerEvent told;
    told.kind = WorkerEvent::Kind::folder;
    told.at = position();
    told.folder = std::move(event);
    emit(std::move(told));
  });
}

}  // namespace troupe::train::internal
