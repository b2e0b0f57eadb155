#include "tests/simulation/machine/world.hpp"

#include "tests/simulation/kernel/hooks.hpp"
#include "tests/simulation/machine/network.hpp"
#include "troupe/runtime/agent/node.hpp"
#include "troupe/runtime/client/engine.hpp"

#include <execinfo.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <thread>

namespace troupe::sim::machine {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kPiece = 25;
constexpr std::uint64_t kTwiceEvery = 50;
constexpr int kWatchdogSeconds = 20;

bool is_on(const Options& options, Fault fault) {
  return options.off.count(name_of(fault)) == 0;
}

/// In a cluster the driver's node is seldom struck, since little is left to be seen then.
std::uint64_t node_to_strike(Random& random, std::size_t nodes) {
  if (nodes == 1) return 0;
  return random.chance(0.1) ? Plan::kDriversNode : 2 + random.below(nodes - 1);
}

Plan plan_of(std::uint64_t seed, const Options& options) {
  Random random(seed ^ 0x706c616eULL);
  Plan plan;
  plan.one_cpu = random.chance(0.3);
  const bool violent = random.chance(0.7);
  // Mostly fewer deaths than a task has attempts: then every value must come.
  const std::uint64_t kills = violent ? random.below(random.chance(0.2) ? 8 : 3) : 0;
  const std::uint64_t range = 40 + random.below(900);
  for (std::uint64_t i = 0; i < kills; ++i) {
    if (random.chance(0.5) && is_on(options, Fault::kill_at_frame))
      plan.deadly_frames.push_back(random.below(range));
    else if (is_on(options, Fault::kill))
      plan.strokes.push_back({random.below(range), Fault::kill, 0});
  }
  if (random.chance(0.3) && is_on(options, Fault::halt))
    for (std::uint64_t i = 0; i < 1 + random.below(3); ++i)
      plan.strokes.push_back({random.below(range), Fault::halt, random.below(400'000'000)});
  if (random.chance(0.08) && is_on(options, Fault::short_memory))
    plan.strokes.push_back({random.below(range), Fault::short_memory, random.below(600'000'000)});
  if (random.chance(0.3) && is_on(options, Fault::late_start)) plan.late_starts = 0.4;
  if (random.chance(0.2) && is_on(options, Fault::failed_start)) plan.failed_starts = 0.2;
  if (random.chance(0.3) && is_on(options, Fault::slow)) plan.slow_processes = 0.3;
  const Fault node = random.chance(0.5) ? Fault::kill_agent : Fault::kill_zygote;
  plan.nodes = options.nodes;
  if (random.chance(options.nodes > 1 ? 0.4 : 0.08) && is_on(options, node))
    plan.strokes.push_back({random.below(range), node, node_to_strike(random, options.nodes)});
  std::sort(plan.strokes.begin(), plan.strokes.end(),
            [](const auto& a, const auto& b) { return a.turn < b.turn; });
  std::sort(plan.deadly_frames.begin(), plan.deadly_frames.end());
  std::uint64_t number = 0;
  const auto is_muted = [&](const auto&) { return options.muted.count(++number) != 0; };
  std::erase_if(plan.strokes, is_muted);
  std::erase_if(plan.deadly_frames, is_muted);
  plan.most_actions = options.most_actions;
  return plan;
}

void write_all(int fd, const void* data, std::size_t size) {
  for (const char* at = static_cast<const char*>(data); size > 0;) {
    const ssize_t n = ::write(fd, at, size);
    if (n <= 0) _exit(3);
    at += n;
    size -= static_cast<std::size_t>(n);
  }
}
bool read_all(int fd, void* data, std::size_t size) {
  for (char* at = static_cast<char*>(data); size > 0;) {
    const ssize_t n = ::read(fd, at, size);
    if (n <= 0) return false;
    at += n;
    size -= static_cast<std::size_t>(n);
  }
  return true;
}

/// The fixed part of an Outcome, then the length of its text.
struct Record {
  std::uint64_t seed, trace, turns;
  double virtual_seconds;
  std::array<std::uint64_t, kFaults> struck;
  Did did;
  std::uint64_t text;
};
void send_outcome(int fd, const Outcome& one) {
  const Record record{one.seed,   one.trace, one.turns,           one.virtual_seconds,
                      one.struck, one.did,   one.violation.size()};
  write_all(fd, &record, sizeof record);
  write_all(fd, one.violation.data(), one.violation.size());
}
bool receive_outcome(int fd, Outcome& one) {
  Record record{};
  if (!read_all(fd, &record, sizeof record)) return false;
  one = {record.seed,
         record.trace,
         record.turns,
         record.virtual_seconds,
         record.struck,
         record.did,
         std::string(record.text, ' ')};
  return read_all(fd, one.violation.data(), record.text);
}

/// Starts an agent and its driver, which share a socket.
void start_private_node(Baton& baton, std::uint64_t seed, Did& did) {
  Random random(seed ^ 0x6e6f6465ULL);
  auto ends = os::LocalSocket::pair().value();
  agent::NodeOptions node;
  node.cpus = static_cast<double>(1 + random.below(3));
  node.memory = Bytes{random.chance(0.3) ? 4u << 20 : 16u << 20};
  Process& agent = baton.process("agent");
  Process& driver = baton.process("driver");
  driver.socket = Fd(fcntl(ends.first.get(), F_DUPFD_CLOEXEC, 0));
  baton.start(agent, "main",
              [&baton, &agent, node, socket = std::make_shared<Fd>(std::move(ends.second))] {
                {
                  agent::Node served(node);
                  served.serve(std::move(*socket));
                }
                baton.kill(agent, 0);
              });
  baton.start(driver, "main",
              [&baton, &driver, &did, seed, socket = std::make_shared<Fd>(std::move(ends.first))] {
                try {
                  client::ClientEngine engine(
                      {std::move(*socket), wire::ProcessKind::driver, 0, {}, nullptr});
                  drive(Context(engine), baton, seed, did);
                  engine.finish(false);
                } catch (const std::exception& error) {
                  if (!baton.node_is_gone())
                    baton.fail(std::string("the driver got an error: ") + error.what());
                }
                baton.kill(driver, 0);
              });
}

/// Runs one schedule in this process. A broken promise ends the process after `tell`.
Outcome run_here(std::uint64_t seed, const Options& options,
                 const std::function<void(const Outcome&)>& tell) {
  const ScheduleScope scope(seed, 0);
  cluster::seed_random_ids(seed);
  Outcome one;
  one.seed = seed;
  Baton* baton = nullptr;
  const auto note = [&] {
    one.trace = baton->trace().value();
    one.turns = baton->turns();
    one.virtual_seconds =
        std::chrono::duration<double>(baton->now().time_since_epoch()).count() - 1000;
    one.struck = baton->struck();
  };
  baton = new Baton(
      seed, plan_of(seed, options),
      [&](const std::string& why) {
        note();
        one.violation = why;
        tell(one);
        _exit(0);
      },
      options.verbose);
  if (options.nodes > 1)
    start_nodes(*baton, seed, options.nodes, one.did);
  else
    start_private_node(*baton, seed, one.did);
  baton->run();
  for (const Process& process : baton->processes())
    if (!process.ended) baton->fail("a process outlives its node");
  note();
  Baton::leave();
  Network::leave();
  cluster::free_random_ids();
  return one;
}

void print_stack(int) {
  void* frames[64];
  backtrace_symbols_fd(frames, backtrace(frames, 64), 2);
  _exit(4);
}

/// Ends this process when no turn ends for a while: some thread blocks beside the baton.
void watch() {
  std::signal(SIGUSR2, print_stack);
  std::thread([] {
    std::uint64_t seen = 0;
    for (int silent = 0;;) {
      sleep(1);
      const Baton* baton = Baton::current();
      const std::uint64_t turns = baton == nullptr ? 0 : baton->turns();
      silent = turns == seen ? silent + 1 : 0;
      seen = turns;
      if (silent < kWatchdogSeconds || baton == nullptr) continue;
      std::fprintf(stderr, "a thread blocks beside the baton\n");
      baton->interrupt(SIGUSR2);
      sleep(5);
      _exit(4);
    }
  }).detach();
}

/// Prepares a child: one CPU, since one thread runs at a time, and no signals of the product.
void settle_in() {
  std::signal(SIGPIPE, SIG_IGN);
  setenv("TROUPE_SPILL", "", 1);
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  const int here = sched_getcpu();
  if (here >= 0) CPU_SET(static_cast<unsigned>(here), &cpus);
  if (here >= 0) sched_setaffinity(0, sizeof cpus, &cpus);
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = std::min<rlim_t>(files.rlim_max, 20'000);
    setrlimit(RLIMIT_NOFILE, &files);
  }
  watch();
}

/// Runs the seeds [from, from + count) in a child and hands over each outcome. Returns their number
/// and sets `status` when the child died before the last one.
template <class Take>
std::uint64_t run_child(std::uint64_t from, std::uint64_t count, const Options& options,
                        int& status, Take&& take) {
  int ends[2];
  if (pipe(ends) != 0) return 0;
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) {
    close(ends[0]);
    close(ends[1]);
    return 0;
  }
  if (child == 0) {
    close(ends[0]);
    settle_in();
    const auto tell = [&](const Outcome& one) { send_outcome(ends[1], one); };
    const int first_fd = ends[1] + 1;
    for (std::uint64_t seed = from; seed < from + count; ++seed) {
      tell(run_here(seed, options, tell));
      close_range(static_cast<unsigned>(first_fd), ~0U, 0);  // of threads that never run again
    }
    _exit(0);
  }
  close(ends[1]);
  std::uint64_t came = 0;
  Outcome one;
  while (came < count && receive_outcome(ends[0], one)) {
    ++came;
    take(one);
  }
  close(ends[0]);
  waitpid(child, &status, 0);
  return came;
}

std::string words_of(int status) {
  if (WIFSIGNALED(status))
    return "aborted by signal " + std::to_string(WTERMSIG(status)) +
           " (a broken invariant: see above)";
  return "ended with code " + std::to_string(WEXITSTATUS(status));
}

/// Returns the promise of a report, without what differs from seed to seed.
std::string promise_of(const std::string& why) {
  return why.substr(0, why.find_first_of(":\n"));
}

template <class Words>
std::string list_of(const char* name, const Words& words) {
  std::ostringstream text;
  for (const auto& word : words) text << (text.tellp() == 0 ? name : ",") << word;
  return text.str();
}

}  // namespace

std::string Options::replay(std::uint64_t seed) const {
  std::string text = "./dev simulate --world machine";
  if (nodes > 1) text += " --nodes " + std::to_string(nodes);
  text +=
      " --replay " + std::to_string(seed) + list_of(" --off ", off) + list_of(" --mute ", muted);
  return most_actions == Options{}.most_actions
             ? text
             : text + " --actions " + std::to_string(most_actions);
}

Options shrink(std::uint64_t seed, Options options, const std::string& why) {
  const auto keep_if_it_fails = [&](const Options& less) {
    const bool fails = promise_of(run_isolated(seed, less).violation) == promise_of(why);
    if (fails) options = less;
    return fails;
  };
  options.verbose = false;
  for (std::size_t i = 0; i < kFaults; ++i) {
    Options less = options;
    if (less.off.insert(name_of(static_cast<Fault>(i))).second) keep_if_it_fails(less);
  }
  const Plan plan = plan_of(seed, options);
  const std::uint64_t faults = plan.strokes.size() + plan.deadly_frames.size();
  for (std::uint64_t number = 1; number <= faults; ++number) {
    Options less = options;
    less.muted.insert(number);
    keep_if_it_fails(less);
  }
  for (std::uint64_t most = 128; most > 0; most /= 2) {
    Options less = options;
    less.most_actions = most;
    if (!keep_if_it_fails(less)) break;
  }
  return options;
}

Outcome run_isolated(std::uint64_t seed, const Options& options) {
  Outcome result;
  int status = 0;
  const auto came = run_child(seed, 1, options, status, [&](const Outcome& one) { result = one; });
  result.seed = seed;
  if (came == 0) result.violation = words_of(status);
  return result;
}

Batch run_batch(const Options& options) {
  Batch batch;
  batch.options = options;
  const auto begun = std::chrono::steady_clock::now();
  const std::uint64_t end = options.from + options.seeds;
  for (std::uint64_t seed = options.from; seed < end;) {
    if (batch.failures.size() >= options.most_failures) break;
    const std::uint64_t count = std::min(kPiece, end - seed);
    std::vector<std::pair<std::uint64_t, std::uint64_t>> traces;
    int status = 0;
    const std::uint64_t came = run_child(seed, count, options, status, [&](const Outcome& one) {
      ++batch.seeds;
      batch.turns += one.turns;
      batch.virtual_seconds += one.virtual_seconds;
      batch.trace.mix(one.trace);
      for (std::size_t i = 0; i < kFaults; ++i) batch.struck[i] += one.struck[i];
      batch.did.calls += one.did.calls;
      batch.did.values += one.did.values;
      batch.did.excused += one.did.excused;
      batch.did.begun += one.did.begun;
      batch.did.restarts += one.did.restarts;
      batch.did.lost += one.did.lost;
      if (!one.violation.empty()) batch.failures.emplace_back(one.seed, one.violation);
      if (one.violation.empty() && one.seed % kTwiceEvery == 0)
        traces.emplace_back(one.seed, one.trace);
    });
    seed += came;
    const bool told =
        came > 0 && !batch.failures.empty() && batch.failures.back().first == seed - 1;
    for (const auto& [again, trace] : traces) {
      ++batch.repeated;
      if (run_isolated(again, options).trace != trace)
        batch.failures.emplace_back(again, "the same seed gave another trace in another process");
    }
    if (came == count || told) continue;
    ++batch.seeds;
    batch.failures.emplace_back(seed++, words_of(status));
  }
  batch.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  return batch;
}

std::string Batch::floor() const {
  if (seeds < 100) return {};
  for (std::size_t i = 0; i < kFaults; ++i)
    if (struck[i] < seeds / 100)
      return "the fault '" + std::string(name_of(static_cast<Fault>(i))) + "' hardly struck";
  if (did.values < 10 * seeds) return "fewer than 10 values a schedule were compared";
  return {};
}

std::string Batch::text() const {
  char line[512];
  std::snprintf(
      line, sizeof line,
      "%" PRIu64 " seeds from %" PRIu64 ", %.1f seeds/s, %" PRIu64 " turns, %" PRIu64
      " calls, %" PRIu64 " values, %" PRIu64 " excused errors (%" PRIu64 " lost), %" PRIu64
      " runs, %.0f s of virtual time, %" PRIu64 " seeds run twice, trace %016" PRIx64 "\nfaults:",
      seeds, options.from, static_cast<double>(seeds) / std::max(seconds, 1e-9), turns, did.calls,
      did.values, did.excused, did.lost, did.begun, virtual_seconds, repeated, trace.value());
  std::string text = line;
  for (std::size_t i = 0; i < kFaults; ++i)
    text += " " + std::string(name_of(static_cast<Fault>(i))) + " " + std::to_string(struck[i]);
  text += "\n";
  for (const auto& [seed, why] : failures)
    text += "FAILED seed " + std::to_string(seed) + ": " + why.substr(0, 4000) +
            "\n  replay: " + options.replay(seed) + "\n";
  if (failures.empty() && !floor().empty()) text += "TOO LITTLE: " + floor() + "\n";
  if (failures.empty() && floor().empty()) text += "every promise was kept\n";
  return text;
}

}  // namespace troupe::sim::machine
