#include "says.hpp"

#include <unistd.h>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <map>
#include <mutex>
#include <thread>

namespace says {
namespace {

int one_line(int x) {
  std::printf("step %d\n", x);
  return x;
}

/// Writes numbered lines, each of some length, as fast as they go.
int many_lines(int writer, int count) {
  const std::string rest(20 + static_cast<std::size_t>(writer) * 7,
                         static_cast<char>('a' + writer));
  for (int i = 0; i < count; ++i) std::printf("w%d %d %s\n", writer, i, rest.c_str());
  return ::getpid();
}

int lines_then_death(int count) {
  for (int i = 0; i < count; ++i) std::printf("last %d\n", i);
  ::kill(::getpid(), SIGKILL);
  return 0;
}

int both_streams(int) {
  std::cout << "to out" << std::endl;
  std::cerr << "to err" << std::endl;
  return 0;
}

int strange_bytes(int) {
  std::printf("title \x1b]0;owned\x07 right\xe2\x80\xaeleft\n");
  std::fflush(stdout);
  return 0;
}

int kilobytes(int count) {
  const std::string line(1023, 'x');
  for (int i = 0; i < count; ++i) std::puts(line.c_str());
  return 0;
}

struct Speaker {
  int say(int x) {
    std::cout << "actor says " << x << "\n";
    return x;
  }
};

troupe::TaskOptions alone() {
  return {.max_retries = 0, .isolated = true};
}

int write_many(troupe::Context& ctx, int writers, int lines, bool speaks_itself) {
  std::vector<troupe::Ref<int>> done;
  for (int i = 0; i < writers; ++i) done.push_back(ctx.with(alone()).submit<many_lines>(i, lines));
  for (int i = 0; speaks_itself && i < lines; ++i) {
    std::cout << "driver " << i;
    std::cout << " goes on";
    std::cout << " to here\n";
  }
  for (auto& ref : done) ctx.get(ref);
  return 0;
}

int take_lines(troupe::Context& ctx) {
  std::mutex mutex;
  std::map<std::string, int> taken;
  ctx.on_log([&](const troupe::LogLine& line) {
    const std::lock_guard lock(mutex);
    if (line.pid > 0 && line.node.starts_with("node-") && line.time_unix_ns > 0)
      ++taken[line.name + ": " + line.text];
  });
  ctx.get(ctx.with(alone()).submit<one_line>(1));
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  for (bool has = false; !has && std::chrono::steady_clock::now() < until;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    const std::lock_guard lock(mutex);
    has = !taken.empty();
  }
  ctx.on_log({});
  for (const auto& [line, count] : taken) std::cout << "took " << count << " " << line << "\n";
  ctx.get(ctx.with(alone()).submit<one_line>(2));
  return 0;
}

}  // namespace

std::optional<int> run(troupe::Context& ctx, const std::vector<std::string>& arguments) {
  const std::string verb = arguments.empty() ? "" : arguments[0];
  const auto number = [&](std::size_t i) { return std::stoi(arguments.at(i)); };
  if (verb == "one_line" || verb == "early")
    return ctx.get(ctx.with(alone()).submit<one_line>(3)) - 3;
  if (verb == "many_lines") return write_many(ctx, number(1), number(2), arguments.size() > 3);
  if (verb == "streams") return ctx.get(ctx.with(alone()).submit<both_streams>(0));
  if (verb == "strange") return ctx.get(ctx.with(alone()).submit<strange_bytes>(0));
  if (verb == "kilobytes") return ctx.get(ctx.with(alone()).submit<kilobytes>(number(1)));
  if (verb == "take_lines") return take_lines(ctx);
  if (verb == "actor") {
    auto speaker = ctx.spawn<Speaker>();
    return ctx.get(speaker.call<&Speaker::say>(7)) - 7;
  }
  if (verb == "death") {
    const auto gone = ctx.try_get(ctx.with(alone()).submit<lines_then_death>(number(1)));
    return gone ? 1 : 0;
  }
  return std::nullopt;
}

void before_run(int argc, char** argv) {
  if (argc < 2 || std::string(argv[1]) != "early" || std::getenv("TROUPE_TEST_DRIVER") != nullptr)
    return;
  std::fprintf(stderr, "no licence for this host\n");
  std::exit(3);
}

}  // namespace says
