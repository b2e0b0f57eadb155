/// Runs batches of seeds in child processes, judges whether they did enough, and shrinks failing
/// seeds.
#include "tests/simulation/cluster/harness.hpp"

#include <sys/wait.h>
#include <unistd.h>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstring>

namespace troupe::sim::cluster {
namespace {

Outcome run_here(std::uint64_t seed, const Tuning& tuning) {
  Truth truth;
  Outcome one;
  const sim::Report report = run_schedule(seed, tuning, &truth, &one.planned);
  one.seed = seed;
  one.trace = report.trace;
  one.events = report.events;
  one.calls = report.calls;
  one.settled = truth.settled;
  one.excused = truth.excused;
  one.virtual_seconds = std::chrono::duration<double>(report.virtual_time).count();
  one.faults = report.faults;
  one.marks = truth.marks;
  std::uint64_t faults = report.faults.total();
  for (std::size_t i = 0; i < kFaultMarks; ++i) faults += truth.marks[i];
  one.counts = report.nodes >= 3 && report.calls >= 100 && faults >= 5;
  one.violation = report.violation;
  return one;
}

/// The fixed part of an Outcome, then the length of its text.
struct Record {
  std::uint64_t seed, trace, events, calls, planned, settled, excused;
  double virtual_seconds;
  std::uint64_t counts;
  FaultCounts faults;
  std::array<std::uint64_t, kMarks> marks;
  std::uint64_t text;
};

void write_all(int fd, const void* data, std::size_t size) {
  const char* at = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t n = ::write(fd, at, size);
    if (n <= 0) _exit(3);
    at += n;
    size -= static_cast<std::size_t>(n);
  }
}
bool read_all(int fd, void* data, std::size_t size) {
  char* at = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t n = ::read(fd, at, size);
    if (n <= 0) return false;
    at += n;
    size -= static_cast<std::size_t>(n);
  }
  return true;
}

void send_outcome(int fd, const Outcome& one) {
  const Record record{one.seed,    one.trace,   one.events,  one.calls,
                      one.planned, one.settled, one.excused, one.virtual_seconds,
                      one.counts,  one.faults,  one.marks,   one.violation.size()};
  write_all(fd, &record, sizeof record);
  write_all(fd, one.violation.data(), one.violation.size());
}
bool receive_outcome(int fd, Outcome& one) {
  Record record{};
  if (!read_all(fd, &record, sizeof record)) return false;
  one.seed = record.seed;
  one.trace = record.trace;
  one.events = record.events;
  one.calls = record.calls;
  one.planned = record.planned;
  one.settled = record.settled;
  one.excused = record.excused;
  one.virtual_seconds = record.virtual_seconds;
  one.counts = record.counts != 0;
  one.faults = record.faults;
  one.marks = record.marks;
  one.violation.resize(record.text);
  return read_all(fd, one.violation.data(), record.text);
}

/// Runs the seeds [from, from + count) in a child process and hands over each outcome. Returns
/// the number of outcomes. Sets `status` to the child's status when the child died before the
/// last one.
template <class Take>
std::uint64_t run_child(std::uint64_t from, std::uint64_t count, const Tuning& tuning, int& status,
                        Take&& take) {
  int ends[2];
  if (pipe(ends) != 0) return 0;
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    for (std::uint64_t seed = from; seed < from + count; ++seed)
      send_outcome(ends[1], run_here(seed, tuning));
    std::fflush(nullptr);
    _exit(0);
  }
  close(ends[1]);
  std::uint64_t came = 0;
  Outcome one;
  while (came < count && receive_outcome(ends[0], one)) {
    ++came;
    if (!take(one)) break;
  }
  close(ends[0]);
  if (came < count) {
    // The child died, or its reader has seen enough. In the second case the closed pipe ends it.
    waitpid(child, &status, 0);
  } else {
    waitpid(child, &status, 0);
    status = 0;
  }
  return came;
}

std::string words_of(int status) {
  if (WIFSIGNALED(status))
    return std::string("aborted by signal ") + std::to_string(WTERMSIG(status)) +
           " (a broken invariant: see above)";
  return "ended with code " + std::to_string(WEXITSTATUS(status));
}

std::string kind_of(const std::string& violation) {
  return violation.substr(0, violation.find(':'));
}

}  // namespace

Outcome run_isolated(std::uint64_t seed, const Tuning& tuning) {
  Outcome result;
  int status = 0;
  const auto came = run_child(seed, 1, tuning, status, [&](const Outcome& one) {
    result = one;
    return true;
  });
  result.seed = seed;
  if (came == 0) result.violation = words_of(status);
  return result;
}

Batch run_batch(std::uint64_t from, std::uint64_t seeds, const Tuning& tuning,
                std::size_t most_failures) {
  constexpr std::uint64_t kTwiceEvery = 100, kPiece = 50;
  Batch batch;
  batch.from = from;
  const auto begun = std::chrono::steady_clock::now();
  const auto take = [&](const Outcome& one) {
    ++batch.seeds;
    batch.counted += one.counts ? 1 : 0;
    batch.events += one.events;
    batch.calls += one.calls;
    batch.settled += one.settled;
    batch.excused += one.excused;
    batch.virtual_seconds += one.virtual_seconds;
    batch.trace.mix(one.trace);
    batch.faults += one.faults;
    for (std::size_t i = 0; i < kMarks; ++i) batch.marks[i] += one.marks[i];
    if (!one.violation.empty()) batch.failures.emplace_back(one.seed, one.violation);
    return batch.failures.size() < most_failures;
  };
  for (std::uint64_t seed = from; seed < from + seeds && batch.failures.size() < most_failures;) {
    const std::uint64_t count = std::min(kPiece, from + seeds - seed);
    std::vector<std::pair<std::uint64_t, std::uint64_t>> traces;
    int status = 0;
    const std::uint64_t came = run_child(seed, count, tuning, status, [&](const Outcome& one) {
      if (one.seed % kTwiceEvery == 0) traces.emplace_back(one.seed, one.trace);
      return take(one);
    });
    for (const auto& [again, trace] : traces) {
      ++batch.repeated;
      const Outcome second = run_isolated(again, tuning);
      if (second.trace != trace)
        batch.failures.emplace_back(again, "the same seed gave another trace in another process");
    }
    seed += came;
    if (came == count || batch.failures.size() >= most_failures) continue;
    ++batch.seeds;
    batch.failures.emplace_back(seed++, words_of(status));
  }
  batch.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  return batch;
}

std::size_t Batch::kinds(std::uint64_t least) const {
  std::size_t n = 0;
  for (const std::uint64_t count : faults.count) n += count >= least ? 1 : 0;
  for (std::size_t i = 0; i < kFaultMarks; ++i) n += marks[i] >= least ? 1 : 0;
  return n;
}

std::string Batch::floor() const {
  if (seeds < 100) return {};  // a replay shows nothing about the load
  if (counted * 4 < seeds * 3) return "fewer than three quarters of the schedules count";
  if (kinds(seeds / 100 + 1) < 35) return "fewer than 35 kinds of fault struck once in 100 seeds";
  if (settled < 50 * seeds) return "fewer than 50 results a schedule came to an end";
  for (const Mark probe : {Mark::spilled, Mark::remote_grant, Mark::handed_back, Mark::blocked,
                           Mark::pulled, Mark::pulled_bulk, Mark::passed_on, Mark::remote_actor,
                           Mark::actor_restarted, Mark::peer_reset, Mark::control_reset})
    if (marks[static_cast<std::size_t>(probe)] < seeds / 20)
      return "the path '" + std::string(name_of(probe)) + "' was hardly taken";
  // Only a few schedules in a hundred can take these paths.
  for (const auto& [probe, in] :
       {std::pair(Mark::served_beside_stopped, 50u), std::pair(Mark::stood_still_alone, 200u),
        std::pair(Mark::two_lives, 1000u), std::pair(Mark::all_stopped_long, 200u)})
    if (marks[static_cast<std::size_t>(probe)] < seeds / in)
      return "the path '" + std::string(name_of(probe)) + "' was hardly taken";
  return {};
}

std::string Batch::text() const {
  char line[512];
  std::snprintf(line, sizeof line,
                "%" PRIu64 " seeds from %" PRIu64 " (%" PRIu64 " count), %.1f seeds/s, %" PRIu64
                " events, %" PRIu64 " calls, %" PRIu64 " answers (%" PRIu64
                " excused errors), %.0f s of virtual time, %" PRIu64
                " seeds run twice, trace %016" PRIx64 "\n",
                seeds, from, counted, static_cast<double>(seeds) / std::max(seconds, 1e-9), events,
                calls, settled, excused, virtual_seconds, repeated, trace.value());
  std::string text = line;
  text += "faults (" + std::to_string(kinds(1)) + " kinds):";
  for (std::size_t i = 0; i < fault_kinds; ++i)
    if (faults.count[i] > 0)
      text += " " + std::string(sim::name_of(static_cast<Fault>(i))) + " " +
              std::to_string(faults.count[i]);
  for (std::size_t i = 0; i < kFaultMarks; ++i)
    if (marks[i] > 0)
      text += " " + std::string(name_of(static_cast<Mark>(i))) + " " + std::to_string(marks[i]);
  text += "\npaths:";
  for (std::size_t i = kFaultMarks; i < kMarks; ++i)
    text += " " + std::string(name_of(static_cast<Mark>(i))) + " " + std::to_string(marks[i]);
  text += "\n";
  for (const auto& [seed, why] : failures)
    text += "FAILED seed " + std::to_string(seed) + ": " + why.substr(0, 600) +
            "\n  replay: ./dev simulate --replay " + std::to_string(seed) + "\n";
  if (failures.empty() && !floor().empty()) text += "TOO LITTLE: " + floor() + "\n";
  if (failures.empty() && floor().empty()) text += "every promise was kept\n";
  return text;
}

std::string Batch::json() const {
  std::string text = "{\"world\": \"cluster\", \"from\": " + std::to_string(from) +
                     ", \"seeds\": " + std::to_string(seeds) +
                     ", \"counted\": " + std::to_string(counted) +
                     ", \"calls\": " + std::to_string(calls) + ", \"failed\": [";
  for (const auto& [seed, why] : failures)
    text += (text.back() == '[' ? "" : ", ") + std::to_string(seed);
  text += "], \"faults\": {";
  const auto add = [&](std::string_view name, std::uint64_t count) {
    text +=
        (text.back() == '{' ? "\"" : ", \"") + std::string(name) + "\": " + std::to_string(count);
  };
  for (std::size_t i = 0; i < fault_kinds; ++i)
    add(sim::name_of(static_cast<Fault>(i)), faults.count[i]);
  for (std::size_t i = 0; i < kFaultMarks; ++i) add(name_of(static_cast<Mark>(i)), marks[i]);
  return text + "}}\n";
}

Tuning shrink(std::uint64_t seed, Tuning tuning, const std::string& why) {
  int runs = 0;
  const std::string kind = kind_of(why);
  const auto still_fails = [&](const Tuning& with, std::uint64_t* planned = nullptr) {
    ++runs;
    const Outcome one = run_isolated(seed, with);
    if (planned != nullptr) *planned = one.planned;
    return kind_of(one.violation) == kind;
  };
  std::vector<std::string> parts{"drivers",  "actors",       "nested",   "large",         "bulk",
                                 "throws",   "names",        "seats",    "trouble",       "lingers",
                                 "long_cut", "control_away", "old_jobs", "restarts_apart"};
  for (std::size_t i = 0; i < fault_kinds; ++i)
    parts.emplace_back(sim::name_of(static_cast<Fault>(i)));
  for (std::size_t i = 0; i < kFaultMarks; ++i) parts.emplace_back(name_of(static_cast<Mark>(i)));
  for (const std::string& part : parts) {
    if (runs > 150 || tuning.off.count(part) != 0) continue;
    Tuning less = tuning;
    less.off.insert(part);
    if (still_fails(less)) tuning = less;
  }
  for (std::uint64_t actions : {3, 6, 12, 20}) {
    Tuning less = tuning;
    less.most_actions = actions;
    if (!still_fails(less)) continue;
    tuning = less;
    break;
  }
  std::uint64_t planned = 0;
  (void)still_fails(tuning, &planned);
  std::vector<std::uint64_t> numbers;
  for (std::uint64_t i = 0; i < std::min<std::uint64_t>(planned, 60); ++i) {
    numbers.push_back(i);
    numbers.push_back(1'000'000 + i);
  }
  for (std::uint64_t i = 0; i < 4; ++i) numbers.push_back(2'000'000 + i);
  for (std::uint64_t i = 0; i < 2; ++i) numbers.push_back(3'000'000 + i);
  for (std::uint64_t i = 0; i < 6; ++i) numbers.push_back(4'000'000 + i);
  for (const std::uint64_t number : numbers) {
    if (runs > 300) break;
    Tuning less = tuning;
    less.muted.insert(number);
    if (still_fails(less)) tuning = less;
  }
  return tuning;
}

}  // namespace troupe::sim::cluster
