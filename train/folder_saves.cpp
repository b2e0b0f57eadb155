#include "troupe/train/detail/folder_saves.hpp"

#include "troupe/runtime/base/deadline.hpp"
#include "troupe/train/checkpoint/folder/names.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace troupe::train::internal {
namespace {

/// How many timeouts of the gang a save may take.
constexpr int kSaveTimeouts = 10;

Duration times(Duration timeout, int factor) {
  return timeout > Duration::max() / factor ? Duration::max() : timeout * factor;
}

/// Returns a group without a timeout: one that ends takes the gang's other groups with it, and a
/// rank may wait for another one's disk.
std::unique_ptr<collective::Communicator> own_group(collective::Communicator* world, int rank) {
  if (world == nullptr) return nullptr;
  std::unique_ptr<collective::Communicator> group = world->split(0, rank);
  group->set_timeout(forever);
  return group;
}

}  // namespace

FolderSaves::FolderSaves(const WorkerSetup& setup, collective::Communicator* world, Emit emit)
    : rank_(setup.rank),
      world_(setup.world),
      timeout_(setup.timeout_ns),
      run_(setup.run),
      emit_(std::move(emit)),
      writer_(rank_, world_, own_group(world, rank_)) {}

bool FolderSaves::wait() {
  if (writer_.wait(std::min(timeout_ / 2, time_left(deadline_, steady_now())))) return true;
  look();
  return false;
}

void FolderSaves::look() {
  if (!told_ || steady_now() < deadline_ || told_->exchange(true)) return;
  emit_({.step = last_,
         .error = "it was still being written after " + std::to_string(kSaveTimeouts) +
                  " timeouts of the gang"});
}

void FolderSaves::leave_out(long step) {
  if (rank_ != 0) return;
  emit_({.kind = FolderEvent::Kind::left_out,
         .step = step,
         .error = "it was left out, because the save of step " + std::to_string(last_) +
                  " was still being written"});
}

void FolderSaves::start(FolderSave save) {
  const StagedState& staged = writer_.staged();
  CheckpointDocument& document = save.document;
  const bool engine = document.engine >= 0 && staged.plan != nullptr &&
                      rank_ >= staged.plan->first &&
                      rank_ < staged.plan->first + staged.plan->ranks;
  if (document.engine >= 0) {
    document.steps = staged.steps;
    document.seed = staged.seed;
    document.loss_scale = staged.loss_scale;
    document.moments_since = staged.moments_since;
  }
  last_ = document.step;
  deadline_ = deadline_after(steady_now(), times(timeout_, kSaveTimeouts));
  told_ = std::make_shared<std::atomic<bool>>(false);
  FolderEvent written{.step = document.step};
  if (rank_ == 0) written.document = text_of(document);
  writer_.begin({.folder = run_.folder + "/" + writing_folder_name(document.step, run_.gang),
                 .step = document.step,
                 .engine = engine,
                 .parts = rank_ == 0 ? std::move(save.parts) : std::nullopt,
                 .done = [emit = emit_, told = told_,
                          written = std::move(written)](WrittenShare share) mutable {
                   if (told->exchange(true)) return;  // look() was first
                   written.files = std::move(share.files);
                   written.error = std::move(share.error);
                   emit(std::move(written));
                 }});
}

void FolderSaves::finish() {
  if (!writer_.wait(time_left(deadline_, steady_now()))) look();
}

FolderSaves::Candidate FolderSaves::look_at(const std::string& path) const {
  Candidate found;
  try {
    found.checkpoint = std::make_shared<const FolderCheckpoint>(FolderCheckpoint::open(path));
  } catch (const Error& error) {
    return {.checkpoint = nullptr, .fault = 1, .problem = error.message()};
  }
  const std::size_t files = found.checkpoint->document().files.size();
  for (auto f = static_cast<std::size_t>(rank_); f < files; f += static_cast<std::size_t>(world_)) {
    const Result<void> sound = found.checkpoint->verify(f);
    if (sound) continue;
    found.fault = static_cast<std::int64_t>(f) + 2;
    found.problem = sound.error().message();
  }
  return found;
}

}  // namespace troupe::train::internal
