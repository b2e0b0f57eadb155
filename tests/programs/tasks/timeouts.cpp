// Proves that a timeout says what the value waits for.
#include "tests/programs/program.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <string>

namespace tasks_timeouts {
namespace {

using namespace std::chrono_literals;
using programs::Program;
using troupe::Context;
using troupe::Ref;

int same(int x) {
  return x;
}
int add(int a, int b) {
  return a + b;
}
/// Waits until the driver opens the pipe.
int hold(std::string pipe) {
  char byte = 0;
  const int in = ::open(pipe.c_str(), O_RDONLY);
  const bool passed = ::read(in, &byte, 1) == 1;
  ::close(in);
  return passed ? 1 : 0;
}
struct Gate {
  Gate() {
    ::mkfifo(path.c_str(), 0600);
    pipe = ::open(path.c_str(), O_RDWR);
  }
  ~Gate() {
    ::close(pipe);
    ::unlink(path.c_str());
  }
  void open(int times = 1) const {
    for (int i = 0; i < times; ++i) (void)!::write(pipe, "x", 1);
  }
  std::string path = "/tmp/troupe_timeouts_" + std::to_string(::getpid());
  int pipe = -1;
};
struct Player {
  int play(std::string pipe) { return hold(std::move(pipe)); }
  int rest() { return 7; }
};

template <class T>
std::string why(Context& ctx, const Ref<T>& ref) {
  const auto value = ctx.try_get(ref, 20ms);
  return value.ok() ? "a value" : value.error().message();
}
void expect(Context& ctx, const Ref<int>& ref, std::initializer_list<const char*> parts) {
  const std::string text = why(ctx, ref);
  for (const char* part : parts)
    if (text.find(part) == std::string::npos) {
      std::cout << "not '" << part << "' in: " << text << '\n';
      return;
    }
  std::cout << "told\n";
}

void nobody_has_it(Context& ctx) {
  const auto gpus = ctx.with({.gpus = 64});
  const Ref<int> head = gpus.submit<same>(1);
  expect(ctx, head, {"no result after", "same", "node-", "needs 64 GPU, no node has more than"});
  const Ref<int> sum = ctx.submit<add>(head, 2), again = ctx.submit<add>(sum, 3);
  expect(ctx, again,
         {"add", "waits for an argument", "same", "needs 64 GPU, no node has more than"});
}
/// Proves it for demands that nobody can meet, and for chains behind them.
const Program infeasible{"timeouts_say_what_no_node_has",
                         {.expect = "told\ntold\n", .seconds = 20, .nodes = 3},
                         nobody_has_it};

void others_have_it(Context& ctx) {
  const Gate gate;
  std::vector<Ref<int>> holders;
  const auto info = ctx.cluster();
  for (const auto& node : info.nodes)
    for (int i = 0; i < static_cast<int>(node.cpus); ++i)
      holders.push_back(
          ctx.with({.placement = troupe::Placement::on(node.id)}).submit<hold>(gate.path));
  const double most = info.nodes.front().cpus;
  const Ref<int> waits = ctx.with({.cpus = most}).submit<same>(1);
  expect(ctx, waits, {"same", " at ", "waits for"});
  expect(ctx, holders.front(), {"hold"});
  auto late = ctx.with(troupe::ActorOptions{.cpus = most}).spawn<Player>();
  const Ref<int> first = late.call<&Player::rest>();
  expect(ctx, first, {"rest", "waits for its actor, "});
  if (why(ctx, first).find("does not live yet") != std::string::npos) std::cout << "no reason\n";
  gate.open(static_cast<int>(holders.size()));
  for (const Ref<int>& holder : holders) ctx.get(holder);  // each has read its byte
  ctx.get(waits);
  ctx.get(first);
  auto player = ctx.spawn<Player>();
  ctx.get(player.call<&Player::rest>());
  const Ref<int> plays = player.call<&Player::play>(gate.path);
  const Ref<int> rests = player.call<&Player::rest>();
  expect(ctx, plays, {"play"});
  expect(ctx, rests, {"rest", "behind 1 earlier call"});
  gate.open();
  std::cout << ctx.get(rests) << '\n';
}
/// Proves it for what others have, and for calls that run or wait behind others.
const Program busy{"timeouts_say_what_others_have",
                   {.expect = "told\ntold\ntold\ntold\ntold\n7\n", .seconds = 20},
                   others_have_it};

}  // namespace
}  // namespace tasks_timeouts
