#include "troupe/tune/study/internal/study_questions.hpp"

#include "troupe/tune/event.hpp"
#include "troupe/tune/internal/json.hpp"

#include <algorithm>
#include <limits>

namespace troupe::tune::internal {
namespace {

using About = StudyQuestion::About;
constexpr std::size_t kEnough = 512 * 1024;  ///< bytes of rows after which an answer ends

/// Returns a row as it is, in one line. Between its tokens a newline means as much as a space.
std::string one_line(std::string_view row) {
  if (row.empty()) return "null";
  std::string text(row);
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

/// Returns the sentence for an event, as JSON; an empty text when people are not shown it.
std::string words_of_event(std::string_view json, const StudyOverview* overview) {
  if (overview == nullptr || overview->space == nullptr) return "";
  const auto event = event_from_json(json, *overview->space);
  const std::string words =
      event ? plain_words(*event, *overview->space, overview->metric) : std::string();
  return words.empty() ? "" : ",\"words\":" + Json(words).dump();
}

/// Rows that become the list of an answer.
struct Page {
  std::string text;
  std::uint64_t next = 0;
  std::uint32_t left = 0;

  /// Returns whether there is room for a further one.
  bool add(std::uint64_t number, const std::string& fields) {
    text +=
        (text.empty() ? "{\"number\":" : ",{\"number\":") + std::to_string(number) + fields + "}";
    next = number + 1;
    return --left > 0 && text.size() < kEnough;
  }
  std::string line(const char* name) const {
    const std::string more = next > 0 ? ",\"next\":" + std::to_string(next) : std::string();
    return std::string("{\"answer\":{\"") + name + "\":[" + text + "]" + more + "}}";
  }
};

/// The list has no `next` when no further row is there.
std::string trials_line(const StudyQuestion& question, const StudyRows& rows) {
  Page page{.left = question.most};
  bool full = false;
  const auto first = static_cast<std::uint32_t>(
      std::min<std::uint64_t>(question.from, std::numeric_limits<std::uint32_t>::max()));
  const auto done = rows.trials(first, [&](std::uint64_t number, std::string_view row) {
    full = !page.add(number, ",\"row\":" + one_line(row));
    return !full;
  });
  if (!done) return error_line(done.error());
  if (!full) page.next = 0;
  return page.line("trials");
}

/// The list always has `next`, from which one that follows the study asks again.
std::string events_line(const StudyQuestion& question, const StudyRows& rows,
                        const StudyOverview* overview) {
  Page page{.next = std::max<std::uint64_t>(question.from, 1), .left = question.most};
  const auto done = rows.events(page.next, [&](std::uint64_t number, std::string_view json) {
    return page.add(number, ",\"event\":" + one_line(json) + words_of_event(json, overview));
  });
  if (!done) return error_line(done.error());
  return page.line("events");
}

std::string trial_line(const StudyQuestion& question, const StudyRows& rows) {
  std::optional<std::string> row;
  if (question.from <= std::numeric_limits<std::uint32_t>::max()) {
    auto found = rows.trial(static_cast<std::uint32_t>(question.from));
    if (!found) return error_line(found.error());
    row = std::move(*found);
  }
  const std::string number = std::to_string(question.from);
  if (!row)
    return error_line(Error(Code::invalid_argument,
                            "tune: trial " + number + " does not exist: see `troupe tune show`"));
  return "{\"answer\":{\"number\":" + number + ",\"row\":" + one_line(*row) + "}}";
}

/// Trials are numbered from 0 on without a gap.
Result<std::uint64_t> count_trials(const StudyRows& rows) {
  std::uint64_t count = 0;
  const auto done = rows.trials(
      0,
      [&](std::uint64_t number, std::string_view) {
        count = number + 1;
        return false;
      },
      StudyRows::Order::falling);
  if (!done) return done.error();
  return count;
}

std::string state_line(const StudyRows& rows, const StudyOverview* overview) {
  const auto meta = rows.meta();
  if (!meta) return error_line(meta.error());
  const auto last = rows.last_event();
  if (!last) return error_line(last.error());
  const auto trials = count_trials(rows);
  if (!trials) return error_line(trials.error());
  Json answer = Json::object();
  answer["meta"] = Json::object();
  if (*meta)
    if (auto json = Json::parse(**meta); json && json->is_object()) answer["meta"] = *json;
  const Json* paused = answer["meta"].find("paused");
  answer["paused"] =
      overview != nullptr && overview->space != nullptr ? overview->paused : paused != nullptr;
  answer["events"] = *last;
  answer["trials"] = *trials;
  if (overview != nullptr && overview->space != nullptr) {
    answer["planned"] = overview->planned;
    answer["slots"] = overview->slots;
    if (overview->room) answer["room"] = *overview->room;
    answer["over"] = overview->over;
    if (overview->over) answer["why_over"] = overview->why_over;
    answer["seconds"] = overview->seconds;
    answer["reports"] = overview->reports;
    if (overview->best >= 0)
      answer["best"] = Json{{"trial", overview->best},
                            {"step", overview->best_step},
                            {"score", json_number(overview->best_score)}};
  }
  return answer_line(answer);
}

}  // namespace

std::string answer_to(const StudyQuestion& question, const StudyRows& rows,
                      const StudyOverview* overview) {
  switch (question.about) {
    case About::trial: return trial_line(question, rows);
    case About::trials: return trials_line(question, rows);
    case About::events: return events_line(question, rows, overview);
    case About::state: break;
  }
  return state_line(rows, overview);
}

}  // namespace troupe::tune::internal
