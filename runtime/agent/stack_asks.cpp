#include "troupe/runtime/agent/stack_asks.hpp"

#include <utility>

namespace troupe::agent {

bool StackAsks::ask(const Asker& asker, std::vector<Target> targets, Time now) {
  if (questions_.size() >= kMostWaiting) return false;
  Question& question = questions_.emplace_back();
  question.asker = asker;
  if (targets.size() > kMostProcesses) {
    question.more = targets.size() - kMostProcesses;
    targets.resize(kMostProcesses);
  }
  question.targets = std::move(targets);
  if (questions_.size() == 1) begin_next(now);
  return true;
}

/// Starts the child for the next process, or answers questions that have none left.
void StackAsks::begin_next(Time now) {
  while (!questions_.empty()) {
    Question& question = questions_.front();
    if (question.until == Time::max()) question.until = now + kLimit;
    while (question.next < question.targets.size()) {
      const Target& target = question.targets[question.next];
      question.text += target.title + "\n";
      if (now < question.until) {
        if (auto started = os::LiveStack::start(target.process, by_)) {
          live_.emplace(std::move(*started));
          return;
        }
      }
      question.text += os::thread_states(target.process);
      ++question.next;
    }
    if (question.more != 0)
      question.text += "and " + std::to_string(question.more) + " more processes: name one\n";
    const Question done = std::move(question);
    questions_.pop_front();
    out_.answer_stacks(done.asker, done.text);
  }
}

/// Drops the questions of askers that have died, and the reader of one that is being answered.
template <class Died>
void StackAsks::drop(const Died& has_died, Time now) {
  if (questions_.empty()) return;
  const bool was_first = has_died(questions_.front().asker);
  std::erase_if(questions_, [&](const Question& one) { return has_died(one.asker); });
  if (!was_first) return;
  live_.reset();
  begin_next(now);
}

void StackAsks::process_died(ProcessIndex process, Time now) {
  drop([&](const Asker& one) { return one.is(process); }, now);
}

void StackAsks::node_died(NodeId node, Time now) {
  drop([&](const Asker& one) { return one.is(node); }, now);
}

void StackAsks::serve(Time now) {
  if (!live_) return;
  Question& question = questions_.front();
  if (!live_->read() && now < question.until) return;
  question.text += live_->text();
  ++question.next;
  live_.reset();
  begin_next(now);
}

Time StackAsks::next_deadline() const noexcept {
  return live_ ? questions_.front().until : Time::max();
}

}  // namespace troupe::agent
