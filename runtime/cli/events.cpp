/// The verb `troupe events`: what has happened on all nodes, in the order of the times.
#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/visible_text.hpp"
#include "troupe/runtime/base/wait.hpp"
#include "troupe/runtime/base/wall_clock.hpp"
#include "troupe/runtime/cli/control_lists.hpp"
#include "troupe/runtime/cli/internal/print.hpp"
#include "troupe/runtime/cli/verbs.hpp"
#include "troupe/runtime/observe/answer.hpp"
#include "troupe/runtime/observe/document.hpp"
#include "troupe/runtime/os/stack_text.hpp"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <map>
#include <set>
#include <utility>

namespace troupe::cli {
namespace {

using namespace std::chrono_literals;
using observe::Answer;
using observe::Query;
using observe::Row;
constexpr auto kEvents = observe::RowKind::events;

constexpr Duration kEventsAnswer = 2s, kNodesAnswer = 500ms;
constexpr Duration kPause = 500ms;  ///< between two rounds of --follow
/// How late an event may become known while the verb follows: clocks of hosts differ.
constexpr std::int64_t kLateNs = 5'000'000'000;

std::string text_in(const Row& row, std::string_view field) {
  const auto* text = std::get_if<std::string>(&row.cells[observe::column_of(kEvents, field)]);
  return text == nullptr ? "" : *text;
}

std::int64_t time_in(const Row& row) {
  const auto* time = std::get_if<std::int64_t>(&row.cells[observe::column_of(kEvents, "time")]);
  return time == nullptr ? 0 : *time;
}

/// Makes each line of the text visible, with a margin.
std::string indented(const std::string& text) {
  std::string lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    lines += "    " + escaped_text(std::string_view(text).substr(at, end - at)) + "\n";
    at = end + 1;
  }
  return lines;
}

class EventReader {
 public:
  explicit EventReader(const EventsRequest& request)
      : request_(request), since_(since_of(request.since)), asked_(request, kDoorAnswers) {}

  Exit run() {
    Answer answer = read(since_, request_.limit);
    add_gone(answer);
    if (request_.json && !request_.follow) {
      print(observe::document_of(kEvents, answer, unix_nanoseconds()));
      tell_missing(answer);
      return Exit::ok;
    }
    for (const Row& row : answer.rows) show(row);
    tell_missing(answer);
    if (answer.matched > answer.rows.size())
      std::fprintf(stderr, "troupe: %zu of %llu events, the newest: --limit shows more\n",
                   answer.rows.size(), static_cast<unsigned long long>(answer.matched));
    if (!request_.follow && answer.rows.empty())
      std::fprintf(stderr, "troupe: the nodes that answer keep no event that is to be shown\n");
    if (answer.rows.empty()) newest_ = unix_nanoseconds();
    complete_ = newest_;
    std::fflush(stdout);
    while (request_.follow && is_read()) {
      sleep_for(kPause);
      const Answer more = read(complete_ - kLateNs, kMostEvents);
      for (const Row& row : more.rows)
        if (shown_.count(row.id) == 0) show(row);
      tell_missing(more);
      // Otherwise the next round asks for the same time.
      if (more.unanswered.empty()) complete_ = newest_;
      std::erase_if(shown_, [&](const auto& one) { return one.second < complete_ - 2 * kLateNs; });
      std::fflush(stdout);
    }
    return Exit::ok;
  }

 private:
  /// Returns the newest events since this time, the oldest first.
  Answer read(std::int64_t since, std::uint32_t most) {
    observe::Question question{.kind = kEvents,
                               .where = request_.where,
                               .sort = "time:desc",
                               .limit = std::min(most, observe::kMaxRows),
                               .after = {}};
    if (const auto query = Query::parse(question); !query)  // names the column as it was written
      throw Failure{Exit::usage, query.error()};
    if (since > 0) {
      const std::string recent = "time >= " + std::to_string(since);
      question.where = question.where.empty() ? recent : recent + " and (" + question.where + ")";
    }
    question.after = std::to_string(unix_nanoseconds());
    Answer all;
    observe::Missing missing;
    for (;;) {
      const auto query = Query::parse(question);
      if (!query) throw Failure{Exit::usage, query.error()};
      Answer page = asked_.rows(question, *query, kEventsAnswer);
      question.after = page.next;
      missing.add(page);
      if (all.rows.empty()) {
        all = std::move(page);
      } else {
        std::move(page.rows.begin(), page.rows.end(), std::back_inserter(all.rows));
      }
      if (question.after.empty() || all.rows.size() >= most) break;
      question.limit = std::min<std::uint32_t>(most - static_cast<std::uint32_t>(all.rows.size()),
                                               observe::kMaxRows);
    }
    all.unanswered = missing.sources();
    all.more_unanswered = missing.more();
    all.next.clear();
    std::reverse(all.rows.begin(), all.rows.end());
    return all;
  }

  /// Adds the nodes that have ended since the time that was asked for: nobody asks them any more.
  void add_gone(Answer& answer) {
    observe::Missing of_control;
    ControlLists control(asked_, steady_now() + kNodesAnswer, of_control);
    const auto nodes = control.list(control::ListRequest::What::nodes);
    observe::Missing gone;
    for (const auto& node : nodes.dead_nodes)
      if (node.died_unix_ns >= since_)
        gone.add(node.description.name.empty() ? node.description.id.str() : node.description.name,
                 0,
                 node.left ? "it has left, and its events are in the state folder of its host"
                           : "it is dead, and its events are in the state folder of its host",
                 false);
    for (const observe::Unanswered& source : gone.sources()) {
      // An agent may tell of the same node, in words that do not say where its events are.
      std::erase_if(answer.unanswered, [&](const observe::Unanswered& one) {
        return one.node == source.node && one.pid == source.pid;
      });
      answer.unanswered.push_back(source);
    }
    // Agents themselves tell of living nodes that are silent.
    for (const observe::Unanswered& source : of_control.sources())
      if (source.node == observe::kControlSource) answer.unanswered.push_back(source);
  }

  /// Tells of each source once, also while the verb follows.
  void tell_missing(const Answer& answer) {
    const observe::Missing all(answer);
    Answer news;
    for (const observe::Unanswered& source : all.sources())
      if (told_.insert({source.node, source.pid}).second) news.unanswered.push_back(source);
    if (all.more() > told_more_) news.more_unanswered = told_more_ = all.more();
    print_missing(observe::Missing(news), "events");
  }

  void show(const Row& row) {
    const std::int64_t time = time_in(row);
    // The clock of another host may be ahead of this one.
    newest_ = std::max(newest_, std::min(time, unix_nanoseconds()));
    if (request_.follow) shown_[row.id] = time;
    if (request_.json) {
      Answer one;
      one.rows.push_back(row);
      const Json document = observe::document_of(kEvents, one, 0);
      std::printf("%s\n", document.find("rows")->as_array()->at(0).dump().c_str());
      return;
    }
    const auto pad = [](std::string text, std::size_t width) {
      text = visible_text(text, 80);
      text.append(width - std::min(width, columns_of(text)) + 1, ' ');
      return text;
    };
    std::string line = time_text(time) + pad(text_in(row, "node"), 8) +
                       pad(text_in(row, "severity"), 7) + pad(text_in(row, "kind"), 15) +
                       visible_text(text_in(row, "text")) + "\n";
    if (request_.verbose) {
      const std::string stack = text_in(row, "stack"), lines = text_in(row, "last_lines");
      if (!stack.empty()) line += indented(os::readable_stack(stack));
      if (!lines.empty()) line += "  its last lines:\n" + indented(lines);
    }
    std::fwrite(line.data(), 1, line.size(), stdout);
  }

  const EventsRequest& request_;
  const std::int64_t since_;
  Asked asked_;
  std::int64_t newest_ = 0;
  std::int64_t complete_ = 0;  ///< of --follow: all nodes have told of what was before
  std::set<std::pair<std::string, std::int64_t>> told_;  ///< sources without an answer
  std::uint64_t told_more_ = 0;                          ///< the most of those without a name
  std::map<std::string, std::int64_t> shown_;            ///< of --follow: id → time
};

}  // namespace

Exit events(const EventsRequest& request) {
  return EventReader(request).run();
}

}  // namespace troupe::cli
