#include "train/gangs.hpp"

#include "tools.hpp"
#include "train/link_stream.hpp"
#include "train/training.hpp"
#include "troupe/train/train.hpp"
#include "troupe/troupe.hpp"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>
#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace troupe::bench {
namespace {

using Clock = std::chrono::steady_clock;
namespace fs = std::filesystem;

constexpr const char* kStepShape = "4x128x64x12";  // that of train_dp_step
constexpr const char* kSmallShape = "2x64x16x4";
constexpr const char* kStateShape = "7x512x16x1";  // 12 bytes of state for each of 22 M parameters

/// Seconds of the clock that all processes share.
double now() {
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

// --- loops, which run in the ranks ---

/// Reports the median seconds of a step.
void steps(train::Worker& w, const std::string& shape, int count) {
  pin_to_cpus(w.rank(), 1);
  Training training(shape_of(shape), 1, w.layout(), w.mesh());
  for (int i = 0; i < 3; ++i) training.step();
  std::vector<double> seconds;
  for (int i = 0; i < count; ++i) {
    const Stopwatch watch;
    training.step();
    seconds.push_back(watch.seconds());
  }
  w.next_step();
  w.report({.step = w.step(), .loss = middle(seconds)});
}

/// Makes two checkpoints, the second when the first is there, and reports the seconds of its call.
void save_twice(train::Worker& w, const std::string& shape, const std::string& folder) {
  pin_to_cpus(w.rank(), 1);
  Training training(shape_of(shape), 1, w.layout(), w.mesh());
  training.step();
  w.next_step();
  w.checkpoint(training.engine());
  w.report({.step = 1});
  for (const Stopwatch watch; !fs::exists(folder + "/step-00000001"); usleep(1000))
    expect(std::chrono::duration<double>(watch.seconds()) < kBound, "the first checkpoint");
  training.step();
  w.next_step();
  w.all_reduce_sum(std::int64_t{0});  // all ranks begin together
  const Stopwatch watch;
  w.checkpoint(training.engine());
  w.report({.step = 2, .loss = watch.seconds()});
}

/// Reports the mean seconds of wants_checkpoint() in steps of 2 ms, whose end the ranks await.
void ask(train::Worker& w, int count) {
  pin_to_cpus(w.rank(), 1);
  double seconds = 0;
  for (int i = 0; i < count; ++i) {
    w.next_step();
    for (const Stopwatch step; step.seconds() < 0.002;) {
    }
    w.all_reduce_sum(std::int64_t{0});
    const Stopwatch watch;
    const bool wanted = w.wants_checkpoint();
    seconds += watch.seconds();
    expect(!wanted, "a run that wants no checkpoint");
  }
  w.report({.step = w.step(), .loss = seconds / count});
}

/// Makes a step and reports when it ended. A rank of the first gang may instead make steps until it
/// is killed.
void one_step(train::Worker& w, bool lasts) {
  Training training(shape_of(kSmallShape), 1, w.layout(), w.mesh());
  const Stopwatch watch;
  do {
    training.step();
    w.next_step();
    expect(std::chrono::duration<double>(watch.seconds()) < kBound, "a kill");
  } while (lasts && w.incarnation() == 0);
  w.report({.step = w.step(), .loss = now()});
}

// --- their clusters ---

/// A cluster of nodes with one rank each, or of one node with all ranks.
class Cluster {
 public:
  Cluster(int ranks, bool spread)
      : ranks_(ranks),
        nodes_(spread ? static_cast<unsigned>(ranks) : 1U),
        session_({.cpus = spread ? 1.0 : ranks, .nodes = nodes_}),
        ctx_(session_.context()) {
    await_idle();
  }
  /// Waits until all nodes are there and the CPUs of the run before are free.
  void await_idle() const {
    const auto idle = [this] {
      const auto nodes = ctx_.cluster().nodes;
      return std::count_if(nodes.begin(), nodes.end(), [](const NodeInfo& node) {
        return node.alive && node.cpus_free >= node.cpus;
      });
    };
    for (const Stopwatch watch; idle() != static_cast<long>(nodes_); usleep(1000))
      expect(std::chrono::duration<double>(watch.seconds()) < kBound, "idle nodes");
  }
  /// Runs a loop on all ranks. Throws when they lie on other nodes.
  template <auto loop, class... X>
  train::Fit fit(train::FitOptions options, X... arguments) {
    options.workers = ranks_;
    options.cpus_per_worker = 1;
    options.on_gang = [this, began = std::move(options.on_gang)](const train::Gang& gang) {
      std::set<std::string> nodes;
      for (const auto& rank : gang.ranks) nodes.insert(rank.node);
      expect(nodes.size() == nodes_, "ranks on these nodes");
      if (began) began(gang);
    };
    return train::fit<loop>(ctx_, options, std::move(arguments)...);
  }

 private:
  int ranks_;
  unsigned nodes_;
  Session session_;
  Context ctx_;
};

/// A folder that ends with this object.
class Folder {
 public:
  Folder() : path_((fs::temp_directory_path() / "bench-gang-XXXXXX").string()) {
    expect(::mkdtemp(path_.data()) != nullptr, "a folder");
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
};

/// Copies of so many bytes, in two processes at once.
class Copies : public Exchange {
 public:
  explicit Copies(std::size_t bytes)
      : Exchange([=](int, int) -> std::function<void()> {
          auto from = std::make_shared<std::vector<char>>(bytes, 'a'),
               to = std::make_shared<std::vector<char>>(bytes, 'b');
          return [from, to] { std::memcpy(to->data(), from->data(), from->size()); };
        }) {}
};

/// Bytes that each of two ranks stages: 12 for each of its parameters.
std::size_t staged_bytes(const char* shape_text) {
  const TrainShape s = shape_of(shape_text);
  const std::int64_t c = s.channels, block = 12 * c * c + 13 * c;
  return static_cast<std::size_t>(12 * ((256 + s.context) * c + s.layers * block + 2 * c) / 2);
}

}  // namespace

Reading step_over_nodes(bool quick) {
  const std::string shape = quick ? kSmallShape : kStepShape;
  std::vector<double> times, floors, ratios;
  for (int pair = 0; pair < (quick ? 1 : 5); ++pair) {
    const int count = quick ? 1 : 20;
    floors.push_back(Cluster(2, false).fit<steps>({}, shape, count).last().loss * 1e3);
    times.push_back(Cluster(2, true).fit<steps>({}, shape, count).last().loss * 1e3);
    ratios.push_back(times.back() / floors.back());
  }
  return {.value = middle(times), .floor = middle(floors), .ratio = middle(ratios)};
}

Reading checkpoint_stall(bool quick) {
  const char* shape = quick ? kSmallShape : kStateShape;
  std::vector<double> times, floors, ratios;
  for (int pair = 0; pair < (quick ? 1 : 3); ++pair) {
    floors.push_back(50 + 1.5e3 * Copies(staged_bytes(shape)).measure(quick ? 1 : 7));
    const Folder folder;
    const train::Fit fit = Cluster(2, false).fit<save_twice>({.run = {.folder = folder.path()}},
                                                             std::string(shape), folder.path());
    expect(fit.latest_checkpoint().step == 2, "two checkpoints");
    times.push_back(fit.last().loss * 1e3);
    ratios.push_back(times.back() / floors.back());
  }
  return {.value = middle(times), .floor = middle(floors), .ratio = middle(ratios)};
}

Reading asking(bool quick) {
  return {.value = Cluster(2, true).fit<ask>({}, quick ? 5 : 1500).last().loss * 1e6};
}

Reading gang_start(bool quick) {
  Cluster cluster(3, true);
  std::vector<double> times;
  for (int run = 0; run < (quick ? 2 : 8); ++run) {
    cluster.await_idle();
    const double begun = now();
    const train::Fit fit = cluster.fit<one_step>({}, false);
    if (run > 0) times.push_back((fit.last().loss - begun) * 1e3);  // the first one warms up
  }
  return {.value = middle(times)};
}

Reading gang_recovery(bool quick) {
  Cluster cluster(3, true);
  std::vector<double> times;
  for (int run = 0; run < (quick ? 1 : 5); ++run) {
    cluster.await_idle();
    double killed = 0;
    std::jthread killer;
    train::FitOptions options{.max_restarts = 1};
    options.on_gang = [&](const train::Gang& gang) {
      if (killer.joinable()) return;
      killer = std::jthread([&killed, pid = gang.ranks.back().pid] {
        std::this_thread::sleep_for(std::chrono::milliseconds(300));  // it makes steps meanwhile
        killed = now();
        ::kill(pid, SIGKILL);
      });
    };
    const train::Fit fit = cluster.fit<one_step>(options, true);
    killer = {};  // joins
    expect(fit.restarts() == 1, "one restart");
    times.push_back((fit.last().loss - killed) * 1e3);
  }
  return {.value = middle(times)};
}

}  // namespace troupe::bench
