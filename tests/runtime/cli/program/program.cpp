// The program that the command line's tests run on clusters.
#include "plants.hpp"
#include "says.hpp"
#include "situations.hpp"
#include "soak.hpp"
#include "troupe/train/train.hpp"
#include "troupe/troupe.hpp"
#include "troupe/tune/tune.hpp"

#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iostream>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

int square(int x) {
  return x * x;
}

/// Takes so long that one node alone cannot run all of these tasks in time.
std::string where(troupe::Context& ctx, int) {
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  return ctx.node().str();
}

struct Keeper {
  int kept = 0;
  int keep(int value) { return kept += value; }
};

int sum(troupe::Context& ctx, int count) {
  std::vector<troupe::Ref<int>> parts;
  for (int i = 0; i < count; ++i) parts.push_back(ctx.submit<square>(i));
  int total = 0;
  for (auto& part : parts) total += ctx.get(part);
  std::cout << total << "\n";
  return 0;
}

void three_steps(troupe::train::Worker& w) {
  for (int i = 0; i < 3; ++i) {
    w.next_step();
    float x = 1;
    w.all_reduce_mean(std::span(&x, 1));
  }
  w.report({.step = w.step()});
}
void many_steps(troupe::train::Worker& w, long steps) {
  std::vector<float> weights(1000, 1.0f);
  w.restore(weights);
  while (w.step() < steps) {
    w.next_step();
    w.all_reduce_mean(weights);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    w.report({.step = w.step()});
    if (w.wants_checkpoint()) w.checkpoint(weights);
  }
}
/// Trains with a rank on each node, and tells of each gang when it begins.
int gang(troupe::Context& ctx, int workers, long steps, int timeout_s, int restarts) {
  const auto tell = [](const troupe::train::Gang& gang) {
    std::cout << "gang at step " << gang.step << ":";
    for (const auto& rank : gang.ranks) std::cout << " " << rank.node;
    std::cout << std::endl;
  };
  const auto run = troupe::train::fit<many_steps>(ctx,
                                                  {.workers = workers,
                                                   .max_restarts = restarts,
                                                   .placement = troupe::Placement::spread,
                                                   .run = {.every = 10},
                                                   .on_gang = tell,
                                                   .timeout = std::chrono::seconds(timeout_s)},
                                                  steps);
  std::cout << run.last().step << " steps, " << run.restarts() << " restarts\n";
  return 0;
}

/// Trains with reserved CPUs and without.
int fit(troupe::Context& ctx) {
  for (const auto& options : {troupe::train::FitOptions{.workers = 1, .cpus_per_worker = 1},
                              troupe::train::FitOptions{.workers = 2}})
    std::cout << troupe::train::fit<three_steps>(ctx, options).last().step << " steps\n";
  return 0;
}

/// Prints on how many nodes its tasks run. One node may have done all tasks before the workers of
/// another start. So this repeats until every node with CPUs has run some.
int nodes(troupe::Context& ctx) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  std::set<std::string> seen;
  const auto all_had_some = [&] {
    const auto nodes = ctx.cluster().nodes;
    return std::count_if(nodes.begin(), nodes.end(), [](const auto& node) {
             return node.cpus > 0;
           }) <= static_cast<std::ptrdiff_t>(seen.size());
  };
  do {
    std::vector<troupe::Ref<std::string>> calls;
    for (int i = 0; i < 24; ++i) calls.push_back(ctx.submit<where>(i));
    for (auto& call : calls) seen.insert(ctx.get(call));
  } while (!all_had_some() && std::chrono::steady_clock::now() < until);
  std::cout << seen.size() << "\n";
  return 0;
}

struct Rate {
  double rate = 0.1;
};
/// Counts its steps in its model, and notes its node.
void count_steps(troupe::tune::Trial& t, Rate) {
  std::vector<double> model = {0};
  t.restore(model);
  t.note(t.context().node().str());
  do {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    model[0] += 1;
  } while (t.report(1 / model[0], model));
}
/// Runs 16 trials, and says "runs" when one has come far. At the end it prints how many completed
/// all steps, how many failures there were, whether trials began again, and on how many nodes that
/// joined meanwhile some ran.
int tune(troupe::Context& ctx) {
  namespace tune = troupe::tune;
  const auto space = tune::Space<Rate>{}.with(&Rate::rate, tune::uniform(0, 1));
  tune::Options<> options{.goal = tune::minimize,
                          .trials = 16,
                          .max_failures = 0,
                          .max_steps = 20,
                          .save_every = 1,
                          .show = false};
  options.on_event = [said = false](const tune::Event& event) mutable {
    if (event.kind != tune::Event::Kind::best || event.step < 10 || std::exchange(said, true))
      return;
    std::cout << "runs" << std::endl;
  };
  std::set<std::string> old, joined;
  for (const auto& node : ctx.cluster().nodes) old.insert(node.id.str());
  const auto best = tune::optimize<count_steps, Rate>(ctx, space, options);
  int completed = 0, failures = 0, again = 0;
  for (const tune::TrialInfo& trial : best.board.trials) {
    completed += trial.state == tune::TrialState::completed && trial.step() == 20 ? 1 : 0;
    failures += trial.failures;
    again += trial.attempt > 1 ? 1 : 0;
  }
  for (const std::string& note : best.notes) {
    const std::string node = note.substr(note.find(": ") + 2);
    if (note.compare(0, 6, "trial ") == 0 && old.count(node) == 0) joined.insert(node);
  }
  std::cout << completed << " " << failures << (again > 0 ? " yes " : " no ") << joined.size()
            << std::endl;
  return 0;
}

int says(int number) {
  std::cout << "task " << number << std::endl;
  return number;
}
void rank_prints(troupe::train::Worker& w) {
  for (int i = 0; i < 3; ++i) {
    w.next_step();
    std::cout << "rank " << w.rank() << " step " << w.step() << std::endl;
    float x = 1;
    w.all_reduce_mean(std::span(&x, 1));
    w.report({.step = w.step()});
  }
  std::cout << "rank " << w.rank() << " ends" << std::endl;
}
/// Prints on both streams, its ranks too. The first attempt of trial 1 dies after many lines.
void prints(troupe::tune::Trial& t, Rate) {
  const bool dies = t.number() == 1 && t.attempt() == 1;
  for (int i = 0; i < (dies ? 1000 : 2); ++i)
    std::cout << "attempt " << t.attempt() << " line " << i << "\n";
  std::cerr << "a warning" << std::endl;
  if (dies) ::kill(::getpid(), SIGKILL);
  troupe::train::fit<rank_prints>(t, {.workers = 2});
  std::cout << "without an end";
}
/// Runs four trials that print, in a study or without a folder, and tasks beside them.
int tune_prints(troupe::Context& ctx, const std::string& folder) {
  namespace tune = troupe::tune;
  const auto space = tune::Space<Rate>{}.with(&Rate::rate, tune::uniform(0, 1));
  tune::Options<> options{.goal = tune::minimize,
                          .trials = 4,
                          .max_failures = 1,
                          .max_steps = 3,
                          .per_trial = {.cpus = 1, .workers = 2},
                          .show = false,
                          .results = folder};
  options.on_event = [&ctx, said = false](const tune::Event& event) mutable {
    if (event.kind == tune::Event::Kind::completed && !std::exchange(said, true))
      ctx.get(ctx.submit<says>(1));
  };
  const auto best = tune::optimize<prints, Rate>(ctx, space, options);
  for (const tune::TrialInfo& trial : best.board.trials)
    if (trial.state != tune::TrialState::completed) std::cout << trial.note << std::endl;
  ctx.get(ctx.submit<says>(2));
  return 0;
}

/// Keeps a named actor until stdin ends.
int hold(troupe::Context& ctx) {
  auto keeper = ctx.with({.name = "keeper"}).spawn<Keeper>();
  std::cout << ctx.get(keeper.call<&Keeper::keep>(7)) << std::endl;
  while (std::cin.get() != std::char_traits<char>::eof()) {
  }
  return 0;
}

/// Says that it runs by a file, and returns when another file is there or after 20 s.
int hold_until(const std::string& path) {
  std::ofstream(path + ".runs") << "yes";
  for (int i = 0; i < 2000 && access(path.c_str(), F_OK) != 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return 7;
}

/// Holds the node of this name by a task, and prints its result.
int hold_node(troupe::Context& ctx, const std::string& name, const std::string& path) {
  troupe::NodeId held;
  for (const auto& node : ctx.cluster().nodes)
    if (node.name == name) held = node.id;
  const auto there = ctx.with({.placement = troupe::Placement::on(held), .max_retries = 0});
  std::cout << ctx.get(there.submit<hold_until>(path)) << std::endl;
  return 0;
}

/// Waits for a call that does not end.
int wait_for_ever(troupe::Context& ctx) {
  struct Sleeper {
    int sleep() {
      ::pause();
      return 0;
    }
  };
  auto sleeper = ctx.with({.name = "sleeper"}).spawn<Sleeper>();
  return ctx.get(sleeper.call<&Sleeper::sleep>());
}

/// Spawns an actor whose constructor throws, and waits until stdin ends.
int crash(troupe::Context& ctx) {
  struct Crashes {
    Crashes() { std::_Exit(3); }
    int get() const { return 0; }
  };
  auto crashes = ctx.with({.name = "crashes", .max_restarts = -1}).spawn<Crashes>();
  std::cout << "spawned" << std::endl;
  while (std::cin.get() != std::char_traits<char>::eof()) {
  }
  return 0;
}

/// Keeps more objects than a node of 64 MiB can hold, until stdin ends.
int keep(troupe::Context& ctx) {
  std::vector<troupe::Ref<std::vector<double>>> refs;
  for (int i = 0; i < 80; ++i)
    refs.push_back(
        ctx.put(std::vector<double>((std::size_t{1} << 17) + 8 * static_cast<std::size_t>(i), i)));
  std::cout << refs.size() << std::endl;
  while (std::cin.get() != std::char_traits<char>::eof()) {
  }
  return 0;
}

using Doubles = std::vector<double>;

double total(const Doubles& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

struct Shelf {
  std::vector<troupe::Ref<Doubles>> held;
  std::size_t keep(const std::vector<troupe::Ref<Doubles>>& refs) {
    held = refs;
    return held.size();
  }
};

/// Keeps an object whose bytes every node has until a line comes, then waits until stdin ends.
int spread(troupe::Context& ctx) {
  std::vector<troupe::Ref<Doubles>> refs{ctx.put(Doubles(1 << 17, 1))};
  std::vector<troupe::Actor<Shelf>> shelves;
  for (const auto& node : ctx.cluster().nodes) {
    const auto there = ctx.with({.cpus = 0, .placement = troupe::Placement::on(node.id)});
    shelves.push_back(there.spawn<Shelf>());
    ctx.get(shelves.back().call<&Shelf::keep>(refs));
    ctx.get(there.submit<total>(refs.front()));
  }
  std::cout << "everywhere" << std::endl;
  std::cin.get();
  refs.clear();
  for (auto& shelf : shelves) ctx.get(shelf.call<&Shelf::keep>(refs));
  std::cout << "let go" << std::endl;
  std::cin.get();
  return 0;
}

/// Calls `call` for each number below `count`, from many threads, since each call waits for
/// control.
void for_each_of(std::size_t count, const std::function<void(std::size_t)>& call) {
  std::atomic<std::size_t> next = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 32; ++i)
    threads.emplace_back([&] {
      for (std::size_t number = next++; number < count; number = next++) call(number);
    });
  for (auto& thread : threads) thread.join();
}

/// Spawns `count` detached actors, of which the first `live` get the resource that each needs.
/// When a line comes, control has just died. Then it prints four numbers: the milliseconds until
/// control answered, the milliseconds until control had written something down, the duration of
/// the slowest call of a live actor meanwhile, and how many actors are known.
int crowd(troupe::Context& ctx, int count, int live) {
  using Clock = std::chrono::steady_clock;
  const auto ms_since = [](Clock::time_point begun) {
    return static_cast<int>(
        std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begun).count());
  };
  constexpr auto kBound = std::chrono::seconds(60);
  troupe::ActorOptions options;
  options.detached = true;
  options.resources = {{"seat", 1}};
  std::vector<troupe::Actor<Keeper>> actors, waiting(static_cast<std::size_t>(count - live));
  const auto spawn = [&ctx, &options](const std::string& name) {
    troupe::ActorOptions named = options;
    named.name = name;
    return ctx.with(named).spawn<Keeper>();
  };
  for (int i = 0; i < live; ++i) actors.push_back(spawn("live-" + std::to_string(i)));
  for (const auto& actor : actors) ctx.get(actor.call<&Keeper::keep>(0), kBound);
  for_each_of(waiting.size(),
              [&](std::size_t i) { waiting[i] = spawn("waits-" + std::to_string(i)); });
  std::cout << "spawned" << std::endl;
  std::cin.get();
  const auto begun = Clock::now();
  std::atomic<bool> over = false;
  int slowest = 0;
  std::thread load([&] {
    for (int round = 1; !over; ++round)
      for (const auto& actor : actors) {
        const auto asked = Clock::now();
        if (ctx.get(actor.call<&Keeper::keep>(1), kBound) != round) slowest = 1'000'000;
        slowest = std::max(slowest, ms_since(asked));
      }
  });
  if (ctx.find<Keeper>("nobody")) throw std::runtime_error("somebody is called nobody");
  const int answered = ms_since(begun);
  waiting.push_back(spawn("late"));  // returns when control has written the name down
  const int written = ms_since(begun);
  over = true;
  load.join();
  std::atomic<int> known = live;
  for_each_of(waiting.size() - 1, [&](std::size_t i) {
    known += ctx.find<Keeper>("waits-" + std::to_string(i)) ? 1 : 0;
  });
  std::cout << answered << " " << written << " " << slowest << " " << known << std::endl;
  std::cin.get();
  for (const auto* some : {&actors, &waiting})
    for (const auto& actor : *some) ctx.kill(actor);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  says::before_run(argc, argv);
  return troupe::run(argc, argv, [&](troupe::Context& ctx) {
    const std::string verb = argc > 1 ? argv[1] : "";
    if (verb == "sum") return sum(ctx, argc > 2 ? std::stoi(argv[2]) : 100);
    if (verb == "nodes") return nodes(ctx);
    if (verb == "fit") return fit(ctx);
    if (verb == "tune") return tune(ctx);
    if (verb == "tune_prints") return tune_prints(ctx, argc > 2 ? argv[2] : "");
    if (verb == "gang" && argc > 5)
      return gang(ctx, std::stoi(argv[2]), std::stol(argv[3]), std::stoi(argv[4]),
                  std::stoi(argv[5]));
    if (verb == "hold") return hold(ctx);
    if (verb == "hold_node") return hold_node(ctx, argv[2], argv[3]);
    if (verb == "wait") return wait_for_ever(ctx);
    if (verb == "crash") return crash(ctx);
    if (verb == "keep") return keep(ctx);
    if (verb == "spread") return spread(ctx);
    if (verb == "crowd") return crowd(ctx, std::stoi(argv[2]), std::stoi(argv[3]));
    if (verb == "soak") return soak::run(ctx, std::stoul(argv[2]), std::stod(argv[3]));
    if (const auto said = says::run(ctx, {argv + 1, argv + argc})) return *said;
    if (const auto planted = plants::run(ctx, {argv + 1, argv + argc})) return *planted;
    if (const auto planted = situations::run(ctx, {argv + 1, argv + argc})) return *planted;
    if (verb == "exit") return argc > 2 ? std::stoi(argv[2]) : 7;
    throw std::runtime_error("no such verb: " + verb);
  });
}
