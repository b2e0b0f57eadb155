// Proves the limits on short lives: constructors that throw or crash, and processes that die at
// once.
#include "tests/programs/program.hpp"

#include <sys/stat.h>
#include <unistd.h>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <thread>

namespace restarts {
namespace {

using namespace std::chrono_literals;
using programs::Program;
using troupe::ActorOptions;
using troupe::Context;

/// A file whose size is the number of lives.
class Lives {
 public:
  explicit Lives(const char* what)
      : path_("/tmp/" + std::to_string(::getpid()) + "." + what + ".lives") {
    std::remove(path_.c_str());
  }
  ~Lives() { std::remove(path_.c_str()); }
  const std::string& path() const { return path_; }
  static long count(const std::string& path) {
    struct stat file{};
    return ::stat(path.c_str(), &file) == 0 ? static_cast<long>(file.st_size) : 0;
  }
  long count() const { return count(path_); }
  static void add(const std::string& path) { std::ofstream(path, std::ios::app) << '.'; }

 private:
  std::string path_;
};

bool says(const troupe::Error& error, const char* words) {
  return std::string(error.what()).find(words) != std::string::npos;
}

// --- the constructor crashes ---

struct Crashes {
  explicit Crashes(const std::string& lives) {
    Lives::add(lives);
    ::kill(::getpid(), SIGKILL);
  }
  int fine() { return 1; }
};
void crash_for_ever(Context& ctx) {
  const Lives lives("crashes");
  auto one = ctx.with(ActorOptions{.max_restarts = -1}).spawn<Crashes>(lives.path());
  try {
    ctx.get(one.call<&Crashes::fine>(), 3s);
  } catch (const troupe::TimedOut& e) {
    std::cout << "TimedOut " << says(e, "Crashes")
              << says(e, "life, which ended in its constructor") << says(e, "next attempt in")
              << (e.cause() != nullptr);
  }
  std::cout << (lives.count() >= 3 && lives.count() <= 9 ? " few lives" : " too many or too few")
            << '\n';
  if (lives.count() > 9) std::cerr << lives.count() << " lives\n";
}
/// Proves that lives which end in a crashing constructor are paced, and that a timeout names the
/// reason.
const Program crash{
    "a_constructor_that_always_crashes", {.expect = "TimedOut 1111 few lives\n"}, crash_for_ever};

// --- the process dies right after ---

struct DiesSoon {
  explicit DiesSoon(const std::string& lives) {
    Lives::add(lives);
    std::thread([] {
      std::this_thread::sleep_for(3ms);
      ::_exit(1);
    }).detach();
  }
  int slow() {
    std::this_thread::sleep_for(10s);
    return 1;
  }
};
void die_soon(Context& ctx) {
  const Lives lives("dies_soon");
  auto one = ctx.with(ActorOptions{.max_restarts = -1}).spawn<DiesSoon>(lives.path());
  std::this_thread::sleep_for(3s);
  std::cout << (lives.count() >= 3 && lives.count() <= 9 ? "few lives" : "too many or too few")
            << '\n';
}
/// Proves that lives which end right after their constructor are paced.
const Program soon{"an_actor_that_dies_right_after_birth", {.expect = "few lives\n"}, die_soon};

// --- the constructor throws ---

struct Throws {
  Throws(const std::string& lives, long from, long to) {
    const long before = Lives::count(lives);
    Lives::add(lives);
    if (before >= from && before < to) throw std::domain_error("the disk is not there");
  }
  int fine() { return 1; }
  void dies() { ::_exit(4); }
};
void throw_at_first(Context& ctx) {
  // The first life decides whether the actor can be made at all.
  const Lives lives("throws_at_first");
  auto one = ctx.with(ActorOptions{.max_restarts = -1}).spawn<Throws>(lives.path(), 0L, 100L);
  try {
    ctx.get(one.call<&Throws::fine>());
  } catch (const troupe::ActorDied& e) {
    std::cout << "ActorDied " << says(e, "the disk is not there") << e.maybe_executed();
  }
  std::cout << ' ' << lives.count() << '\n';
}
/// Proves that an actor whose first constructor throws is not restarted.
const Program at_first{
    "a_first_constructor_that_throws", {.expect = "ActorDied 10 1\n"}, throw_at_first};

void throw_later(Context& ctx) {
  // Later lives may fail for passing reasons. Five lives fail here, and the waiting calls are
  // still answered.
  const Lives lives("throws_later");
  auto one = ctx.with(ActorOptions{.max_restarts = -1}).spawn<Throws>(lives.path(), 1L, 6L);
  std::cout << ctx.get(one.call<&Throws::fine>());
  one.tell<&Throws::dies>();
  for (int i = 0; i < 2000 && lives.count() < 3; ++i) std::this_thread::sleep_for(2ms);
  auto waits = one.call<&Throws::fine>();
  try {
    ctx.get(waits, 50ms);
  } catch (const troupe::TimedOut& e) {
    std::cout << " TimedOut " << says(e, "the disk is not there");
  }
  std::cout << ' ' << ctx.get(waits) << ' ' << lives.count() << '\n';
}
/// Proves that later constructors may throw, and that waiting calls are answered in the first
/// good life.
const Program later{"later_constructors_that_throw", {.expect = "1 TimedOut 1 1 7\n"}, throw_later};

void throw_to_the_limit(Context& ctx) {
  const Lives lives("throws_to_the_limit");
  auto one = ctx.with(ActorOptions{.max_restarts = 4}).spawn<Throws>(lives.path(), 1L, 100L);
  std::cout << ctx.get(one.call<&Throws::fine>());
  one.tell<&Throws::dies>();
  try {
    ctx.get(one.call<&Throws::fine>());
    ctx.get(one.call<&Throws::fine>());
  } catch (const troupe::ActorDied& e) {
    std::cout << " ActorDied";
  }
  try {
    ctx.get(one.call<&Throws::fine>());
  } catch (const troupe::ActorDied& e) {
    std::cout << ' ' << says(e, "the disk is not there") << says(e, "4 restarts")
              << e.maybe_executed();
  }
  std::cout << ' ' << lives.count() << '\n';
}
/// Proves that restarts which end in a throwing constructor count towards max_restarts.
const Program limit{
    "constructors_that_throw_to_the_limit", {.expect = "1 ActorDied 110 5\n"}, throw_to_the_limit};

}  // namespace
}  // namespace restarts
