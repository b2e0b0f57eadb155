// Tests `troupe top`: what a screen says, and that it gives a terminal back.
#include "tests/paths.hpp"
#include "tests/runtime/cli/clusters.hpp"
#include "troupe/runtime/cli/top_screen.hpp"

#include <sys/ioctl.h>
#include <termios.h>
#include <array>

namespace troupe::cli {
namespace {

TEST(TopScreen, SaysWhatWaitsRunsAndFails) {
  TopView view;
  view.title = "cluster 3f2a91c0";
  view.nodes.push_back({"node-0", "alive", 2, 1.5, 0.25, 3u << 20, 64u << 20, 1u << 20, 3});
  view.nodes.push_back({"node-1", "suspect", 1, 0, std::nullopt, 0, 0, 0, 0});
  view.waiting = 12;
  view.running = 3;
  view.reasons = {{12, "all CPUs are in use\x1b]0;title\x07"}};
  view.functions = {{"outer::mix(int)", 12, 3}};
  view.failed = 4;
  view.failures = {"3 of mix(int), the last one: killed by signal 9",
                   "job 3f2a91c0 (train): its driver died"};
  view.dead = {"node-7 died 5s ago: killed"};
  view.missing = {"rows of node-1 are missing: no answer in 1.5 s"};
  const std::string text = top_text(view, 100, 100);
  for (const char* part :
       {"cluster 3f2a91c0\n", "1.5/2", "0.2", "3.0 MiB", "suspect", "3 tasks run, 12 wait",
        "12: all CPUs are in use?]0;title?", "mix(int)",
        "\n4 failures in the last 10 minutes\n  3 of mix(int)", "its driver died",
        "nodes that died\n  node-7", "rows of node-1 are missing: no answer in 1.5 s"})
    EXPECT_TRUE(says(text, part)) << part << "\n" << text;
}

TEST(TopScreen, SaysBelowTheTitleWhichNodeItAsksNow) {
  TopView view;
  view.title = "cluster 3f2a91c0";
  view.note = "node-0 has ended the connection; node-\x1b is asked now";
  const std::string text = top_text(view, 100, 100);
  EXPECT_TRUE(
      text.starts_with("cluster 3f2a91c0\nnode-0 has ended the connection; node-? is asked "
                       "now\nNODE"))
      << text;
}

TEST(TopScreen, FitsTheTerminal) {
  TopView view;
  view.title = std::string(300, 't');
  for (int i = 0; i < 50; ++i) view.failures.push_back(std::string(300, 'f'));
  const std::string text = top_text(view, 10, 40);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 10);
  EXPECT_TRUE(says(text, "more lines\n")) << text;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    EXPECT_LE(end - at, 40u);
    at = end + 1;
  }
}

/// A child in a session of its own, with a terminal of 30 lines and 100 columns.
class InTerminal {
 public:
  explicit InTerminal(std::vector<std::string> arguments) {
    host_ = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (host_ < 0 || grantpt(host_) != 0 || unlockpt(host_) != 0) return;
    const std::string name = ptsname(host_);
    own_ = open(name.c_str(), O_RDWR | O_NOCTTY | O_CLOEXEC);
    winsize size{30, 100, 0, 0};
    ioctl(own_, TIOCSWINSZ, &size);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, name.c_str(), O_RDWR, 0);
    posix_spawn_file_actions_adddup2(&actions, 0, 1);
    posix_spawn_file_actions_adddup2(&actions, 0, 2);
    posix_spawnattr_t how;
    posix_spawnattr_init(&how);
    posix_spawnattr_setflags(&how, POSIX_SPAWN_SETSID);
    std::vector<char*> argv;
    for (auto& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    EXPECT_EQ(posix_spawn(&pid_, argv[0], &actions, &how, argv.data(), environ), 0);
    posix_spawnattr_destroy(&how);
    posix_spawn_file_actions_destroy(&actions);
  }
  ~InTerminal() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      (void)code();
    }
    close(own_);
    close(host_);
  }
  /// Returns what it has written when that has the text, or all of it when the time is over.
  const std::string& read_until(const std::string& text) {
    const auto deadline = std::chrono::steady_clock::now() + 20s;
    while (!says(seen_, text) && read_more(deadline)) {
    }
    return seen_;
  }
  /// Returns the first whole screen that has the text, or all that it has written when the time is
  /// over.
  std::string screen_with(const std::string& text) {
    const auto deadline = std::chrono::steady_clock::now() + 20s;
    std::size_t begin = 0;
    do {
      while ((begin = seen_.find(kScreenBegins, begin)) != std::string::npos) {
        const std::size_t end = seen_.find(kScreenEnds, begin);
        if (end == std::string::npos) break;
        std::string screen = seen_.substr(begin, end - begin);
        if (says(screen, text)) return screen;
        begin = end;
      }
      if (begin == std::string::npos) begin = 0;
    } while (read_more(deadline));
    return seen_;
  }
  void forget() { seen_.clear(); }
  void type(const char* key) { EXPECT_EQ(write(host_, key, 1), 1); }
  tcflag_t flags() const {
    termios now{};
    tcgetattr(own_, &now);
    return now.c_lflag;
  }
  int code() {
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  static constexpr const char* kScreenBegins = "\x1b[H";
  static constexpr const char* kScreenEnds = "q ends";
  /// Returns false at the end of what it writes, and when the time is over.
  bool read_more(std::chrono::steady_clock::time_point deadline) {
    while (std::chrono::steady_clock::now() < deadline) {
      pollfd entry{host_, POLLIN, 0};
      if (poll(&entry, 1, 500) <= 0) continue;
      std::array<char, 4096> buffer;
      const ssize_t n = read(host_, buffer.data(), buffer.size());
      if (n <= 0) return false;
      seen_.append(buffer.data(), static_cast<std::size_t>(n));
      return true;
    }
    return false;
  }

  int host_ = -1, own_ = -1;
  pid_t pid_ = 0;
  std::string seen_;
};

class Top : public Clusters {};

TEST_F(Top, DrawsOnceASecondAndGivesTheTerminalBack) {
  start({"--nodes", "2", "--cpus", "1"});
  const std::string go_on = state.string() + "-go-on";
  Child program(
      {paths::command(), "run", paths::cli_program(), "plant_tasks", "2", "5", "2", go_on});
  ASSERT_TRUE(says(program.read_until("planted\n"), "planted\n"));
  ASSERT_TRUE(eventually([] { return rows("tasks", {"--where", "state = running"}).size() == 2; }));
  InTerminal top({paths::command(), "top"});
  const std::string first = top.read_until("q ends");
  EXPECT_TRUE(says(first, "\x1b[?1049h")) << first;
  EXPECT_TRUE(says(first, "node-1")) << first;
  EXPECT_TRUE(says(first, "8 wait")) << first;
  EXPECT_TRUE(says(first, "GPU")) << first;
  EXPECT_EQ(top.flags() & ECHO, 0u);
  top.forget();
  const std::string second = top.read_until("q ends");
  EXPECT_TRUE(says(second, "\x1b[H") && says(second, "2 tasks run")) << second;
  top.type("q");
  EXPECT_EQ(top.code(), 0);
  EXPECT_TRUE(says(top.read_until("\x1b[?1049l"), "\x1b[?1049l"));
  EXPECT_NE(top.flags() & ECHO, 0u);
  EXPECT_NE(top.flags() & ICANON, 0u);
  std::ofstream(go_on) << "go on";
  EXPECT_EQ(program.finish(0), 0);
  fs::remove(go_on);
}

TEST_F(Top, AsksAnotherNodeOfThisHostWhenItsNodeDiesAndEndsWithTheLastOne) {
  const json cluster = start({"--nodes", "2", "--cpus", "1"});
  InTerminal top({paths::command(), "top"});
  const std::string first = top.read_until("asked through node-0");
  EXPECT_TRUE(says(first, "asked through node-0")) << first;
  ASSERT_EQ(cluster["nodes"][0]["name"], "node-0");
  ASSERT_EQ(::kill(cluster["nodes"][0]["pid"].get<pid_t>(), SIGKILL), 0);
  top.forget();
  const std::string note = "node-0 has ended the connection; node-1 is asked now";
  const std::string second = top.read_until(note);
  EXPECT_TRUE(says(second, "asked through node-1") && says(second, note)) << second;
  const std::string third = top.screen_with("nodes that died");
  EXPECT_TRUE(says(third, "asked through node-1") && says(third, "alive")) << third;
  top.forget();
  ASSERT_EQ(::kill(cluster["nodes"][1]["pid"].get<pid_t>(), SIGKILL), 0);
  const std::string last = top.read_until("run 'troupe top' there");
  EXPECT_TRUE(says(last, "\x1b[?1049l")) << last;
  EXPECT_TRUE(
      says(last, "node-1, which 'troupe top' asked, has gone, and no other node of cluster"))
      << last;
  EXPECT_EQ(top.code(), 3);
  EXPECT_NE(top.flags() & ICANON, 0u);
  expect_ended(cluster);
}

TEST_F(Top, AsksANodeThatJoinedOnThisHostWhenItsOwnIsGone) {
  const json head = start({"--nodes", "2", "--cpus", "1", "--join-tokens", "1"});
  const Outcome joined =
      troupe_command({"start", "--address", head["join_tokens"][0].get<std::string>(), "--cpus",
                      "1", "--memory", "64MiB", "--json"});
  ASSERT_EQ(joined.code, 0) << joined.err;
  const json own = json::parse(joined.out);
  InTerminal top({paths::command(), "top", "--address", own["file"].get<std::string>()});
  const std::string through = "asked through " + own["nodes"][0]["name"].get<std::string>();
  const std::string first = top.read_until(through);
  EXPECT_TRUE(says(first, through)) << first;
  ASSERT_EQ(troupe_command({"stop", "--address", own["file"].get<std::string>()}).code, 0);
  top.forget();
  const std::string second = top.screen_with("asked through node-0");
  EXPECT_TRUE(says(second, "asked through node-0") && says(second, "is asked now")) << second;
  top.type("q");
  EXPECT_EQ(top.code(), 0);
}

TEST_F(Top, WithoutATerminalItShowsOneScreen) {
  start({"--nodes", "2", "--cpus", "1"});
  const Outcome once = troupe_command({"top"});
  EXPECT_EQ(once.code, 0) << once.err;
  EXPECT_TRUE(says(once.out, "node-1") && says(once.out, "0 tasks run, 0 wait")) << once.out;
  EXPECT_FALSE(says(once.out, "\x1b")) << once.out;
}

}  // namespace
}  // namespace troupe::cli
