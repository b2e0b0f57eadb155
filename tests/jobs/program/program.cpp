// A driver that obeys commands from stdin, one a line, and answers each with one line.
#include "troupe/troupe.hpp"

#include <unistd.h>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

extern "C" const char* own_library_path();

namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;
constexpr auto kBound = 20s;

struct Counter {
  int n = 0;
  int add(int k) { return n += k; }
  int pid() const { return ::getpid(); }
};

/// An actor that writes to a file when it ends.
struct Log {
  std::ofstream out;
  explicit Log(const std::string& file) : out(file) {}
  ~Log() { out << "ended"; }
  int pid() const { return ::getpid(); }
};

/// An actor that keeps objects which outlive the driver that made them.
struct Shelf {
  using Values = std::vector<troupe::Ref<std::vector<double>>>;
  Values kept;
  void keep(Values values) { kept = std::move(values); }
  Values give() const { return kept; }
};

/// An object that gets a name.
struct Parts {
  troupe::Ref<int> number;
  troupe::Ref<std::vector<double>> put, made;
};

/// The meeting point of the tasks of one call. Each node leaves a file, and no task goes on
/// before all nodes have come. Else one node could run every task before the workers of another
/// start.
struct Meeting {
  std::string folder;
  int nodes = 1;
};

void meet(troupe::Context& ctx, const Meeting& meeting) {
  std::ofstream(meeting.folder + "/" + ctx.node().str()).put('x');
  const auto until = std::chrono::steady_clock::now() + kBound / 2;
  const auto came = [&] {
    return std::distance(fs::directory_iterator(meeting.folder), fs::directory_iterator());
  };
  while (came() < meeting.nodes && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(5ms);
}

std::string process_and_node(troupe::Context& ctx, const Meeting& meeting) {
  meet(ctx, meeting);
  return std::to_string(::getpid()) + "@" + ctx.node().str();
}
std::string library_and_node(troupe::Context& ctx, const Meeting& meeting) {
  meet(ctx, meeting);
  return std::string(own_library_path()) + "@" + ctx.node().str();
}
/// Returns the signals that this process ignores and blocks, as the kernel reports them:
/// "11000,2". Leaves out the two that the C library uses itself.
std::string signals_of_this_process() {
  constexpr std::uint64_t kOfTheLibrary = std::uint64_t{3} << 31;
  std::ifstream status("/proc/thread-self/status");
  std::uint64_t ignored = 0, blocked = 0;
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("SigIgn:", 0) == 0) ignored = std::stoull(line.substr(7), nullptr, 16);
    if (line.rfind("SigBlk:", 0) == 0) blocked = std::stoull(line.substr(7), nullptr, 16);
  }
  std::ostringstream text;
  text << std::hex << (ignored & ~kOfTheLibrary) << ',' << (blocked & ~kOfTheLibrary);
  return text.str();
}
std::string signals_and_node(troupe::Context& ctx, const Meeting& meeting) {
  meet(ctx, meeting);
  return signals_of_this_process() + "@" + ctx.node().str();
}
/// `yes` ends only if it learns that nobody reads its pipe any more.
std::string pipe_and_node(troupe::Context& ctx, const Meeting& meeting) {
  meet(ctx, meeting);
  (void)!std::system("yes 2>/dev/null | head -1 >/dev/null");
  return "ended@" + ctx.node().str();
}

/// Executes this program anew, as a parent with such signals would start it.
int start_again(std::uint64_t ignored, std::uint64_t blocked, char* name) {
  sigset_t mask;
  sigemptyset(&mask);
  for (int signal = 1; signal < NSIG; ++signal) {
    const std::uint64_t bit = std::uint64_t{1} << (signal - 1);
    std::signal(signal, (ignored & bit) != 0 ? SIG_IGN : SIG_DFL);
    if ((blocked & bit) != 0) sigaddset(&mask, signal);
  }
  sigprocmask(SIG_SETMASK, &mask, nullptr);
  char* arguments[] = {name, nullptr};
  return execv("/proc/self/exe", arguments);
}

std::vector<double> large(std::size_t n) {
  std::this_thread::sleep_for(50ms);
  return std::vector<double>(n, 1.0);
}
std::size_t count_of(const std::vector<troupe::Ref<int>>& refs) {
  return refs.size();
}
int busy(int) {
  for (;;) std::this_thread::sleep_for(1s);
}

class Driver {
 public:
  explicit Driver(troupe::Context& ctx) : ctx_(ctx) {}

  std::string answer(std::istringstream line) {
    std::string verb, name;
    int value = 0;
    line >> verb;
    if (verb == "spawn") {  // name value detached get_if_exists restarts
      troupe::ActorOptions options;
      line >> name >> value >> options.detached >> options.get_if_exists >> options.max_restarts;
      options.name = name;
      kept_[name] = ctx_.with(options).spawn<Counter>(value);
      return std::to_string(ctx_.get(kept_[name].call<&Counter::add>(0), kBound));
    }
    if (verb == "add" || verb == "pid" || verb == "kill") {
      line >> name >> value;
      auto found = ctx_.find<Counter>(name);
      if (!found) return "none";
      if (verb == "pid") return std::to_string(ctx_.get(found->call<&Counter::pid>(), kBound));
      if (verb == "add") return std::to_string(ctx_.get(found->call<&Counter::add>(value), kBound));
      ctx_.kill(*found);
      return "killed";
    }
    if (verb == "log") {
      line >> name;
      logs_.push_back(ctx_.spawn<Log>(name));
      return std::to_string(ctx_.get(logs_.back().call<&Log::pid>(), kBound));
    }
    int nodes = 1;
    if (verb == "shelve") {  // one value put here, one made by a task
      troupe::ActorOptions options;
      line >> name;
      options.name = name;
      options.detached = true;
      const auto shelf = ctx_.with(options).spawn<Shelf>();
      Shelf::Values values{ctx_.put(std::vector<double>(100'000, 2.0)),
                           ctx_.submit<large>(std::size_t{100'000})};
      ctx_.wait(values, {.count = values.size(), .timeout = kBound});
      ctx_.get(shelf.call<&Shelf::keep>(std::move(values)), kBound);
      return "kept";
    }
    if (verb == "shelved") {
      line >> name;
      const auto shelf = ctx_.find<Shelf>(name);
      double sum = 0;
      for (const auto& ref : ctx_.get(shelf.value().call<&Shelf::give>(), kBound))
        for (const double one : ctx_.get(ref, kBound)) sum += one;
      return std::to_string(static_cast<int>(sum));
    }
    if (verb == "detach") {  // a small value, one put here, and one made by a task
      line >> name >> value;
      Parts parts{ctx_.put(value), ctx_.put(std::vector<double>(100'000, 2.0)),
                  ctx_.submit<large>(std::size_t{100'000})};
      ctx_.wait(std::vector{parts.made}, {.timeout = kBound});
      ctx_.detach(ctx_.put(parts), name);
      return "detached";
    }
    if (verb == "found" || verb == "mistaken") {
      line >> name;
      if (verb == "mistaken" && ctx_.find_object<int>(name)) return "an int";
      const auto found = ctx_.find_object<Parts>(name);
      if (!found) return "none";
      const Parts parts = ctx_.get(*found, kBound);
      double sum = ctx_.get(parts.number, kBound);
      for (const auto& ref : {parts.put, parts.made})
        for (const double one : ctx_.get(ref, kBound)) sum += one;
      return std::to_string(static_cast<int>(sum));
    }
    if (verb == "share") {  // refs of which the agent knows, too
      line >> value;
      for (int i = 0; i < value; ++i) shared_.push_back(ctx_.put(i));
      return std::to_string(ctx_.get(ctx_.submit<count_of>(shared_), kBound));
    }
    if (verb == "drop") {
      shared_.clear();
      return "dropped";
    }
    if (verb == "forget") {
      line >> name;
      return ctx_.forget_object(name) ? "forgotten" : "none";
    }
    line >> value >> nodes;
    if (verb == "spread") return distinct<process_and_node>(value, nodes);
    if (verb == "signals") return distinct<signals_and_node>(value, nodes);
    if (verb == "pipes") return distinct<pipe_and_node>(value, nodes);
    if (verb == "libraries") return distinct<library_and_node>(value, nodes);
    if (verb == "store") {  // large values on every node, some of them put here
      for (int i = 0; i < value; ++i) {
        values_.push_back(ctx_.submit<large>(std::size_t{100'000}));
        values_.push_back(ctx_.put(std::vector<double>(100'000, 2.0)));
      }
      double sum = 0;
      for (auto& ref : values_) sum += ctx_.get(ref, kBound).front();
      return std::to_string(static_cast<int>(sum));
    }
    if (verb == "busy") {
      for (int i = 0; i < value; ++i) busy_.push_back(ctx_.submit<busy>(i));
      return "busy";
    }
    return "unknown";
  }

 private:
  template <auto F>
  std::string distinct(int count, int nodes) {
    std::string folder = (fs::temp_directory_path() / "troupe-meeting-XXXXXX").string();
    if (mkdtemp(folder.data()) == nullptr) return "no folder to meet in";
    std::vector<troupe::Ref<std::string>> calls;
    for (int i = 0; i < count; ++i) calls.push_back(ctx_.submit<F>(Meeting{folder, nodes}));
    std::set<std::string> seen;
    for (auto& call : calls) seen.insert(ctx_.get(call, kBound));
    fs::remove_all(folder);
    std::string all;
    for (const auto& one : seen) all += one + " ";
    return all;
  }

  troupe::Context& ctx_;
  std::map<std::string, troupe::Actor<Counter>> kept_;
  std::vector<troupe::Actor<Log>> logs_;
  std::vector<troupe::Ref<std::vector<double>>> values_;
  std::vector<troupe::Ref<int>> shared_;
  std::vector<troupe::Ref<int>> busy_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc > 3 && std::string(argv[1]) == "signals")
    return start_again(std::stoull(argv[2], nullptr, 16), std::stoull(argv[3], nullptr, 16),
                       argv[0]);
  // A program that exits where workers should be forked from it.
  if (argc > 1 && std::string(argv[1]) == "early" && std::getenv("TROUPE_TEST_DRIVER") == nullptr)
    return 5;
  return troupe::run(argc, argv, [](troupe::Context& ctx) {
    Driver driver(ctx);
    std::cout << "ready" << std::endl;
    for (std::string line; std::getline(std::cin, line);) {
      try {
        std::cout << driver.answer(std::istringstream(line)) << std::endl;
      } catch (const troupe::Error& error) {
        std::cout << "error " << troupe::name_of(error.code()) << ": " << error.message()
                  << std::endl;
      }
    }
  });
}
