// The driver that the suite `operate` runs on a cluster.
//   operate_peer lines WRITERS LINES FOLDER    writers wait for each other, then each prints its lines
//   operate_peer waiting CPUS TASKS SUBMITS FOLDER
//                                              TASKS wait; then SUBMITS more for each line of stdin
#include "troupe/troupe.hpp"

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

namespace fs = std::filesystem;

std::int64_t unix_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

/// The bound of every wait, like that of the suite.
constexpr std::chrono::seconds kBound{60};

void await(const fs::path& file, std::chrono::seconds bound = kBound) {
  const auto until = std::chrono::steady_clock::now() + bound;
  while (!fs::exists(file)) {
    if (std::chrono::steady_clock::now() > until)
      throw std::runtime_error("the file " + file.string() + " was not made within " +
                               std::to_string(bound.count()) + " s");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

int write_lines(int writer, int count, const std::string& folder) {
  const fs::path here(folder);
  std::ofstream(here / ("ready-" + std::to_string(writer))) << writer;
  await(here / "go");
  for (int i = 0; i < count; ++i)
    std::printf("writer %d line %d of a log that somebody reads\n", writer, i);
  return count;
}

/// Prints the time at which the writers begin, in a file of the folder.
int lines(troupe::Context& ctx, int writers, int count, const std::string& folder) {
  const fs::path here(folder);
  std::vector<troupe::Ref<int>> done;
  for (int i = 0; i < writers; ++i)
    done.push_back(ctx.with({.max_retries = 0}).submit<write_lines>(i, count, folder));
  for (int i = 0; i < writers; ++i) await(here / ("ready-" + std::to_string(i)));
  std::ofstream(here / "begun") << unix_ns();
  std::ofstream(here / "go") << "go";
  ctx.get(done, kBound);  // its error names the task
  return 0;
}

int until_go(const std::string& folder) {
  const fs::path here(folder);
  std::ofstream(here / "runs") << "yes";
  await(here / "go", 5 * kBound);  // behind the waits of the suite
  return 1;
}
int nothing(int x) {
  return x;
}

/// Fills the CPUs, lets tasks wait, and prints the rate of further submits for each line.
int waiting(troupe::Context& ctx, int cpus, int tasks, int submits, const std::string& folder) {
  std::vector<troupe::Ref<int>> all;
  const auto first = ctx.with({.cpus = cpus}).submit<until_go>(folder);
  await(fs::path(folder) / "runs");
  for (int i = 0; i < tasks; ++i) all.push_back(ctx.submit<nothing>(i));
  std::cout << "waiting" << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    const auto begun = std::chrono::steady_clock::now();
    for (int i = 0; i < submits; ++i) all.push_back(ctx.submit<nothing>(i));
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
    std::cout << submits / took.count() << std::endl;
  }
  std::_Exit(0);  // nobody needs the tasks
}

}  // namespace

int main(int argc, char** argv) {
  return troupe::run(argc, argv, [&](troupe::Context& ctx) {
    const std::vector<std::string> a(argv + 1, argv + argc);
    const std::string verb = a.empty() ? "" : a[0];
    if (verb == "lines") return lines(ctx, std::stoi(a.at(1)), std::stoi(a.at(2)), a.at(3));
    if (verb == "waiting")
      return waiting(ctx, std::stoi(a.at(1)), std::stoi(a.at(2)), std::stoi(a.at(3)), a.at(4));
    std::cerr << "operate_peer knows lines and waiting\n";
    return 2;
  });
}
