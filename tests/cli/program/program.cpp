// What the tests of the command line run on clusters.
#include "soak.hpp"
#include "troupe/troupe.hpp"

#include <chrono>
#include <cstdio>
#include <iostream>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

int square(int x) {
  return x * x;
}

/// Slow enough that one node alone is not quick enough for all of them.
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

int nodes(troupe::Context& ctx) {
  std::vector<troupe::Ref<std::string>> calls;
  for (int i = 0; i < 24; ++i) calls.push_back(ctx.submit<where>(i));
  std::set<std::string> seen;
  for (auto& call : calls) seen.insert(ctx.get(call));
  std::cout << seen.size() << "\n";
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

/// Keeps more objects than fit a node of 64 MiB until stdin ends.
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

/// Keeps an object whose bytes every node has, until a line comes; then until stdin ends.
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

}  // namespace

int main(int argc, char** argv) {
  return troupe::run(argc, argv, [&](troupe::Context& ctx) {
    const std::string verb = argc > 1 ? argv[1] : "";
    if (verb == "sum") return sum(ctx, argc > 2 ? std::stoi(argv[2]) : 100);
    if (verb == "nodes") return nodes(ctx);
    if (verb == "hold") return hold(ctx);
    if (verb == "keep") return keep(ctx);
    if (verb == "spread") return spread(ctx);
    if (verb == "soak") return soak::run(ctx, std::stoul(argv[2]), std::stod(argv[3]));
    if (verb == "exit") return argc > 2 ? std::stoi(argv[2]) : 7;
    throw std::runtime_error("no such verb: " + verb);
  });
}
