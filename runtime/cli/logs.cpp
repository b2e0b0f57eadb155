/// The verb `troupe logs`: the lines of a job, of all nodes, in the order of their times.
#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/size_text.hpp"
#include "troupe/runtime/base/visible_text.hpp"
#include "troupe/runtime/base/wall_clock.hpp"
#include "troupe/runtime/cli/internal/print.hpp"
#include "troupe/runtime/cli/verbs.hpp"
#include "troupe/runtime/observe/missing.hpp"
#include "troupe/runtime/observe/table.hpp"
#include "troupe/runtime/wire/log_batch.hpp"

#include <regex.h>
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <deque>
#include <optional>
#include <set>
#include <thread>
#include <utility>

namespace troupe::cli {
namespace {

using namespace std::chrono_literals;
using What = control::ListRequest::What;

constexpr Duration kPause = 200ms;  ///< between two rounds of --follow
constexpr std::int64_t kSecond = 1'000'000'000;

/// A POSIX extended expression; it matches everything when there is none.
class Expression {
 public:
  explicit Expression(const std::string& text) : is_set_(!text.empty()) {
    if (!is_set_) return;
    const int failed = regcomp(&compiled_, text.c_str(), REG_EXTENDED | REG_NOSUB);
    if (failed == 0) return;
    std::string why(200, '\0');
    why.resize(regerror(failed, &compiled_, why.data(), why.size()) - 1);
    is_set_ = false;
    throw_usage("--grep: '" + text + "' is no POSIX extended expression: " + why);
  }
  ~Expression() {
    if (is_set_) regfree(&compiled_);
  }
  Expression(const Expression&) = delete;
  Expression& operator=(const Expression&) = delete;
  bool matches(std::string_view text) const {
    if (!is_set_) return true;
    regmatch_t range{};
    range.rm_so = 0;
    range.rm_eo = static_cast<regoff_t>(text.size());
    // NOLINTNEXTLINE(bugprone-suspicious-stringview-data-usage): REG_STARTEND has the size
    return regexec(&compiled_, text.data(), 1, &range, REG_STARTEND) == 0;
  }

 private:
  bool is_set_;
  regex_t compiled_{};
};

/// The lines of one node that were read and not printed.
struct Stream {
  NodeId node;
  std::string name;
  std::uint64_t after = 0;
  std::string text;
  std::size_t at = 0;
  bool is_dry = false;        ///< nothing more is there now
  bool is_told = false;       ///< that it does not answer
  bool begins_again = false;  ///< the node had forgotten the job; to be told with the next lines

  /// Returns the first line that is a record; drops others.
  std::optional<wire::LogRecord> front() {
    while (at < text.size()) {
      const std::size_t end = text.find('\n', at);
      const auto record = wire::read_record(std::string_view(text).substr(at, end - at));
      if (record || end == std::string::npos) return record;
      at = end + 1;
    }
    return std::nullopt;
  }
  void pop() {
    const std::size_t end = text.find('\n', at);
    at = end == std::string::npos ? text.size() : end + 1;
  }
};

class Reader {
 public:
  explicit Reader(const LogsRequest& request)
      : request_(request),
        expression_(request.grep),
        since_(since_of(request.since)),
        asked_(request),
        job_(find_job(asked_.list(What::jobs), request.job)),
        shows_raw_(request.raw) {}

  Exit run() {
    find_nodes();
    read_all();
    for (const std::string& line : last_) write(line);
    last_.clear();
    std::fflush(stdout);
    if (!request_.follow && lines_ == 0) throw_without_lines();
    follows_ = true;
    while (request_.follow && is_read()) {
      std::this_thread::sleep_for(kPause);
      find_nodes();
      for (Stream& stream : streams_) stream.is_dry = false;
      read_all();
      std::fflush(stdout);
    }
    return Exit::ok;
  }

 private:
  void find_nodes() {
    const auto reply = asked_.list(What::nodes);
    const auto wants = [this](NodeId id, const std::string& name) {
      return request_.node.empty() || request_.node == name ||
             (request_.node.size() >= 8 && id.str().starts_with(request_.node));
    };
    observe::Missing gone;
    for (const auto& node : reply.dead_nodes) {
      const NodeId id = node.description.id;
      const std::string name = node.description.name.empty() ? id.str() : node.description.name;
      if (node.died_unix_ns >= job_.started_ns && wants(id, name) && gone_.insert(id).second)
        gone.add(name, 0,
                 node.left ? "it has left, and its logs are in the state folder of its host"
                           : "it is dead, and its logs are in the state folder of its host",
                 false);
    }
    print_missing(gone, "lines", false);
    for (const auto& row : reply.nodes) {
      const NodeId id = row.description.id;
      const std::string& name = row.description.name;
      const bool is_wanted = wants(id, name);
      const bool is_known = std::any_of(streams_.begin(), streams_.end(),
                                        [&](const Stream& one) { return one.node == id; });
      if (is_wanted && !is_known) {
        streams_.emplace_back();
        streams_.back().node = id;
        streams_.back().name = name;
      }
    }
    if (streams_.empty())
      throw_usage("no node of the cluster has the name '" + request_.node +
                  "': see 'troupe list nodes'");
  }

  [[noreturn]] void throw_without_lines() const {
    const std::string title = "job " + job_.id.str().substr(0, 8) + " (" + job_.name + ")";
    const auto silent = std::count_if(streams_.begin(), streams_.end(),
                                      [](const Stream& one) { return one.is_told; });
    if (silent == static_cast<std::ptrdiff_t>(streams_.size()))
      throw Failure{Exit::unreachable,
                    Error(Code::unavailable, "no node told of its lines of " + title)};
    if (silent > 0 || !gone_.empty())
      throw Failure{Exit::failed,
                    Error(Code::unavailable, title + " has no line that is to be shown on the "
                                                     "nodes that answer")};
    throw Failure{Exit::failed,
                  Error(Code::unavailable, title + " has no line that is to be shown: its workers "
                                                   "wrote none, or the options leave out all")};
  }

  /// Prints what the nodes have, the earliest line first.
  void read_all() {
    for (;;) {
      Stream* first = nullptr;
      std::int64_t earliest = 0;
      for (Stream& stream : streams_) {
        fill(stream);
        const auto record = stream.front();
        if (!record || (first != nullptr && record->time_unix_ns >= earliest)) continue;
        first = &stream;
        earliest = record->time_unix_ns;
      }
      if (first == nullptr) return;
      if (const auto record = first->front()) show(*first, *record);
      first->pop();
    }
  }

  void fill(Stream& stream) {
    while (!stream.front() && !stream.is_dry) {
      wire::LogQuestion question;
      question.job = job_.id;
      question.after = stream.after;
      question.most = static_cast<std::uint32_t>(wire::kMaxLogBatch);
      auto batch = asked_.logs(stream.node, question);
      if (!batch) {
        stream.is_dry = true;
        if (!stream.is_told)
          std::fprintf(
              stderr, "troupe: %s\n",
              observe::missing_text({stream.name, 0, batch.error().message()}, "lines").c_str());
        stream.is_told = true;
        continue;
      }
      if (batch->begin > stream.after && stream.after != 0)
        std::fprintf(stderr, "troupe: %llu bytes of %s are gone\n",
                     static_cast<unsigned long long>(batch->begin - stream.after),
                     visible_text(stream.name).c_str());
      if (batch->begin < stream.after) stream.begins_again = true;
      stream.is_dry = batch->text.empty();
      if (!stream.is_dry && std::exchange(stream.begins_again, false))
        std::fprintf(stderr,
                     "troupe: %s had forgotten the lines of this job, after those of many other "
                     "jobs: some may be missing\n",
                     visible_text(stream.name).c_str());
      stream.after = batch->next();
      stream.text = std::move(batch->text);
      stream.at = 0;
    }
  }

  void show(const Stream& stream, const wire::LogRecord& record) {
    if (record.time_unix_ns < since_ || (request_.only_errors && !record.is_error) ||
        (request_.pid != 0 && record.pid != request_.pid) || !expression_.matches(record.text))
      return;
    ++lines_;
    std::string line = request_.time ? time_text(record.time_unix_ns) : "";
    line.append("(").append(record.name).append(" pid=").append(std::to_string(record.pid));
    line.append(" node=").append(stream.name).append(") ").append(record.text);
    if (follows_ || request_.tail < 0) return write(line);
    last_.push_back(std::move(line));
    if (last_.size() > static_cast<std::size_t>(request_.tail)) last_.pop_front();
  }

  void write(const std::string& line) const {
    const std::string text = (shows_raw_ ? line : escaped_text(line)) + "\n";
    std::fwrite(text.data(), 1, text.size(), stdout);
  }

  const LogsRequest& request_;
  const Expression expression_;
  const std::int64_t since_;
  Asked asked_;
  const control::JobRecord job_;
  const bool shows_raw_;
  std::deque<Stream> streams_;
  std::set<NodeId> gone_;         ///< that were told to be dead
  std::deque<std::string> last_;  ///< of --tail
  std::uint64_t lines_ = 0;
  bool follows_ = false;
};

}  // namespace

std::int64_t since_of(const std::string& text) {
  if (text.empty()) return 0;
  if (const auto ago = parse_duration(text)) return unix_nanoseconds() - ago->count();
  const std::int64_t now = unix_nanoseconds();
  const std::time_t seconds = now / kSecond;
  std::tm local{};
  localtime_r(&seconds, &local);
  local.tm_sec = 0;
  const char* end = strptime(text.c_str(), "%H:%M:%S", &local);
  if (end == nullptr || *end != '\0') end = strptime(text.c_str(), "%H:%M", &local);
  if (end == nullptr || *end != '\0')
    throw_usage("--since: '" + text +
                "' is no time: give one like 14:00, 14:00:30, or 10m for ten "
                "minutes ago");
  local.tm_isdst = -1;
  std::int64_t then = std::int64_t{mktime(&local)} * kSecond;
  if (then > now) then -= 24 * 3600 * kSecond;
  return then;
}

std::string time_text(std::int64_t time) {
  const std::time_t seconds = time / kSecond;
  std::tm local{};
  localtime_r(&seconds, &local);
  char day[40], text[64];
  std::strftime(day, sizeof day, "%F %T", &local);
  std::snprintf(text, sizeof text, "%s.%03d ", day, static_cast<int>(time % kSecond / 1'000'000));
  return text;
}

const control::JobRecord& find_job(const control::ListReply& reply, const std::string& text) {
  if (reply.jobs.empty())
    throw_usage("the cluster has run no job: start one with 'troupe run PROGRAM'");
  std::vector<const control::JobRecord*> named;
  for (const auto& job : reply.jobs)
    if (text.empty() || job.name == text) named.push_back(&job);
  const auto newest = [](const auto* a, const auto* b) { return a->started_ns < b->started_ns; };
  if (!named.empty()) return **std::max_element(named.begin(), named.end(), newest);
  std::vector<std::string> ids;
  for (const auto& job : reply.jobs) ids.push_back(job.id.str());
  const auto id = observe::id_meant(text, ids, "jobs");
  if (!id)
    throw_usage("no job has the name '" + visible_text(text, 40) + "', and " +
                id.error().message());
  return *std::find_if(reply.jobs.begin(), reply.jobs.end(),
                       [&](const auto& job) { return job.id.str() == *id; });
}

Exit logs(const LogsRequest& request) {
  return Reader(request).run();
}

}  // namespace troupe::cli
