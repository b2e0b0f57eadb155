#include "troupe/tune/export/export_thread.hpp"

#include "troupe/runtime/base/leave_behind.hpp"
#include "troupe/runtime/base/signal_masked_thread.hpp"

#include <chrono>
#include <condition_variable>
#include <iterator>
#include <mutex>
#include <utility>

namespace troupe::tune {
namespace {

constexpr std::chrono::milliseconds kEvery(500);
/// Events of one piece of work.
constexpr std::size_t kPiece = 2000;

}  // namespace

/// All that the thread uses.
struct ExportThread::Work {
  Work(StudyRows from, const std::string& folder, const Board& board)
      : rows(std::move(from)), exports(folder, board) {}
  void run();
  bool pump();

  StudyRows rows;
  Exports exports;
  std::mutex mutex;
  std::condition_variable wake, ended;
  // What `mutex` guards.
  bool over = false;
  bool runs = true;
  bool left = false;  ///< nobody waits for the thread
  std::vector<ExporterRow> moved;
  std::vector<std::string> notes;
  SignalMaskedThread thread;
};

void ExportThread::Work::run() {
  for (;;) {
    const bool more = pump();
    std::unique_lock lock(mutex);
    const auto wait = more ? std::chrono::milliseconds(0) : kEvery;
    if (!wake.wait_for(lock, wait, [this] { return over; })) continue;
    runs = false;
    ended.notify_all();
    if (left) rows = {};  // another process may have the study now
    return;
  }
}

/// Does one piece of work. Returns whether there is more. Exporters that cannot go on at the moment
/// do not count.
bool ExportThread::Work::pump() {
  Exports::Pumped done = exports.pump(rows, kPiece);
  const bool some = !done.rows.empty();
  const std::lock_guard guard(mutex);
  std::move(done.rows.begin(), done.rows.end(), std::back_inserter(moved));
  std::move(done.notes.begin(), done.notes.end(), std::back_inserter(notes));
  return done.more && some;
}

ExportThread::ExportThread(const StudyRows& rows, const std::string& folder, const Board& board)
    : work_(std::make_shared<Work>(rows, folder, board)) {
  work_->thread = SignalMaskedThread("tune-exports", [work = work_.get()] { work->run(); });
}

ExportThread::~ExportThread() {
  if (ends_soon_) {
    std::unique_lock lock(work_->mutex);
    work_->over = true;
    work_->wake.notify_all();
    if (!work_->ended.wait_for(lock, kLastPiece, [this] { return !work_->runs; })) {
      work_->left = true;
      lock.unlock();
      leave_behind(work_);
      return;
    }
  }
  stop();
}

void ExportThread::stop() {
  {
    const std::lock_guard guard(work_->mutex);
    work_->over = true;
  }
  work_->wake.notify_all();
  if (work_->thread.joinable()) work_->thread.join();
}

std::vector<ExporterRow> ExportThread::take_rows() {
  const std::lock_guard guard(work_->mutex);
  return std::exchange(work_->moved, {});
}

std::vector<ExporterRow> ExportThread::finish() {
  stop();
  while (work_->pump()) {
  }
  return take_rows();
}

std::vector<std::string> ExportThread::take_notes() {
  const std::lock_guard guard(work_->mutex);
  return std::exchange(work_->notes, {});
}

}  // namespace troupe::tune
