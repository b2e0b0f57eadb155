#include "situations.hpp"

#include <sys/resource.h>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <stdexcept>
#include <thread>
#include <tuple>
#include <utility>

namespace situations {
namespace {

using troupe::Ref;

void await(const std::string& file) {
  while (!std::filesystem::exists(file)) std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

int fills_a_cpu(const std::string& file) {
  await(file);
  return 1;
}
int waits_for_room(int x) {
  return x;
}
int needs_a_licence(int x) {
  return x;
}
int goes_on_behind(int before) {
  return before + 1;
}

int holds_memory(const std::string& file) {
  const std::vector<char> held(std::size_t{96} << 20, 1);
  await(file);
  return held[held.size() / 2];
}

[[gnu::noinline]] int spins_here(const std::string& file) {
  volatile int turns = 0;
  while (!std::filesystem::exists(file))
    for (int i = 0; i < 1'000'000; ++i) turns = i;
  return turns >= 0 ? 1 : 0;
}
int burns_time(const std::string& file) {
  return spins_here(file);
}

/// An actor that stays in its method.
struct Patient {
  int waits_in_a_method(const std::string& file) {
    await(file);
    return 1;
  }
};
/// An actor that stays in its constructor.
struct Slow {
  explicit Slow(const std::string& file) { await(file); }
  int is_there() const { return 1; }
};

/// What one process leaves to another: it stays the owner.
struct Left {
  Ref<int> work;
  [[maybe_unused]] friend auto fields(Left& left) { return std::tie(left.work); }
  [[maybe_unused]] friend auto fields(const Left& left) { return std::tie(left.work); }
};
int works_for_another(const std::string& file) {
  std::ofstream(file + "-left") << "runs";
  await(file);
  return 1;
}
Left leaves_work(troupe::Context& ctx, const std::string& file) {
  return {ctx.submit<works_for_another>(file)};
}

int* volatile g_nowhere = nullptr;
[[gnu::noinline]] int falls_here(int x) {
  std::printf("about to fall with %d\n", x);
  *g_nowhere = x;
  return x;
}
int falls(int x) {
  const rlimit no_core{};
  setrlimit(RLIMIT_CORE, &no_core);
  return falls_here(x);
}

troupe::Placement on(troupe::Context& ctx, const std::string& name) {
  for (const auto& node : ctx.cluster().nodes)
    if (node.name == name) return troupe::Placement::on(node.id);
  throw std::runtime_error("no node has the name " + name);
}

/// All at once, on three nodes with two CPUs each, until the file is there. Six tasks run, and every
/// other one waits.
int all(troupe::Context& ctx, const std::string& file) {
  const auto hog = ctx.submit<holds_memory>(file);
  const auto burner = ctx.submit<burns_time>(file);
  const auto patient = ctx.with({.name = "patient"}).spawn<Patient>();
  const auto in_method = patient.call<&Patient::waits_in_a_method>(file);
  const auto slow = ctx.spawn<Slow>(file);
  const auto homeless = ctx.with({.name = "homeless", .resources = {{"seat", 1}}}).spawn<Patient>();
  const auto licensed = ctx.with({.resources = {{"licence", 1}}}).submit<needs_a_licence>(1);
  const Left left = ctx.get(ctx.with({.placement = on(ctx, "node-2")}).submit<leaves_work>(file));
  await(file + "-left");
  const auto behind = ctx.submit<goes_on_behind>(left.work);
  std::vector<Ref<int>> full;
  for (int i = 0; i < 6; ++i) full.push_back(ctx.submit<fills_a_cpu>(file));
  const auto last = ctx.submit<waits_for_room>(1);
  std::cout << "planted" << std::endl;
  int sum = ctx.get(hog) + ctx.get(burner) + ctx.get(in_method) + ctx.get(last);
  for (auto& one : full) sum += ctx.get(one);
  sum += ctx.get(slow.call<&Slow::is_there>());
  try {
    sum += ctx.get(behind);
  } catch (const troupe::Error& error) {
    std::cout << "behind: " << error.what() << std::endl;
    sum += 2;
  }
  return sum - 13;
}

/// A task that prints and falls on another node. Prints what its error says.
int fall(troupe::Context& ctx) {
  try {
    ctx.get(ctx.with({.placement = on(ctx, "node-1"), .max_retries = 0, .isolated = true})
                .submit<falls>(7));
  } catch (const troupe::Error& error) {
    std::cout << "lines: " << error.last_lines() << "stack: " << error.remote_stack() << std::endl;
    return 0;
  }
  return 1;
}

}  // namespace

std::optional<int> run(troupe::Context& ctx, const std::vector<std::string>& arguments) {
  const std::string verb = arguments.empty() ? "" : arguments[0];
  if (verb == "plant_all") return all(ctx, arguments.at(1));
  if (verb == "fall") return fall(ctx);
  return std::nullopt;
}

}  // namespace situations
