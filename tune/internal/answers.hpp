/// Answers: what the core asks of searcher and scheduler while it applies an input.
///
///     answers.live();                        // or answers.replay(event.answers)
///     auto point = answers.point(7, nullptr);
///     event.answers = answers.take();        // what the input's record must hold
///
/// Live, the answers come from suggest(), decide() and pick(). In a replay they are the recorded
/// ones, and no algorithm computes anything. Both ways the algorithms then learn the answer.
#pragma once

#include "troupe/tune/event.hpp"

#include <memory>
#include <string>

namespace troupe::tune {

class Answers {
 public:
  Answers(std::unique_ptr<Searcher> searcher, std::unique_ptr<Scheduler> scheduler,
          const SearchSpace& space);

  /// Answers of the next input are computed.
  void live();
  /// Answers of the next input are these.
  void replay(std::vector<Answer> recorded);
  /// Returns the answers since live() or replay(), in order.
  std::vector<Answer> take();
  /// Whether the last replay() gave exactly the answers that were asked for.
  bool fits() const noexcept { return fits_ && recorded_.empty(); }
  /// Points of a replay were suggested by another searcher: the present one learns from them only.
  void points_of_others(bool theirs) noexcept { theirs_ = theirs; }

  /// Returns the point of a new trial and who chose it, `start` if that is given; no point when the
  /// space is used up.
  std::pair<std::optional<Point>, Chosen> point(int trial, const Point* start);
  void created(int trial, const Point& params);
  /// Returns the decisions that follow a report. An `again` report is a repeated one that needs no
  /// new decision: the algorithms take its score, and the result is empty.
  std::vector<Decision> report(const Report& report, bool again);
  std::vector<Decision> over(const TrialOver& end, const Ended& outcome);
  std::vector<Decision> population(int trials);
  /// Returns which waiting trial runs next. `waiting` is not empty.
  int next(const std::vector<int>& waiting);
  void kept(int trial, const Point& params, long step);
  /// Returns the point that a new trial with this number would get.
  std::optional<Point> suggestion(int trial) const { return searcher_->suggest(trial); }

 private:
  /// Returns the next recorded answer if it is of this kind.
  std::optional<Answer> recorded(Answer::Kind kind);
  std::vector<Decision> settle(std::vector<Decision> computed);

  std::unique_ptr<Searcher> searcher_;
  std::unique_ptr<Scheduler> scheduler_;
  SearchSpace space_;
  std::vector<Answer> given_;
  std::vector<Answer> recorded_;  ///< last one first
  int trials_ = 0;
  bool replaying_ = false;
  bool fits_ = true;
  bool theirs_ = false;
};

}  // namespace troupe::tune
