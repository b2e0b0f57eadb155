#include "troupe/tune/internal/answers.hpp"

#include <algorithm>
#include <utility>

namespace troupe::tune {
namespace {

/// A point outside the space comes from a start of an earlier run, before the space narrowed. No
/// searcher can learn from it.
bool inside(const SearchSpace& space, const Point& point) {
  for (std::size_t i = 0; i < space.size(); ++i)
    if (i >= point.size() || !contains(space.parameters[i].domain, point[i])) return false;
  return true;
}

}  // namespace

Answers::Answers(std::unique_ptr<Searcher> searcher, std::unique_ptr<Scheduler> scheduler,
                 const SearchSpace& space)
    : searcher_(std::move(searcher)), scheduler_(std::move(scheduler)), space_(space) {}

void Answers::live() {
  replaying_ = false;
  fits_ = true;
  recorded_.clear();
  given_.clear();
}

void Answers::replay(std::vector<Answer> recorded) {
  live();
  replaying_ = true;
  recorded_ = std::move(recorded);
  std::reverse(recorded_.begin(), recorded_.end());
}

std::vector<Answer> Answers::take() {
  return std::exchange(given_, {});
}

std::optional<Answer> Answers::recorded(Answer::Kind kind) {
  if (recorded_.empty() || recorded_.back().kind != kind) {
    fits_ = false;
    return std::nullopt;
  }
  Answer answer = std::move(recorded_.back());
  recorded_.pop_back();
  return answer;
}

std::pair<std::optional<Point>, Chosen> Answers::point(int trial, const Point* start) {
  Answer answer{.kind = Answer::Kind::point};
  if (replaying_) {
    answer = recorded(Answer::Kind::point).value_or(answer);
  } else if (start != nullptr) {
    answer.point = *start;
    answer.by = Chosen::by_user;
  } else {
    answer.point = searcher_->suggest(trial);
  }
  if (answer.point && inside(space_, *answer.point))
    searcher_->take(trial, *answer.point, theirs_ ? Chosen::by_user : answer.by);
  given_.push_back(answer);
  return {given_.back().point, given_.back().by};
}

void Answers::created(int trial, const Point& params) {
  trials_ = std::max(trials_, trial + 1);
  scheduler_->created(trial, params);
}

std::vector<Decision> Answers::settle(std::vector<Decision> computed) {
  Answer answer{.kind = Answer::Kind::decisions, .decisions = std::move(computed)};
  if (replaying_) answer = recorded(Answer::Kind::decisions).value_or(answer);
  const bool sound =
      std::all_of(answer.decisions.begin(), answer.decisions.end(), [this](const Decision& d) {
        const bool copies = d.action == Decision::Action::exploit;
        return d.trial >= 0 && d.trial < trials_ && d.donor < trials_ && copies == (d.donor >= 0) &&
               (!copies || d.params.size() == space_.size());
      });
  if (!sound) {
    fits_ = false;
    answer.decisions.clear();
  }
  scheduler_->decided(answer.decisions);
  given_.push_back(answer);
  return answer.decisions;
}

std::vector<Decision> Answers::report(const Report& report, bool again) {
  scheduler_->observe(report);
  if (again) return {};
  std::vector<Decision> decisions;
  if (!replaying_) scheduler_->decide(report, decisions);
  decisions = settle(std::move(decisions));
  if (decisions.empty() || decisions.front().trial != report.trial) {
    fits_ = false;
    decisions = {{.trial = report.trial}};
  }
  return decisions;
}

std::vector<Decision> Answers::over(const TrialOver& end, const Ended& outcome) {
  searcher_->tell(outcome);
  scheduler_->observe(end);
  std::vector<Decision> decisions;
  if (!replaying_) scheduler_->decide_holds(decisions);
  return settle(std::move(decisions));
}

std::vector<Decision> Answers::population(int trials) {
  scheduler_->observe_population(trials);
  std::vector<Decision> decisions;
  if (!replaying_) scheduler_->decide_holds(decisions);
  return settle(std::move(decisions));
}

int Answers::next(const std::vector<int>& waiting) {
  if (waiting.size() == 1) return waiting.front();
  Answer answer{.kind = Answer::Kind::next, .next = waiting.front()};
  if (replaying_) {
    answer = recorded(Answer::Kind::next).value_or(answer);
    if (std::find(waiting.begin(), waiting.end(), answer.next) == waiting.end()) {
      fits_ = false;
      answer.next = waiting.front();
    }
  } else {
    answer.next = scheduler_->pick(waiting);
  }
  given_.push_back(answer);
  return answer.next;
}

void Answers::kept(int trial, const Point& params, long step) {
  scheduler_->kept(trial, params, step);
}

}  // namespace troupe::tune
