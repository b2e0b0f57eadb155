// The exporter of TensorBoard's runs: one for each of the live trials and of the best ones.
#include "troupe/tune/export/internal/exporter.hpp"
#include "troupe/tune/internal/json.hpp"
#include "troupe/tune/views/tables.hpp"

#include <cmath>
#include <map>
#include <utility>

namespace troupe::tune::internal {
namespace {

using Kind = Event::Kind;

class TensorboardExporter final : public Exporter {
 public:
  TensorboardExporter(const Board& board, std::size_t most_runs)
      : board_(board), most_runs_(most_runs) {}

  const char* name() const override { return "tensorboard"; }
  std::string path_of(const std::string& file) const override {
    return "tensorboard/trial-" + file + "/" +
           tensorboard_file_name(began_, "troupe", std::stoi(file));
  }
  bool may_lack_files() const override { return true; }

  void take(const Exported& exported, GrowingFiles& files) override {
    const Event& e = exported.event;
    if (e.kind == Kind::begin && e.wall != 0) began_ = static_cast<double>(e.wall) / 1e6;
    if (const auto run = runs_.find(e.trial); is_close(e.kind) && run != runs_.end())
      run->second.over = true;
    if (e.kind != Kind::report || !has_run(e.trial, files)) return;
    const double now = e.wall != 0 ? static_cast<double>(e.wall) / 1e6 : began_ + e.seconds();
    Run& run = runs_[e.trial];
    std::string bytes;
    if (!std::exchange(run.begun, true)) bytes = tensorboard_header(now);
    bytes += tensorboard_scalar(now, e.step, board_.metric, static_cast<float>(e.score));
    for (const auto& [metric, value] : e.metrics)
      if (metric != board_.metric)
        bytes += tensorboard_scalar(now, e.step, metric, static_cast<float>(value));
    files.append(std::to_string(e.trial), bytes);
    if (board_.goal.better(e.score, run.best)) run.best = e.score;
  }

  Json state() const override {
    Json runs = Json::array();
    for (const auto& [trial, run] : runs_) {
      Json one = Json::array();
      one.push_back(trial);
      one.push_back(json_number(run.best));
      one.push_back(run.over);
      runs.push_back(std::move(one));
    }
    Json out;
    out["began"] = began_;
    out["runs"] = std::move(runs);
    return out;
  }

  void restore(const Json& state) override {
    began_ = 0;
    runs_.clear();
    if (state.is_null()) return;
    if (const Json* began = state.find("began")) began_ = number_from_json(*began);
    const Json* runs = state.find("runs");
    const Json::Array* all = runs == nullptr ? nullptr : runs->as_array();
    if (all == nullptr) return;
    for (const Json& one : *all) {
      const Json::Array* fields = one.as_array();
      if (fields == nullptr || fields->size() != 3) continue;
      Run& run = runs_[(*fields)[0].as_whole<int>().value_or(-1)];
      run.best = number_from_json((*fields)[1]);
      run.over = (*fields)[2].as_bool() != nullptr && *(*fields)[2].as_bool();
      run.begun = true;
    }
  }

 private:
  struct Run {
    double best = std::nan("");  ///< of its reports
    bool over = false;
    bool begun = false;  ///< its file has a header
  };

  /// Whether the trial has a run, or gets one now. The worst trial that is over gives its run.
  bool has_run(int trial, GrowingFiles& files) {
    if (runs_.count(trial) > 0) return true;
    if (runs_.size() >= most_runs_) {
      auto worst = runs_.end();
      for (auto run = runs_.begin(); run != runs_.end(); ++run)
        if (run->second.over &&
            (worst == runs_.end() || board_.goal.better(worst->second.best, run->second.best)))
          worst = run;
      if (worst == runs_.end()) return false;
      files.remove(std::to_string(worst->first));
      runs_.erase(worst);
    }
    runs_[trial];
    return true;
  }

  const Board& board_;
  std::size_t most_runs_;
  double began_ = 0;  ///< seconds of the Unix epoch
  std::map<int, Run> runs_;
};

}  // namespace

std::unique_ptr<Exporter> tensorboard_exporter(const Board& board, std::size_t most_runs) {
  return std::make_unique<TensorboardExporter>(board, most_runs);
}

}  // namespace troupe::tune::internal
