// The exporters of CSV and of JSON lines: a row per report, and a row per trial that is over.
#include "troupe/tune/export/internal/exporter.hpp"
#include "troupe/tune/views/tables.hpp"

namespace troupe::tune::internal {
namespace {

using Kind = Event::Kind;

class CsvExporter final : public Exporter {
 public:
  explicit CsvExporter(const Board& board) : board_(board) {}
  const char* name() const override { return "csv"; }
  std::string path_of(const std::string& file) const override { return file + ".csv"; }
  void take(const Exported& exported, GrowingFiles& files) override {
    const Event& e = exported.event;
    if (!begun_) {
      files.append("progress", progress_csv_header(board_));
      files.append("trials", trials_csv_header(board_));
      begun_ = true;
    }
    if (e.kind == Kind::report)
      files.append("progress",
                   progress_csv_row(e.trial, {e.step, e.score, e.seconds(), e.attempt}));
    if (is_close(e.kind)) files.append("trials", trials_csv_row(board_, exported.trial()));
  }
  Json state() const override { return begun_; }
  void restore(const Json& state) override {
    const bool* begun = state.as_bool();
    begun_ = begun != nullptr && *begun;
  }

 private:
  const Board& board_;
  bool begun_ = false;
};

class JsonlExporter final : public Exporter {
 public:
  explicit JsonlExporter(const Board& board) : board_(board) {}
  const char* name() const override { return "jsonl"; }
  std::string path_of(const std::string& file) const override { return file + ".jsonl"; }
  void take(const Exported& exported, GrowingFiles& files) override {
    const Event& e = exported.event;
    if (e.kind == Kind::report) files.append("progress", progress_jsonl_row(board_, e));
    if (is_close(e.kind)) files.append("trials", trials_jsonl_row(board_, exported.trial()));
  }

 private:
  const Board& board_;
};

}  // namespace

bool is_close(Event::Kind kind) noexcept {
  return kind == Kind::completed || kind == Kind::stopped || kind == Kind::failed;
}

std::unique_ptr<Exporter> csv_exporter(const Board& board) {
  return std::make_unique<CsvExporter>(board);
}
std::unique_ptr<Exporter> jsonl_exporter(const Board& board) {
  return std::make_unique<JsonlExporter>(board);
}

}  // namespace troupe::tune::internal
