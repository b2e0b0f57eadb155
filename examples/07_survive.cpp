// Computes a checksum twice. During the second run it kills a node and then the control process.
// The checksum is the same.
#include "support/processes.hpp"
#include "troupe/troupe.hpp"

#include <cstdio>
#include <exception>
#include <functional>

std::uint64_t mix(std::uint64_t x) {  // about a millisecond of arithmetic
  for (int i = 0; i < 500'000; ++i) x = (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9u + 1;
  return x;
}
struct Sealer {
  std::uint64_t key = 0;
  std::uint64_t seal(std::uint64_t x) const { return x * (2 * key + 1); }
};

constexpr std::size_t kTasks = 2000, kActors = 6;

// Calls an actor, and calls it again when it died or could not be reached. Such a call may have run
// already. Only the program can know that this one may run twice.
std::uint64_t sealed(troupe::Context& ctx, const troupe::Actor<Sealer>& sealer, std::uint64_t x) {
  for (;;) try {
      return ctx.get(sealer.call<&Sealer::seal>(x), std::chrono::seconds(20));
    } catch (const troupe::ActorDied& e) {
      if (!e.maybe_executed()) throw;
      std::printf("a call is made again: %s\n", e.what());
    } catch (const troupe::ActorUnavailable& e) {
      std::printf("a call is made again: %s\n", e.what());
    }
}

std::uint64_t work(troupe::Context& ctx, const std::function<void(std::size_t)>& watch) {
  std::vector<troupe::Actor<Sealer>> sealers;
  for (std::size_t i = 0; i < kActors; ++i)
    sealers.push_back(
        ctx.with(troupe::ActorOptions{.placement = troupe::Placement::spread, .max_restarts = -1})
            .spawn<Sealer>(i));
  std::vector<troupe::Ref<std::uint64_t>> parts;
  for (std::size_t i = 0; i < kTasks; ++i) parts.push_back(ctx.submit<mix>(i));
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < kTasks; ++i) {
    watch(i);
    sum = sum * 31 + sealed(ctx, sealers[i % kActors], ctx.get(parts[i]));
  }
  return sum;
}

int main(int argc, char** argv) try {
  troupe::enter(argc, argv);
  troupe::Session session({.nodes = 3});
  troupe::Context ctx = session.context();
  const std::uint64_t calm = work(ctx, [](std::size_t) {});
  std::printf("checksum %016lx of %zu tasks and %zu actors on three nodes\n", calm, kTasks,
              kActors);
  const int agent = processes::agent_of(ctx, ctx.cluster().nodes.back().id);
  const std::uint64_t rough = work(ctx, [&](std::size_t done) {
    if (done == kTasks / 3 && processes::kill_now(agent)) std::puts("killed: a node");
    if (done == kTasks / 2 && processes::kill_now(processes::control()))
      std::puts("killed: control");
  });
  std::printf("checksum %016lx with the kills: %s\n", rough, rough == calm ? "the same" : "WRONG");
  return rough == calm ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
  return 1;
}
