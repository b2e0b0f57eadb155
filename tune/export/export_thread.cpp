#include "troupe/tune/export/export_thread.hpp"

#include <chrono>
#include <iterator>
#include <utility>

namespace troupe::tune {
namespace {

constexpr std::chrono::milliseconds kEvery(500);
/// Events of one piece of work.
constexpr std::size_t kPiece = 2000;

}  // namespace

ExportThread::ExportThread(const StudyRows& rows, const std::string& folder, const Board& board)
    : rows_(rows), exports_(folder, board), thread_("tune-exports", [this] { work(); }) {}

ExportThread::~ExportThread() {
  stop();
}

void ExportThread::stop() {
  {
    const std::lock_guard guard(mutex_);
    over_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void ExportThread::work() {
  for (;;) {
    const bool more = pump();
    std::unique_lock lock(mutex_);
    const auto wait = more ? std::chrono::milliseconds(0) : kEvery;
    if (wake_.wait_for(lock, wait, [this] { return over_; })) return;
  }
}

/// Does one piece of work. Returns whether there is more. Exporters that cannot go on at the moment
/// do not count.
bool ExportThread::pump() {
  Exports::Pumped done = exports_.pump(rows_, kPiece);
  const bool moved = !done.rows.empty();
  const std::lock_guard guard(mutex_);
  std::move(done.rows.begin(), done.rows.end(), std::back_inserter(moved_));
  std::move(done.notes.begin(), done.notes.end(), std::back_inserter(notes_));
  return done.more && moved;
}

std::vector<ExporterRow> ExportThread::take_rows() {
  const std::lock_guard guard(mutex_);
  return std::exchange(moved_, {});
}

std::vector<ExporterRow> ExportThread::finish() {
  stop();
  while (pump()) {
  }
  return take_rows();
}

std::vector<std::string> ExportThread::take_notes() {
  const std::lock_guard guard(mutex_);
  return std::exchange(notes_, {});
}

}  // namespace troupe::tune
