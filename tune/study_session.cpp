#include "troupe/tune/internal/study_session.hpp"

#include "troupe/runtime/base/build_id.hpp"
#include "troupe/runtime/base/json.hpp"
#include "troupe/tune/internal/text.hpp"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <utility>

namespace troupe::tune {
namespace {

/// How often files that are being written are looked for.
constexpr Duration kFilesEvery = std::chrono::milliseconds(5);

std::int64_t unix_micros() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

[[noreturn]] void refuse(const std::string& folder, const std::string& why) {
  throw InvalidArgument(Code::invalid_argument, "tune: the study " + folder + " " + why);
}

/// Refuses what options.resume does not allow.
void check_resume(const ExperimentOptions& options) {
  const bool exists = StudyFolder::holds_study(options.results);
  if (exists && options.resume == Resume::never)
    refuse(options.results,
           "is there already, and Options::resume is never: give another folder, or continue it");
  if (!exists && options.resume == Resume::required)
    refuse(options.results,
           "does not exist, and Options::resume is required: name the folder of a study");
}

std::string local_time(double seconds) {
  const auto whole = static_cast<std::time_t>(seconds);
  std::tm parts{};
  char text[32] = "";
  if (::localtime_r(&whole, &parts) == nullptr ||
      std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts) == 0)
    return "an unknown time";
  return text;
}

/// Returns the wall-clock time of an event, in seconds of the Unix epoch; 0: it has none.
double time_of(const StudyRows& rows, std::uint64_t number) {
  double time = 0;
  rows.events(number,
              [&time](std::uint64_t, std::string_view line) {
                const Result<Json> event = Json::parse(line);
                const Json* found = event ? event->find("time") : nullptr;
                if (found != nullptr) time = found->as_number().value_or(0);
                return false;
              })
      .value();
  return time;
}

}  // namespace

StudySession::StudySession(Context ctx, const ExperimentOptions& options, Tell tell,
                           std::function<bool()> stops)
    : ctx_(ctx), folder_(options.results), tell_(std::move(tell)) {
  if (folder_.empty()) return;
  check_resume(options);
  StudyDisk::Options with;
  with.store.durability = options.durability;
  with.tell = tell_;
  with.stops = std::move(stops);
  disk_ = StudyDisk::open(ctx, folder_, with).value();
}

Experiment StudySession::experiment(const SearchSpace& space, const ExperimentOptions& options) {
  const std::string build = executable_build_id();
  is_new_ = !disk_ || disk_->is_new();
  if (is_new_) {
    Experiment fresh(space, options);
    if (disk_) fresh.with_store(build);
    return fresh;
  }
  auto restored = Experiment::restore(space, options, disk_->lines());
  if (!restored) refuse(folder_, "cannot go on: " + restored.error().message());
  const std::string before = restored->with_store(build);
  if (!before.empty() && before != build)
    tell_("tune: the study " + folder_ + " goes on with another build: " + build + " instead of " +
          before);
  return std::move(*restored);
}

void StudySession::start(Experiment& experiment, Time now) {
  experiment.wall_clock(now, unix_micros());
  if (disk_)
    begin_services(experiment.board());
  else
    experiment.without_log();
  if (is_new_) return experiment.begin(now);
  for (const StudyDisk::Fault& fault : disk_->faults()) {
    if (!experiment.needs(fault.key)) continue;
    tell_("tune: " + fault.why + ": its trial goes on from the one before, or from nothing");
    experiment.missing(fault.key, fault.why, now);
  }
  disk_->keep_only([&experiment](const std::string& key) { return experiment.needs(key); });
  experiment.interrupted(now);
  if (experiment.over())
    tell_complete(experiment.board());
  else if (experiment.board().paused)
    tell_("tune: the study " + folder_ + " is paused: `troupe tune resume " + folder_ +
          "` lets it go on");
}

void StudySession::tell_complete(const Board& board) const {
  const StudyStore& store = disk_->store();
  tell_("tune: the study " + folder_ + " is complete since " +
        local_time(time_of(store.rows(), store.last_event())) + " (" + board.why_over +
        "): its result is returned; raise Options::trials to go on");
}

/// A study runs without a socket, too; only the verbs cannot reach it then.
void StudySession::begin_services(const Board& board) {
  exports_ = std::make_unique<ExportThread>(disk_->store().rows(),
                                            disk_->store().folder().exports_path(), board);
  auto server = StudyServer::open(disk_->store(), {});
  if (server)
    server_ = std::move(*server);
  else
    tell_("tune: `troupe tune` cannot reach the study: " + server.error().message());
}

void StudySession::hear_verbs(Experiment& experiment, Time now) {
  if (server_) server_->apply(experiment, now);
}

void StudySession::write(Experiment& experiment) {
  if (!disk_) return;
  StudyBatch batch = experiment.take_batch();
  batch.exporters = exports_->take_rows();
  if (!batch.empty()) disk_->write(batch);
  if (server_) server_->answer_all();
  tell_of_exports();
}

void StudySession::take_files(Experiment& experiment, Time now) {
  if (!disk_) return;
  for (StudyDisk::Stored& stored : disk_->take_stored()) {
    if (!stored.error) {
      experiment.stored(stored.key, now);
    } else if (stored.error->code() == Code::out_of_disk) {
      raise(*stored.error);
    } else {
      tell_("tune: the checkpoint " + stored.key +
            " was not written: " + valid_utf8(stored.error->message()));
      experiment.missing(stored.key, stored.error->message(), now);
    }
  }
}

Time StudySession::next_files(Time now) const {
  return disk_ && disk_->writes() ? now + kFilesEvery : Time::max();
}

void StudySession::finish() {
  if (!exports_) return;
  StudyBatch batch;
  batch.exporters = exports_->finish();
  tell_of_exports();
  if (!batch.empty()) disk_->write(batch);
}

void StudySession::tell_of_exports() {
  for (const std::string& note : exports_->take_notes()) tell_("tune: " + note);
}

void StudySession::save(const CheckpointSave& checkpoint, const train::SavedModel& model,
                        std::optional<NodeId> node, int slots) {
  models_[checkpoint.key] = {model, node};
  if (!disk_) return;
  if (!std::exchange(told_of_room_, true)) tell_of_room(checkpoint.bytes, slots);
  disk_->save(checkpoint, model);
}

/// Says once that the checkpoints of all running trials will not fit.
void StudySession::tell_of_room(std::uint64_t bytes, int slots) {
  const std::string why = why_not_all_fit(bytes, static_cast<std::uint64_t>(std::max(slots, 1)),
                                          disk_->store().free_space().count);
  if (!why.empty()) tell_("tune: " + folder_ + ": " + why);
}

bool StudySession::has(const std::string& key) const {
  return models_.count(key) > 0 || (disk_ && disk_->has(key));
}

std::optional<NodeId> StudySession::node_of(const std::string& key) const {
  const auto found = models_.find(key);
  return found == models_.end() ? std::nullopt : found->second.node;
}

train::SavedModel StudySession::model(const std::string& key) {
  if (disk_) return disk_->model(key);
  const auto found = models_.find(key);
  if (found == models_.end())
    throw InvalidArgument(Code::invalid_argument, "tune: the checkpoint " + key + " is lost");
  return found->second.saved;
}

std::function<train::SavedModel()> StudySession::loader(const std::string& key) const {
  if (disk_) return disk_->loader(key);
  return [saved = models_.at(key).saved] { return saved; };
}

void StudySession::drop(const std::string& key) {
  models_.erase(key);
  if (disk_) disk_->drop(key);
}

}  // namespace troupe::tune
