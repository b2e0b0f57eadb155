#include "troupe/runtime/client/questions.hpp"

#include <algorithm>
#include <iterator>

namespace troupe::client {

std::uint64_t Questions::ask_reader(bool is_segment, std::uint64_t id) {
  questions_.emplace(++last_reader_, Question{Reader{}, false, {is_segment, id}});
  return last_reader_;
}

void Questions::answer_readers(bool is_segment, std::uint64_t id, const Error* failed) {
  const std::pair view(is_segment, id);
  for (auto at = questions_.upper_bound(std::uint64_t{1} << 63); at != questions_.end(); ++at) {
    Question& question = at->second;
    if (question.view != view) continue;
    question.answer = Reader{failed != nullptr ? std::make_shared<const Error>(*failed) : nullptr};
    question.is_answered = true;
  }
}

void Questions::refuse_extents(const Error& why) {
  for (auto& [number, question] : questions_) {
    if (question.is_answered || !std::holds_alternative<Extent>(question.answer)) continue;
    question.answer = Extent{why};
    question.is_answered = true;
  }
}

bool Questions::add(wire::Located& so_far, wire::Located& next) {
  std::move(next.places.begin(), next.places.end(), std::back_inserter(so_far.places));
  return !next.more;
}

bool Questions::add(wire::Nodes& so_far, wire::Nodes& next) {
  std::move(next.rows.begin(), next.rows.end(), std::back_inserter(so_far.rows));
  return !next.more;
}

}  // namespace troupe::client
