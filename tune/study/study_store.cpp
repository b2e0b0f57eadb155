#include "troupe/tune/study/study_store.hpp"

#include "troupe/runtime/base/leave_behind.hpp"
#include "troupe/runtime/base/signal_masked_thread.hpp"
#include "troupe/runtime/storage/database.hpp"
#include "troupe/runtime/storage/disk_space.hpp"
#include "troupe/tune/study/internal/disk_calls.hpp"
#include "troupe/tune/study/internal/files.hpp"
#include "troupe/tune/study/internal/store_check.hpp"
#include "troupe/tune/study/internal/store_keys.hpp"

#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <utility>
#include <vector>

namespace troupe::tune {

namespace {

Error out_of_disk(const std::string& folder, Bytes free, Bytes needed, const char* what) {
  return Error(Code::out_of_disk, "tune: only " + std::to_string(free.count) +
                                      " bytes are free at " + folder + ", and a study needs " +
                                      std::to_string(needed.count) + " to " + what +
                                      ": make room on that disk");
}

std::vector<storage::Write> writes_of(const StudyBatch& batch) {
  std::vector<storage::Write> writes;
  writes.reserve(batch.events.size() + batch.trials.size() + batch.reports.size() +
                 batch.checkpoints.size() + batch.clients.size() + batch.exporters.size() + 1);
  std::uint64_t number = batch.first_event;
  for (const std::string& event : batch.events)
    writes.push_back({internal::event_key(number++), event});
  for (const TrialRow& row : batch.trials)
    writes.push_back({internal::trial_key(row.trial), row.json});
  for (const ReportRow& row : batch.reports)
    writes.push_back({internal::report_key(row.trial, row.step), row.json});
  for (const CheckpointRow& row : batch.checkpoints)
    writes.push_back({internal::kCheckpoints + row.key, row.json});
  for (const ClientRow& row : batch.clients)
    writes.push_back({internal::kClients + row.client, row.json});
  for (const ExporterRow& row : batch.exporters)
    writes.push_back({internal::kExporters + row.exporter, row.json});
  if (batch.meta) writes.push_back({internal::kMetaKey, batch.meta});
  return writes;
}

/// The folder is given up once nobody uses the database.
struct Opened {
  StudyFolder folder;
  std::unique_ptr<storage::Database> db;
};

}  // namespace

struct StudyStore::State {
  State(StudyFolder folder, StudyStoreOptions wanted)
      : opened(std::make_shared<Opened>(Opened{std::move(folder), nullptr})),
        options(std::move(wanted)),
        disk(opened->folder.path(), options.reserve) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { end(); }
  void end();

  Bytes free() const { return options.free_space ? options.free_space() : disk.free(); }
  Result<void> make_room();
  Result<void> open_database();
  Result<void> create();
  Result<void> recover(std::uint64_t synced);
  Result<void> sync_now();
  void sync_often();
  Result<void> fail(Error error);

  std::shared_ptr<Opened> opened;  ///< until end(); `rows` and its copies keep it, too
  StudyStoreOptions options;
  storage::DiskSpace disk;
  StudyRows rows;
  std::mutex syncing;  ///< taken before `mutex`
  mutable std::mutex mutex;
  std::condition_variable wake;
  // What `mutex` guards.
  struct Point {
    std::uint64_t event = 0;  ///< the last one
    std::uint64_t batch = 0;  ///< how many
  };
  Point written;
  Point durable;                 ///< its event is named in `synced`
  std::optional<Error> failure;  ///< what ended the use of the store
  bool over = false;
  SignalMaskedThread thread;
  internal::DiskCalls calls;
};

/// Syncs what was written, closes the database and gives up the folder.
void StudyStore::State::end() {
  if (!thread.joinable()) return;
  {
    const std::lock_guard guard(mutex);
    over = true;
  }
  wake.notify_all();
  thread.join();
  if (sync_now() && free() >= options.floor) (void)opened->db->flush();
  rows = {};
  opened.reset();
}

Result<void> StudyStore::State::make_room() {
  if (free() < options.floor) disk.use_reserve(true);
  if (const Bytes have = free(); have < options.floor)
    return out_of_disk(opened->folder.path(), have, options.floor, "open");
  return {};
}

/// The file `synced` is made before the store. A store without a file CURRENT, of which nothing was
/// synced, is therefore a first start that was killed, and is made again.
Result<void> StudyStore::State::open_database() {
  const std::string store = opened->folder.store_path();
  const auto synced = internal::read_mark(opened->folder.mark_path());
  if (!internal::exists(store) && (!internal::exists(opened->folder.mark_path()) || synced == 0))
    return create();
  if (!synced)
    return internal::damaged(opened->folder.path(), opened->folder.mark_path() + ", offset 0",
                             "it does not name the last synced event");
  if (*synced == 0 && !internal::exists(store + "/CURRENT")) return create();
  if (!internal::exists(store))
    return internal::damaged(opened->folder.path(), store + ", offset 0",
                             "it is missing, and event " + std::to_string(*synced) + " was synced");
  return recover(*synced);
}

Result<void> StudyStore::State::create() {
  std::error_code error;
  std::filesystem::remove_all(opened->folder.store_path(), error);
  for (const std::string& path : {opened->folder.checkpoints_path(), opened->folder.logs_path(),
                                  opened->folder.exports_path()}) {
    std::filesystem::create_directories(path, error);
    if (error) return internal::failed("make the folder", path, error.value());
  }
  if (auto done = internal::write_mark(opened->folder.mark_path(), 0); !done) return done;
  if (auto done = internal::sync_folder(opened->folder.path()); !done) return done;
  auto door = storage::door();
  if (!door) return door.error();
  const auto status =
      (*door)->open(opened->folder.store_path(), internal::database_options(true), opened->db);
  if (!status.ok()) return internal::error_of(status, "make", opened->folder.path());
  return internal::sync_folder(opened->folder.path());
}

/// Checks the store before anything is written to it: opening a damaged one to write would drop
/// what `troupe tune doctor` can still read.
Result<void> StudyStore::State::recover(std::uint64_t synced) {
  auto door = storage::door();
  if (!door) return door.error();
  {
    std::unique_ptr<storage::Database> look;
    const auto status =
        (*door)->open_to_read(opened->folder.store_path(), internal::database_options(false), look);
    if (!status.ok()) return internal::error_of(status, "open", opened->folder.path());
    const auto found = internal::check_store(*look, opened->folder.path(), synced);
    if (!found) return found.error();
    written.event = *found;
  }
  durable.event = synced;
  const auto status =
      (*door)->open(opened->folder.store_path(), internal::database_options(false), opened->db);
  if (!status.ok()) return internal::error_of(status, "open", opened->folder.path());
  if (written.event > durable.event) ++written.batch;
  return {};
}

/// Syncs all batches that are written, then names the last event of them.
Result<void> StudyStore::State::sync_now() {
  const std::lock_guard one_at_a_time(syncing);
  std::unique_lock lock(mutex);
  if (failure) return *failure;
  if (durable.batch == written.batch) return {};
  const Point now = written;
  const bool is_new = now.event != durable.event;
  lock.unlock();
  Result<void> done;
  if (const auto status = opened->db->sync(); !status.ok())
    done = internal::error_of(status, "sync", opened->folder.path());
  else if (is_new)
    done = internal::write_mark(opened->folder.mark_path(), now.event);
  lock.lock();
  if (!done) {  // a mark that meets a full disk is written later: the old one still holds
    if (done.error().code() != Code::out_of_disk || done.error().maybe_executed())
      failure = done.error();
    return done;
  }
  durable = now;
  return {};
}

void StudyStore::State::sync_often() {
  std::unique_lock lock(mutex);
  for (;;) {
    wake.wait(lock, [this] { return over || (durable.batch != written.batch && !failure); });
    if (!over) wake.wait_for(lock, options.sync_after, [this] { return over; });
    if (over) return;
    lock.unlock();
    (void)sync_now();  // the next write() returns the failure
    lock.lock();
  }
}

/// Ends the use of the store.
Result<void> StudyStore::State::fail(Error error) {
  const std::lock_guard guard(mutex);
  failure = std::move(error);
  return *failure;
}

StudyStore::StudyStore(std::shared_ptr<State> state) : state_(std::move(state)) {}

/// The disk's thread ends the state, however late: another store can open the folder then.
StudyStore::~StudyStore() {
  internal::DiskCalls& calls = state_->calls;
  const bool hangs = calls.hangs();
  if (!hangs && !ends_soon_) return;
  const Time until = steady_now() + (hangs ? Duration(0) : kLastWrites);
  try {
    if (calls.run([state = state_.get()] { state->end(); },
                  [until] { return steady_now() >= until; }))
      return;
  } catch (const Error&) {
    return;  // no thread: the disk is waited for
  }
  leave_behind(state_);
}

Result<std::unique_ptr<StudyStore>> StudyStore::open(const std::string& path,
                                                     StudyStoreOptions options) {
  auto folder = StudyFolder::open(path, StudyFolder::Use::own);
  if (!folder) return folder.error();
  auto state = std::make_shared<State>(std::move(*folder), std::move(options));
  if (auto room = state->make_room(); !room) return room.error();
  if (auto done = state->open_database(); !done) return done.error();
  Opened& o = *state->opened;
  state->rows = StudyRows({state->opened, o.db.get()}, o.folder.path());
  if (state->free() >= state->options.low_water) state->disk.use_reserve(false);
  state->thread = SignalMaskedThread("tune-sync", [s = state.get()] { s->sync_often(); });
  return std::unique_ptr<StudyStore>(new StudyStore(std::move(state)));
}

Result<void> StudyStore::write(const StudyBatch& batch, const std::function<bool()>& stops) {
  State& s = *state_;
  if (batch.empty()) return {};
  {
    const std::lock_guard guard(s.mutex);
    if (s.failure) return *s.failure;
    if (!batch.events.empty() && batch.first_event != s.written.event + 1)
      return Error(Code::invalid_argument, "tune: event " + std::to_string(batch.first_event) +
                                               " cannot follow event " +
                                               std::to_string(s.written.event));
  }
  if (const Bytes free = s.free(); free < s.options.low_water)
    return out_of_disk(s.opened->folder.path(), free, s.options.low_water, "write");
  const bool power = s.options.durability == StudyDurability::power;
  struct Written {
    std::vector<storage::Write> writes;
    storage::Durability durability;
    storage::Status status;
  };
  const auto written = std::make_shared<Written>(Written{
      writes_of(batch), power ? storage::Durability::synced : storage::Durability::kernel, {}});
  const auto write = [db = s.opened->db.get(), written] {
    written->status = db->write(written->writes, written->durability);
  };
  Time until = Time::max();
  const auto gives_up = [&stops, &until] {
    if (until == Time::max() && stops()) until = steady_now() + kLastWrites;
    return steady_now() >= until;
  };
  try {
    if (!stops)
      write();
    else if (!s.calls.run(write, gives_up))
      return s.fail(Error(Code::cancelled,
                          "tune: a batch was given up: the disk of " + s.opened->folder.path() +
                              " has not taken it: look whether that disk hangs",
                          Outcome::unknown));
  } catch (const OutOfMemory& error) {
    return error;  // no thread: nothing was written
  }
  if (!written->status.ok())
    return s.fail(internal::error_of(written->status, "write", s.opened->folder.path()));
  const std::lock_guard guard(s.mutex);
  s.written.event += batch.events.size();
  const bool idle = s.durable.batch == s.written.batch++;
  if (idle) s.wake.notify_all();
  return {};
}

Result<void> StudyStore::sync() {
  return state_->sync_now();
}

const StudyRows& StudyStore::rows() const noexcept {
  return state_->rows;
}
const StudyFolder& StudyStore::folder() const noexcept {
  return state_->opened->folder;
}
std::uint64_t StudyStore::last_event() const noexcept {
  const std::lock_guard guard(state_->mutex);
  return state_->written.event;
}
std::uint64_t StudyStore::synced_event() const {
  const std::lock_guard guard(state_->mutex);
  return state_->durable.event;
}
Bytes StudyStore::free_space() const {
  return state_->free();
}

struct StudyReader::State {
  explicit State(StudyFolder opened) : folder(std::move(opened)) {}
  StudyFolder folder;
  std::shared_ptr<storage::Database> db;
  StudyRows rows;
  std::uint64_t last = 0;
};

StudyReader::StudyReader(std::unique_ptr<State> state) : state_(std::move(state)) {}
StudyReader::~StudyReader() = default;
StudyReader::StudyReader(StudyReader&&) noexcept = default;
StudyReader& StudyReader::operator=(StudyReader&&) noexcept = default;

Result<StudyReader> StudyReader::open(const std::string& path) {
  auto folder = StudyFolder::open(path, StudyFolder::Use::read);
  if (!folder) return folder.error();
  auto state = std::make_unique<State>(std::move(*folder));
  const auto synced = internal::read_mark(state->folder.mark_path());
  if (!synced)
    return internal::damaged(state->folder.path(), state->folder.mark_path() + ", offset 0",
                             "it does not name the last synced event");
  auto door = storage::door();
  if (!door) return door.error();
  std::unique_ptr<storage::Database> db;
  const auto status =
      (*door)->open_to_read(state->folder.store_path(), internal::database_options(false), db);
  if (!status.ok()) return internal::error_of(status, "open", state->folder.path());
  state->db = std::move(db);
  const auto last = internal::check_store(*state->db, state->folder.path(), *synced);
  if (!last) return last.error();
  state->last = *last;
  state->rows = StudyRows(state->db, state->folder.path());
  return StudyReader(std::move(state));
}

const StudyRows& StudyReader::rows() const noexcept {
  return state_->rows;
}
const StudyFolder& StudyReader::folder() const noexcept {
  return state_->folder;
}
std::uint64_t StudyReader::last_event() const noexcept {
  return state_->last;
}

}  // namespace troupe::tune
