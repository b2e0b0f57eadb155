#include "troupe/tune/study/study_disk.hpp"

#include "troupe/runtime/base/json.hpp"

#include <chrono>
#include <deque>
#include <thread>
#include <utility>

namespace troupe::tune {
namespace {

constexpr Duration kPullTimeout = std::chrono::seconds(30);
constexpr Duration kTryAgain = std::chrono::seconds(1);
/// Events that are read at a time.
constexpr std::size_t kPage = 1000;

/// Reads the row of a checkpoint; nothing when it is none.
std::optional<CheckpointSave> save_in(std::string_view row) {
  const Result<Json> json = Json::parse(row);
  if (!json) return std::nullopt;
  const Json *file = json->find("file"), *hash = json->find("hash"), *bytes = json->find("bytes"),
             *step = json->find("step"), *trial = json->find("trial");
  if (file == nullptr || hash == nullptr || bytes == nullptr || file->as_text() == nullptr ||
      hash->as_text() == nullptr)
    return std::nullopt;
  CheckpointSave save;
  save.key = *file->as_text();
  save.hash = *hash->as_text();
  save.bytes = bytes->as_whole<std::uint64_t>().value_or(0);
  if (step != nullptr) save.step = step->as_whole<long>().value_or(0);
  if (trial != nullptr) save.trial = trial->as_whole<std::uint32_t>().value_or(0);
  return save;
}

}  // namespace

StudyDisk::StudyDisk(Context ctx, std::unique_ptr<StudyStore> store, Options options)
    : ctx_(ctx), options_(std::move(options)), store_(std::move(store)) {}

Result<std::unique_ptr<StudyDisk>> StudyDisk::open(Context ctx, const std::string& folder,
                                                   Options options) {
  auto store = StudyStore::open(folder, options.store);
  if (!store) return store.error();
  std::unique_ptr<StudyDisk> disk(new StudyDisk(ctx, std::move(*store), std::move(options)));
  disk->read_rows();
  return disk;
}

/// Learns of the files, and starts the threads that write further ones. What pull() needs comes
/// with the call, since `models_` belongs to the runner's thread.
void StudyDisk::read_rows() {
  store_->rows()
      .checkpoints([this](std::string_view, std::string_view row) {
        if (const auto save = save_in(row)) models_[save->key].save = *save;
        return true;
      })
      .value();
  CheckpointFiles::Options options;
  options.low_water = options_.store.low_water;
  options.free_space = options_.store.free_space;
  options.wake = options_.wake;
  files_ = std::make_unique<CheckpointFiles>(store_->folder().checkpoints_path(), options);
}

std::function<std::optional<std::string>()> StudyDisk::lines() const {
  struct Reading {
    std::uint64_t next = 0;  ///< 0: the description
    std::deque<std::string> page;
  };
  auto reading = std::make_shared<Reading>();
  return [reading, rows = &store_->rows()]() -> std::optional<std::string> {
    Reading& r = *reading;
    if (r.next == 0) {
      r.next = 1;
      return rows->meta().value();
    }
    if (r.page.empty())
      rows->events(r.next,
                   [&r](std::uint64_t number, std::string_view json) {
                     r.page.emplace_back(json);
                     r.next = number + 1;
                     return r.page.size() < kPage;
                   })
          .value();
    if (r.page.empty()) return std::nullopt;
    std::string line = std::move(r.page.front());
    r.page.pop_front();
    return line;
  };
}

std::vector<StudyDisk::Fault> StudyDisk::faults() const {
  std::vector<Fault> found;
  for (const auto& [key, model] : models_) {
    if (model.saved) continue;
    const std::string fault = files_->fault_of(model.save);
    if (!fault.empty())
      found.push_back({key, "the checkpoint " + files_->path_of(key) + " " + fault});
  }
  return found;
}

void StudyDisk::keep_only(const std::function<bool(const std::string&)>& needs) {
  std::vector<std::string> kept;
  for (auto model = models_.begin(); model != models_.end();) {
    if (model->second.saved || needs(model->first)) {
      kept.push_back(model->first);
      ++model;
    } else {
      model = models_.erase(model);
    }
  }
  (void)files_->tidy(kept);
}

void StudyDisk::write(const StudyBatch& batch) {
  const Time until = steady_now() + options_.wait_for_space;
  for (;;) {
    const Result<void> done = store_->write(batch, options_.stops);
    if (done) {
      full_ = false;
      return;
    }
    if (done.error().code() != Code::out_of_disk || done.error().maybe_executed() ||
        steady_now() >= until)
      raise(done.error());
    say(done.error());
    if (options_.stops && options_.stops())
      throw Cancelled(Code::cancelled, "tune: a batch was given up: " + done.error().message());
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

void StudyDisk::save(const CheckpointSave& save, const train::SavedModel& model) {
  models_[save.key] = Model{save, model, steady_now(), Time::max(), true};
  ++writing_;
  files_->write(save, [ctx = ctx_, model] { return pull_model(ctx, model, kPullTimeout); });
}

std::vector<StudyDisk::Stored> StudyDisk::take_stored() {
  std::vector<Stored> stored;
  const Time now = steady_now();
  for (CheckpointFiles::Done& done : files_->take_done()) {
    const auto found = models_.find(done.save.key);
    if (found == models_.end()) {  // dropped while it was written
      files_->remove({done.save.key});
      continue;
    }
    Model& model = found->second;
    const bool full = done.error && done.error->code() == Code::out_of_disk;
    if (full && now < model.begun + options_.wait_for_space) {
      say(*done.error);
      model.again = now + kTryAgain;
      continue;
    }
    if (!done.error) full_ = false;
    model.writing = false;
    --writing_;
    stored.push_back({done.save.key, std::move(done.error)});
  }
  for (auto& [key, model] : models_) {
    if (now < model.again) continue;
    model.again = Time::max();
    files_->write(model.save, [ctx = ctx_, saved = model.saved] {
      return pull_model(ctx, saved, kPullTimeout);
    });
  }
  return stored;
}

void StudyDisk::drop(const std::string& key) {
  if (const auto found = models_.find(key); found != models_.end()) {
    if (found->second.writing) --writing_;
    models_.erase(found);
  }
  files_->remove({key});
}

train::SavedModel StudyDisk::model(const std::string& key) {
  const auto found = models_.find(key);
  if (found == models_.end())
    throw InvalidArgument(Code::invalid_argument, "tune: the study " + store_->folder().path() +
                                                      " has no checkpoint " + key);
  Model& model = found->second;
  if (!model.saved)
    model.saved = publish_model(
        ctx_, CheckpointFiles::read(store_->folder().checkpoints_path(), model.save).value(),
        model.save);
  return model.saved;
}

std::function<train::SavedModel()> StudyDisk::loader(const std::string& key) const {
  const Model& model = models_.at(key);
  if (model.saved) return [saved = model.saved] { return saved; };
  return [ctx = ctx_, folder = store_->folder().checkpoints_path(), save = model.save] {
    return publish_model(ctx, CheckpointFiles::read(folder, save).value(), save);
  };
}

/// Says once that the disk is full, until there is room again.
void StudyDisk::say(const Error& error) {
  if (!full_ && options_.tell) options_.tell(error.message());
  full_ = true;
}

}  // namespace troupe::tune
