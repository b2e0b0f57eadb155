/// The verb `troupe top`: one screen of the cluster, drawn anew once a second.
#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/visible_text.hpp"
#include "troupe/runtime/base/wall_clock.hpp"
#include "troupe/runtime/cli/control_lists.hpp"
#include "troupe/runtime/cli/failures.hpp"
#include "troupe/runtime/cli/node_states.hpp"
#include "troupe/runtime/cli/top_screen.hpp"
#include "troupe/runtime/cli/verbs.hpp"

#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <utility>

namespace troupe::cli {
namespace {

using namespace std::chrono_literals;
using observe::RowKind;
using What = control::ListRequest::What;

constexpr Duration kEvery = 1s;
constexpr Duration kNoteStays = 30s;  ///< how long a screen says that another node is asked
constexpr int kMostTries = 3;         ///< of a look, as nodes leave
constexpr std::int64_t kRecent = 600'000'000'000;  ///< nanoseconds: what counts as a failure of now
constexpr std::size_t kMostFunctions = 5, kMostReasons = 5, kMostFailures = 5;

std::string text_in(const observe::Row& row, RowKind kind, std::string_view field) {
  const auto* text = std::get_if<std::string>(&row.cells[observe::column_of(kind, field)]);
  return text == nullptr ? "" : *text;
}
double number_in(const observe::Row& row, RowKind kind, std::string_view field) {
  const FieldValue value = observe::value_of(row.cells[observe::column_of(kind, field)]);
  const auto* number = std::get_if<double>(&value);
  return number == nullptr ? 0 : *number;
}

/// The connections of a look: one for each question that is asked at the same time.
struct Doors {
  explicit Doors(std::unique_ptr<Asked> first)
      : asked(std::move(first)),
        processes(same(*asked)),
        functions(same(*asked)),
        reasons(same(*asked)),
        failures(same(*asked)) {}
  bool is_lost() const {
    return asked->is_lost() || processes.is_lost() || functions.is_lost() || reasons.is_lost() ||
           failures.is_lost();
  }
  std::unique_ptr<Asked> asked;  ///< never null
  Asked processes, functions, reasons, failures;

 private:
  static Request same(const Asked& asked) {
    Request request;
    request.address = asked.target.path;
    return request;
  }
};

/// Looks at the cluster again and again. What two looks differ by is the CPU time between them.
class ClusterLooks {
 public:
  explicit ClusterLooks(const Request& request)
      : doors_(std::make_unique<Doors>(std::make_unique<Asked>(request))) {}

  /// Asks another node of this host when the one that was asked has ended the connection. Throws
  /// Failure (unreachable) when no node is left here.
  TopView look() {
    TopView view;
    for (int tries = 0; tries < kMostTries; ++tries) {
      if (doors_->is_lost()) {
        if (const auto silent = connect_anew()) return silent_view(*silent);
      }
      view = seen();
      if (!doors_->is_lost()) break;
    }
    if (steady_now() < note_until_) view.note = note_;
    return view;
  }

 private:
  std::string title(const std::string& asked) const {
    const auto now = static_cast<std::time_t>(unix_nanoseconds() / 1'000'000'000);
    std::tm local{};
    localtime_r(&now, &local);
    char clock[16];
    std::strftime(clock, sizeof clock, "%T", &local);
    return "cluster " + short_id() + " at " + clock + ", " + asked;
  }
  std::string short_id() const { return doors_->asked->target.file.cluster.str().substr(0, 8); }

  /// Returns why the nodes of this host that have a door are silent; nullopt: one is asked now.
  std::optional<Error> connect_anew() {
    const std::string before = doors_->asked->node_name();
    try {
      doors_ = std::make_unique<Doors>(ask_anew(doors_->asked->target, kDoorAnswers));
    } catch (const TimedOut& silent) {
      return silent;
    } catch (const Error& error) {
      throw Failure{
          Exit::unreachable,
          Error(error.code(), visible_text(before, 80) +
                                  ", which 'troupe top' asked, has gone, and no other node "
                                  "of cluster " +
                                  short_id() + " answers on this host: " + error.message() +
                                  "; if the cluster runs on other hosts, run 'troupe top' there")};
    }
    note_ = before + " has ended the connection; " + doors_->asked->node_name() + " is asked now";
    note_until_ = steady_now() + kNoteStays;
    return std::nullopt;
  }

  TopView silent_view(const Error& why) const {
    TopView view;
    view.title = title("no node of this host answers");
    view.missing = {why.message(), "it is asked again each second"};
    return view;
  }

  TopView seen() {
    TopView view;
    Asked& node = *doors_->asked;
    const auto asks = [](Asked& asked, RowKind kind, const char* sort) {
      return ask_beside([&asked, kind, sort] {
        return asked.try_rows(
            {.kind = kind, .where = {}, .sort = sort, .limit = observe::kMaxRows, .after = {}},
            kRowsAnswer);
      });
    };
    // At the same time, since each may wait for a silent process or node.
    auto processes = asks(doors_->processes, RowKind::processes, "anonymous:desc");
    auto functions = asks(doors_->functions, RowKind::functions, "waiting:desc");
    auto reasons = asks(doors_->reasons, RowKind::reasons, "tasks:desc");
    auto failures = ask_beside(
        [this] { return recent_failures(doors_->failures, observe::kMaxRows, kRowsAnswer); });
    view.title = title("asked through " + node.node_name());
    observe::Missing missing;
    ControlLists control(node, steady_now() + kControlAnswers, missing);
    add_nodes(control, view);
    const auto jobs = control.list(What::jobs).jobs;
    const auto actors = control.list(What::actors).actors;
    const auto answer_of = [&](std::future<Result<observe::Answer>>& asked) -> observe::Answer {
      auto answer = asked.get();
      if (!answer) {
        missing.add(node.node_name(), 0, answer.error().message());
        return {};
      }
      missing.add(*answer);
      return std::move(*answer);
    };
    add_processes(answer_of(processes), view);
    add_tasks(answer_of(functions), answer_of(reasons), view);
    add_failures(answer_of(failures), jobs, actors, view);
    view.missing = missing.lines("rows", false);
    return view;
  }

  static void add_nodes(ControlLists& control, TopView& view) {
    const auto reply = control.list(What::nodes);
    const NodeStates states(reply.nodes);
    view.dead = dead_lines(reply.dead_nodes, unix_nanoseconds());
    for (const auto& row : reply.nodes) {
      TopNode& node = view.nodes.emplace_back();
      const auto& total = row.description.resources;
      node.name = row.description.name;
      node.state = states.state_of(row);
      const auto units = [](scheduling::Amount amount) {
        return static_cast<double>(amount) / static_cast<double>(scheduling::kUnit);
      };
      node.cpus = units(total.cpus);
      node.cpus_used = units(total.cpus - row.report.view.free.cpus);
      node.store = row.report.store_capacity;
      node.store_used = row.report.store_used;
      node.workers = row.report.workers;
    }
  }

  void add_processes(const observe::Answer& processes, TopView& view) {
    std::map<std::string, double> seconds;
    const Time now = steady_now();
    const double passed = std::chrono::duration<double>(now - looked_).count();
    for (const observe::Row& row : processes.rows) {
      const std::string name = text_in(row, RowKind::processes, "node");
      const auto node = std::find_if(view.nodes.begin(), view.nodes.end(),
                                     [&](const TopNode& one) { return one.name == name; });
      const double spent = number_in(row, RowKind::processes, "cpu_seconds");
      seconds[row.id] = spent;
      if (node == view.nodes.end()) continue;
      node->memory += static_cast<std::uint64_t>(
          std::max(number_in(row, RowKind::processes, "anonymous"), 0.0));
      if (looked_ == Time{} || passed <= 0) continue;
      const auto before = seconds_.find(row.id);
      if (before == seconds_.end()) continue;  // it began, or was silent: no difference is known
      node->cpu_busy = node->cpu_busy.value_or(0) + std::max(spent - before->second, 0.0) / passed;
    }
    looked_ = now;
    seconds_ = std::move(seconds);
  }

  static void add_tasks(const observe::Answer& functions, const observe::Answer& reasons,
                        TopView& view) {
    for (const observe::Row& row : functions.rows) {
      const auto waiting = static_cast<std::int64_t>(number_in(row, RowKind::functions, "waiting"));
      const auto running = static_cast<std::int64_t>(number_in(row, RowKind::functions, "running"));
      view.waiting += waiting;
      view.running += running;
      if (view.functions.size() < kMostFunctions && waiting + running > 0)
        view.functions.push_back({row.id, waiting, running});
    }
    if (view.waiting == 0) return;
    for (const observe::Row& row : reasons.rows)
      if (view.reasons.size() < kMostReasons)
        view.reasons.emplace_back(
            static_cast<std::int64_t>(number_in(row, RowKind::reasons, "tasks")), row.id);
  }

  static void add_failures(const observe::Answer& events,
                           const std::vector<control::JobRecord>& jobs,
                           const std::vector<control::ActorRow>& actors, TopView& view) {
    view.failed = events.matched;
    view.failures = failure_lines(events, kMostFailures);
    for (std::string& line : failed_job_lines(jobs, unix_nanoseconds() - kRecent, kMostFailures))
      view.failures.push_back(std::move(line));
    std::size_t troubles = 0;
    for (const auto& actor : actors)
      if (actor.state != control::ActorState::alive && actor.state != control::ActorState::dead &&
          !actor.why.empty() && ++troubles <= kMostFailures)
        view.failures.push_back("actor " + actor.actor.str().substr(0, 8) + " (" +
                                actor.class_name + "): " + actor.why);
    if (troubles > kMostFailures)
      view.failures.push_back("and " + std::to_string(troubles - kMostFailures) +
                              " more: troupe list actors");
  }

  std::unique_ptr<Doors> doors_;
  std::string note_;  ///< which node is asked now
  Time note_until_{};
  Time looked_{};                          ///< zero: never
  std::map<std::string, double> seconds_;  ///< CPU time of each process at that time
};

volatile std::sig_atomic_t g_is_over = 0;

/// The terminal while `top` runs: a screen of its own, keys without a newline. The destructor gives
/// it back as it was.
class Terminal {
 public:
  Terminal() {
    tcgetattr(STDIN_FILENO, &before_);
    termios raw = before_;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | ISIG);
    raw.c_cc[VMIN] = 0;
    raw.c_cc[VTIME] = 0;
    tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    struct sigaction over{};
    over.sa_handler = [](int) { g_is_over = 1; };
    for (const int signal : {SIGTERM, SIGHUP, SIGINT}) sigaction(signal, &over, nullptr);
    say("\x1b[?1049h\x1b[?25l");
  }
  ~Terminal() {
    say("\x1b[?25h\x1b[?1049l");
    tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  /// Draws over the last screen. Returns false when the terminal is gone.
  bool draw(const TopView& view) {
    winsize size{};
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0 || size.ws_col == 0)
      size = {24, 80, 0, 0};
    std::string text = top_text(view, size.ws_row - 1U, size.ws_col);
    std::string screen = "\x1b[H";
    for (const char c : text) screen += c == '\n' ? "\x1b[K\n" : std::string(1, c);
    return say(screen + "\x1b[Jq ends");
  }
  /// Waits until the time for a key that ends `top`. Returns true when it has come, or the terminal
  /// is gone.
  bool is_over(Time until) {
    while (g_is_over == 0) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(
          std::max<Duration>(until - steady_now(), Duration(0)));
      pollfd entry{STDIN_FILENO, POLLIN, 0};
      const int ready = poll(&entry, 1, static_cast<int>(left.count()));
      if (ready == 0) return false;
      if (ready < 0 && errno == EINTR) continue;
      char key = 0;
      const ssize_t got = read(STDIN_FILENO, &key, 1);
      if (got <= 0 || key == 'q' || key == 'Q' || key == '\x03') return true;
    }
    return true;
  }

 private:
  static bool say(const std::string& text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    return std::fflush(stdout) == 0;
  }
  termios before_{};
};

}  // namespace

Exit top(const Request& request) {
  ClusterLooks watch(request);
  if (isatty(STDIN_FILENO) == 0 || isatty(STDOUT_FILENO) == 0) {
    TopView view = watch.look();
    const std::vector<std::string> missing = std::exchange(view.missing, {});
    std::printf("%s", top_text(view, 1000, 1000).c_str());
    std::fflush(stdout);
    for (const std::string& line : missing) std::fprintf(stderr, "troupe: %s\n", line.c_str());
    return Exit::ok;
  }
  TopView view = watch.look();  // an error is told before the screen is taken
  Terminal terminal;
  for (Time next = steady_now() + kEvery; terminal.draw(view) && !terminal.is_over(next);
       next = std::max(next + kEvery, steady_now())) {
    view = watch.look();
  }
  return Exit::ok;
}

}  // namespace troupe::cli
