#include "suite.hpp"

#include "tools.hpp"

#include <algorithm>
#include <map>
#include <memory>

namespace troupe::bench {
namespace {

/// The number of tries for a floor that spreads more than kCalm.
constexpr int kTries = 5;

/// Runs the rounds of one placement.
class Stand {
 public:
  Stand(Suite& suite, Placement placement, const RunOptions& options)
      : suite_(suite), placement_(placement), options_(options), all_(allowed_cpus()) {
    (void)cpu_of(placement, 0);  // before anything is pinned
    const bool two = placement == Placement::two_cpus || !possible(Placement::two_cpus);
    const auto rows = suite.rows();
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const RowInfo& row = rows[i];
      if (!(row.both || two) || std::string(row.name).find(options.only) == std::string::npos)
        continue;
      numbers_.push_back(i);
      series_.push_back({row.name, name_of(placement), row.unit, row.goal, {}, {}, {}, {}, 1e9});
    }
  }

  void round() {
    if (numbers_.empty()) return;
    std::map<int, Sample> floors;
    if (!options_.quick) floors = measure_floors();
    if (placement_ == Placement::one_cpu)
      go_to({cpu_of(placement_, 0)});
    else
      go_to({cpu_of(placement_, 0), cpu_of(placement_, 1)});
    const std::vector<Reading> readings = suite_.measure(numbers_, placement_, options_.quick);
    go_to(all_);
    for (std::size_t i = 0; i < series_.size(); ++i) add(series_[i], readings.at(i), floors, i);
  }

  void judge_into(std::vector<Judged>& rows) const {
    for (const Series& series : series_) rows.push_back(judge(series));
  }

 private:
  int floor_of(std::size_t i) const {
    const int floor = suite_.rows()[numbers_[i]].floor;
    return floor != kNoFloor && suite_.has_floor(floor, placement_) ? floor : kNoFloor;
  }

  /// Measures floors first, before any session, since they need a process without other threads.
  std::map<int, Sample> measure_floors() {
    std::map<int, Sample> floors;
    const auto have = [&](int floor) {
      if (floor != kNoFloor && floors.count(floor) == 0) floors[floor] = calm_sample(floor);
    };
    have(suite_.calm_floor());
    for (std::size_t i = 0; i < numbers_.size(); ++i) have(floor_of(i));
    return floors;
  }

  /// Returns the sample with the smallest spread of some tries. Each round counts as a try.
  Sample calm_sample(int floor) {
    const int tries = std::max(1, kTries / options_.rounds);
    Sample best = suite_.measure_floor(floor, placement_);
    for (int i = 1; i < tries && best.spread > kCalm; ++i) {
      const Sample again = suite_.measure_floor(floor, placement_);
      if (again.spread < best.spread) best = again;
    }
    return best;
  }

  void add(Series& series, const Reading& reading, std::map<int, Sample>& floors, std::size_t i) {
    series.values.push_back(reading.value);
    if (reading.ratio != 0) series.ratios.push_back(reading.ratio);
    if (reading.floor != 0) series.floors.push_back(reading.floor);
    if (floors.empty()) return;
    const int floor = floor_of(i);
    if (reading.floor == 0 && floor != kNoFloor) series.floors.push_back(floors[floor].value);
    const bool ratio = series.goal.of == Goal::Of::ratio && floor != kNoFloor;
    const Sample& watched = floors[ratio ? floor : suite_.calm_floor()];
    series.watched.push_back(watched.value);
    series.calmest = std::min(series.calmest, watched.spread);
  }

  Suite& suite_;
  Placement placement_;
  RunOptions options_;
  std::vector<int> all_;
  std::vector<std::size_t> numbers_;
  std::vector<Series> series_;
};

}  // namespace

std::vector<Judged> run(Suite& suite, const RunOptions& options) {
  std::vector<std::unique_ptr<Stand>> stands;
  for (const Placement placement : {Placement::one_cpu, Placement::two_cpus})
    if (possible(placement)) stands.push_back(std::make_unique<Stand>(suite, placement, options));
  for (int i = 0; i < options.rounds; ++i)
    for (const auto& stand : stands) stand->round();
  std::vector<Judged> rows;
  for (const auto& stand : stands) stand->judge_into(rows);
  return rows;
}

std::span<Suite* const> suites() {
  static Suite* const all[] = {&core_suite(),  &objects_suite(), &remote_suite(), &control_suite(),
                               &train_suite(), &tune_suite(),    &operate_suite()};
  return all;
}

}  // namespace troupe::bench
