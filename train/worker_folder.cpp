// Worker and the folder of its run.
#include "troupe/actors/collective/communicator.hpp"
#include "troupe/actors/collective/work.hpp"
#include "troupe/train/detail/training_loop.hpp"
#include "troupe/train/worker.hpp"

#include <span>
#include <string>
#include <utility>

namespace troupe::train {
namespace {

std::string skipped(const std::string& path, const std::string& why) {
  return "the checkpoint " + path + " is skipped: " + why;
}

}  // namespace

bool Worker::to_folder() const noexcept {
  return loop_->saves_ != nullptr;
}

bool Worker::begin_save() {
  std::int64_t busy = loop_->saves_->wait() ? 0 : 1;
  loop_->operate("checkpoint()", [&](collective::Communicator& group) {
    return group.all_reduce(std::span(&busy, 1), collective::Reduce::max);
  });
  if (busy != 0) loop_->saves_->leave_out(step());
  return busy == 0;
}

void Worker::stage(Engine& engine) {
  engine.stage(loop_->saves_->staged());
}

void Worker::start_save(internal::FolderSave save) {
  const internal::PassCursor cursor = passes().cursor();
  CheckpointDocument& document = save.document;
  document.step = step();
  document.passes = cursor.passes;
  document.batches = cursor.batches;
  document.data = passes().data();
  document.layout = layout();
  loop_->saves_->start(std::move(save));
}

std::shared_ptr<const FolderCheckpoint> Worker::open_start() {
  internal::FolderEvent told{.kind = internal::FolderEvent::Kind::started};
  std::shared_ptr<const FolderCheckpoint> found;
  for (const std::string& path : loop_->setup_.run.starts) {
    const internal::FolderSaves::Candidate mine = loop_->saves_->look_at(path);
    std::int64_t fault = mine.fault;
    loop_->operate("restore()", [&](collective::Communicator& group) {
      return group.all_reduce(std::span(&fault, 1), collective::Reduce::max);
    });
    if (fault == 0) {
      found = mine.checkpoint;
      told.step = found->document().step;
      break;
    }
    std::string why = "another worker cannot open it";
    if (fault == mine.fault)
      why = mine.problem;
    else if (fault >= 2 && mine.checkpoint)
      why = mine.checkpoint->document().files.at(static_cast<std::size_t>(fault - 2)).name +
            " has other bytes than checkpoint.json says: its hash differs";
    told.skipped.push_back(skipped(path, why));
  }
  if (rank() != 0) return found;
  internal::WorkerEvent event;
  event.kind = internal::WorkerEvent::Kind::folder;
  event.folder = std::move(told);
  loop_->emit(std::move(event));
  return found;
}

void Worker::resume(const CheckpointDocument& document) {
  loop_->go_to(document.step);
  passes().resume({.passes = document.passes, .batches = document.batches});
  passes().expect(document.data);
}

}  // namespace troupe::train
