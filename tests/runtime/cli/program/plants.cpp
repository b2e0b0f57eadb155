#include "plants.hpp"

#include <unistd.h>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <stdexcept>
#include <thread>
#include <utility>

namespace plants {
namespace {

/// Runs until the file is there.
int until_file(const std::string& file) {
  while (!std::filesystem::exists(file)) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return 1;
}
int next_link(int before) {
  return before + 1;
}
int on_a_gpu(int x) {
  return x;
}

/// An actor that waits for a value of its friend.
struct Friend {
  troupe::Ref<int> awaited;
  void know(troupe::Ref<int> ref) { awaited = std::move(ref); }
  troupe::Task<int> wait_for(troupe::Ref<int> ref) { co_return co_await ref; }
  /// Waits for what it knows when the gate opens.
  troupe::Task<int> wait_behind(troupe::Ref<int> gate) {
    const int open = co_await gate;
    co_return open + co_await awaited;
  }
};

struct Slow {
  int wait(const std::string& file) { return until_file(file); }
};

/// An actor whose later lives fail, for a reason that would clear a screen.
struct Broken {
  explicit Broken(const std::string& file) {
    if (std::filesystem::exists(file)) throw std::runtime_error("\x1b[2J its reason");
    std::ofstream(file) << "lived";
  }
  void die() { _exit(1); }
};

int tell_and_wait(troupe::Context& ctx, const std::string& what, const std::string& file) {
  std::cout << what << std::endl;
  return ctx.get(ctx.with({.cpus = 0.0}).submit<until_file>(file)) - 1;
}

/// `running` tasks that fill the cluster, `queued` more, a chain of `links` behind the first, and one
/// for a GPU that nobody has. Each runs until the file is there.
int tasks(troupe::Context& ctx, int running, int queued, int links, const std::string& file) {
  std::vector<troupe::Ref<int>> all;
  for (int i = 0; i < running + queued; ++i) all.push_back(ctx.submit<until_file>(file));
  troupe::Ref<int> last = all.front();
  for (int i = 0; i < links; ++i) last = ctx.submit<next_link>(last);
  const auto never = ctx.with({.gpus = 1}).submit<on_a_gpu>(1);
  std::cout << "planted" << std::endl;
  for (auto& one : all) ctx.get(one);
  return ctx.get(last) - 1 - links;
}

/// Two actors whose methods wait for each other for ever.
int friends(troupe::Context& ctx, const std::string& file) {
  const auto a = ctx.spawn<Friend>(), b = ctx.spawn<Friend>();
  const auto gate = ctx.submit<until_file>(file + "-gate");
  const auto of_a = a.call<&Friend::wait_behind>(gate);
  const auto of_b = b.call<&Friend::wait_for>(of_a);
  ctx.get(a.call<&Friend::know>(of_b));
  std::ofstream(file + "-gate") << "open";
  return tell_and_wait(ctx, "planted", file);
}

/// An actor with so many calls that have not ended.
int queue(troupe::Context& ctx, int calls, const std::string& file) {
  const auto slow = ctx.spawn<Slow>();
  std::vector<troupe::Ref<int>> all;
  for (int i = 0; i < calls; ++i) all.push_back(slow.call<&Slow::wait>(file));
  std::cout << "planted" << std::endl;
  for (auto& one : all) ctx.get(one);
  return 0;
}

int broken(troupe::Context& ctx, const std::string& file) {
  const auto actor = ctx.with({.max_restarts = -1}).spawn<Broken>(file + "-gate");
  try {
    ctx.get(actor.call<&Broken::die>());
  } catch (const troupe::ActorDied&) {
    return tell_and_wait(ctx, "planted", file);
  }
  return 1;
}

/// Large objects that the driver alone holds.
int keep_alone(troupe::Context& ctx, int objects, const std::string& file) {
  std::vector<troupe::Ref<std::vector<char>>> kept;
  for (int i = 0; i < objects; ++i) kept.push_back(ctx.put(std::vector<char>(1 << 16)));
  return tell_and_wait(ctx, "planted", file);
}

/// Waits until somebody stops the job, and then prints why the wait ended.
int until_stopped(troupe::Context& ctx, const std::string& file) {
  const auto never = ctx.submit<until_file>(file);
  std::cout << "planted" << std::endl;
  try {
    return ctx.get(never);
  } catch (const troupe::Cancelled& stopped) {
    std::cout << stopped.message() << std::endl;
    return 5;
  }
}

/// Neither waits for the cluster nor calls it.
int loop() {
  std::cout << "planted" << std::endl;
  for (;;) std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

/// Waits for its death the first time; says 7 the second time.
int dies_once(const std::string& file) {
  if (std::filesystem::exists(file)) return 7;
  std::cout << "\x1b]0;evil\x07 its last line" << std::endl;
  std::ofstream(file + ".tmp") << getpid() << std::endl;
  std::filesystem::rename(file + ".tmp", file);
  for (;;) std::this_thread::sleep_for(std::chrono::milliseconds(5));
}
int death(troupe::Context& ctx, const std::string& file) {
  return ctx.get(ctx.submit<dies_once>(file)) - 7;
}

}  // namespace

std::optional<int> run(troupe::Context& ctx, const std::vector<std::string>& arguments) {
  const std::string verb = arguments.empty() ? "" : arguments[0];
  const auto number = [&](std::size_t i) { return std::stoi(arguments.at(i)); };
  if (verb == "plant_tasks") return tasks(ctx, number(1), number(2), number(3), arguments.at(4));
  if (verb == "plant_friends") return friends(ctx, arguments.at(1));
  if (verb == "plant_queue") return queue(ctx, number(1), arguments.at(2));
  if (verb == "plant_objects") return keep_alone(ctx, number(1), arguments.at(2));
  if (verb == "plant_broken") return broken(ctx, arguments.at(1));
  if (verb == "plant_wait") return until_stopped(ctx, arguments.at(1));
  if (verb == "plant_loop") return loop();
  if (verb == "plant_death") return death(ctx, arguments.at(1));
  return std::nullopt;
}

}  // namespace plants
