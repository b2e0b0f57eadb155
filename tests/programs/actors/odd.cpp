// Proves unusual lives, messages and waits of actors, such as those in bug reports about other
// runtimes.
#include "tests/programs/program.hpp"

#include <unistd.h>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>

namespace odd_actors {
namespace {

using namespace std::chrono_literals;
using programs::Program;
using troupe::Actor;
using troupe::ActorContext;
using troupe::ActorOptions;
using troupe::Context;
using troupe::Ref;
using troupe::Task;

/// A file to which the actors of a program append words.
class Words {
 public:
  explicit Words(const char* what) : path_("/tmp/" + std::to_string(::getpid()) + "." + what) {
    std::remove(path_.c_str());
  }
  ~Words() { std::remove(path_.c_str()); }
  const std::string& path() const { return path_; }
  std::string text() const {
    std::string all;
    std::ifstream in(path_);
    for (std::string word; in >> word;) all += (all.empty() ? "" : " ") + word;
    return all;
  }
  bool comes(const std::string& word) const {
    for (int i = 0; i < 4000; ++i) {
      if (text().find(word) != std::string::npos) return true;
      std::this_thread::sleep_for(2ms);
    }
    return false;
  }
  static void add(const std::string& path, const std::string& word) {
    std::ofstream(path, std::ios::app) << word << '\n';
  }

 private:
  std::string path_;
};

template <class T>
std::string end_of(Context& ctx, const Ref<T>& ref, troupe::Duration timeout = 20s) {
  const troupe::Result<T> result = ctx.try_get(ref, timeout);
  if (result) return "ok";
  const troupe::Error& e = result.error();
  return std::string(name_of(e.code())) + (e.maybe_executed() ? "?" : "");
}

// --- a life ends with many calls under way ---

struct Fragile {
  int n = 0;
  int add(int k) { return n += k; }
  int crash() { std::abort(); }
  int exit() { std::exit(0); }
  int kills_itself() { return ::raise(SIGKILL); }
};
void crash_in_the_middle(Context& ctx) {
  auto one = ctx.with(ActorOptions{.max_restarts = 1}).spawn<Fragile>();
  std::vector<Ref<int>> calls;
  for (int i = 0; i < 100; ++i)
    calls.push_back(i == 40 ? one.call<&Fragile::crash>() : one.call<&Fragile::add>(1));
  std::string ends;
  int values = 0;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const auto value = ctx.try_get(calls[i], 20s);
    if (!value) ends += std::to_string(i) + ' ' + std::string(name_of(value.error().code()));
    if (value && i == 39) values += *value;
    if (value && i == 99) values += *value;  // the new life counts from 0
  }
  std::cout << ends << ' ' << values << '\n';
}
/// Proves that a crash ends the crashing call only. The calls behind it run in the next life.
const Program middle{
    "a_crash_among_100_calls", {.expect = "40 actor_died 99\n"}, crash_in_the_middle};

void ends_itself(Context& ctx) {
  for (const bool by_signal : {false, true}) {
    auto one = ctx.spawn<Fragile>();
    auto before = one.call<&Fragile::add>(3);
    auto end = by_signal ? one.call<&Fragile::kills_itself>() : one.call<&Fragile::exit>();
    std::vector<Ref<int>> behind;
    for (int i = 0; i < 5; ++i) behind.push_back(one.call<&Fragile::add>(1));
    std::cout << ctx.get(before) << ' ' << end_of(ctx, end);
    for (const auto& ref : behind) std::cout << ' ' << end_of(ctx, ref);
    std::cout << '\n';
  }
}
/// Proves that calls queued behind an actor's own end are reported as not executed.
const Program exits{"an_actor_ends_itself_with_calls_queued",
                    {.expect = "3 actor_died? actor_died actor_died actor_died actor_died "
                               "actor_died\n3 actor_died? actor_died actor_died actor_died "
                               "actor_died actor_died\n"},
                    ends_itself};

// --- killed while it is made ---

struct SlowToMake {
  SlowToMake(const std::string& words, int ms) {
    Words::add(words, "begins");
    std::this_thread::sleep_for(std::chrono::milliseconds(ms));
    Words::add(words, "made");
  }
  int fine() { return 7; }
};
void killed_while_made(Context& ctx) {
  const Words words("killed_while_made");
  auto one = ctx.spawn<SlowToMake>(words.path(), 60'000);
  auto call = one.call<&SlowToMake::fine>();
  std::cout << words.comes("begins");
  ctx.kill(one);
  std::cout << ' ' << end_of(ctx, call) << ' ' << end_of(ctx, one.call<&SlowToMake::fine>());
  const Words again("killed_while_made_again");
  auto two = ctx.with(ActorOptions{.max_restarts = 1}).spawn<SlowToMake>(again.path(), 500);
  auto waits = two.call<&SlowToMake::fine>();
  std::cout << ' ' << again.comes("begins");
  ctx.kill(two, true);
  std::cout << ' ' << ctx.get(waits) << ' ' << ctx.get(two.call<&SlowToMake::fine>()) << '\n';
}
/// Proves that an actor can be killed while it is made, with and without a restart.
const Program made{"killed_in_its_constructor",
                   {.expect = "1 actor_died actor_died 1 7 7\n", .seconds = 20},
                   killed_while_made};

// --- a handle that goes through many hands ---

struct Target {
  explicit Target(std::string words) : words_(std::move(words)) {}
  ~Target() { Words::add(words_, "destroyed-after-" + std::to_string(n_)); }
  int add(int k) { return n_ += k; }
  std::string words_;
  int n_ = 0;
};
struct Relay {
  Actor<Target> kept;
  Task<int> pass(Actor<Target> target, std::vector<Actor<Relay>> rest) {
    kept = target;
    if (rest.empty()) {
      auto added = kept.call<&Target::add>(1);
      co_return co_await added;
    }
    const Actor<Relay> next = rest.back();
    rest.pop_back();
    auto passed = next.call<&Relay::pass>(target, rest);
    co_return co_await passed;
  }
  void add() { kept.tell<&Target::add>(10); }
  void drop() { kept = {}; }
};
void through_three(Context& ctx) {
  const Words words("through_three");
  std::vector<Actor<Relay>> relays;
  for (int i = 0; i < 3; ++i) relays.push_back(ctx.spawn<Relay>());
  auto target = ctx.spawn<Target>(words.path());
  auto passed =
      relays[2].call<&Relay::pass>(target, std::vector<Actor<Relay>>{relays[0], relays[1]});
  target = {};
  std::cout << ctx.get(passed);
  ctx.get(relays[1].call<&Relay::drop>());
  ctx.get(relays[2].call<&Relay::drop>());
  std::this_thread::sleep_for(50ms);
  std::cout << words.text() << ' ';
  relays[0].tell<&Relay::add>();
  relays[0].tell<&Relay::drop>();  // the call before it runs first
  std::cout << words.comes("destroyed") << ' ' << words.text() << '\n';
}
/// Proves that an actor ends once the last of three actors drops its handle.
const Program hands{"a_handle_through_three_actors_and_dropped",
                    {.expect = "1 1 destroyed-after-11\n", .seconds = 20},
                    through_three};

// --- exceptions that cannot be copied ---

struct Uncopied : std::exception {
  explicit Uncopied(std::string words) : text(std::make_unique<std::string>(std::move(words))) {}
  Uncopied(Uncopied&&) = default;
  Uncopied(const Uncopied&) = delete;
  const char* what() const noexcept override { return text->c_str(); }
  std::unique_ptr<std::string> text;
};
struct Nested : std::runtime_error {
  Nested() : std::runtime_error("outer") {}
};
struct Thrower {
  int moves() { throw Uncopied("only moved"); }
  int nests() {
    try {
      throw Uncopied("inner");
    } catch (...) {
      std::throw_with_nested(Nested());
    }
  }
  int throws_a_pointer() { throw this; }
  Task<int> suspends(Ref<int> x) {
    const int value = co_await x;
    if (value == 4) throw Uncopied("after a wait");
    co_return value;
  }
  int fine() { return 5; }
};
int four() {
  return 4;
}
void uncopied(Context& ctx) {
  auto one = ctx.spawn<Thrower>();
  const auto words = [&](const Ref<int>& ref) {
    try {
      ctx.get(ref);
      return std::string("none");
    } catch (const troupe::TaskFailed& e) {
      return e.message() + (e.is<Uncopied>() ? "!" : "");
    }
  };
  std::cout << words(one.call<&Thrower::moves>()) << ", " << words(one.call<&Thrower::nests>())
            << ", " << words(one.call<&Thrower::suspends>(ctx.submit<four>())) << ", "
            << end_of(ctx, one.call<&Thrower::throws_a_pointer>()) << ", "
            << ctx.get(one.call<&Thrower::fine>()) << '\n';
}
/// Proves that exceptions which cannot be copied, are nested or are pointers arrive as errors.
const Program copies{"exceptions_that_cannot_be_copied",
                     {.expect = "only moved!, outer, after a wait!, task_failed?, 5\n"},
                     uncopied};

// --- waits in a cycle ---

struct Gate {
  Task<int> of(Actor<Gate> other, int depth) {
    if (depth == 0) co_return 0;
    auto answer = other.call<&Gate::of>(*self, depth - 1);
    co_return 1 + co_await answer;
  }
  void knows(Actor<Gate> me) { self = me; }
  void forgets() { self.reset(); }
  Task<int> waits(Actor<Gate> other) {
    auto answer = other.call<&Gate::blocks>();
    co_return co_await answer;
  }
  /// Cannot end while the other actor's answer waits for this one.
  Task<int> blocks() {
    auto answer = partner->call<&Gate::blocks_too>();
    co_return co_await answer;
  }
  Task<int> blocks_too() {
    while (!open) {
      auto look = self->call<&Gate::fine>();
      co_await look;
    }
    co_return 9;
  }
  void opens(bool to) { open = to; }
  void meets(Actor<Gate> other) { partner = other; }
  void parts() { partner.reset(); }
  int fine() const { return 1; }
  std::optional<Actor<Gate>> self, partner;
  bool open = false;
};
void cycles(Context& ctx) {
  auto a = ctx.spawn<Gate>(), b = ctx.spawn<Gate>();
  a.tell<&Gate::knows>(a);
  b.tell<&Gate::knows>(b);
  // The calls that `a` makes to `b` have no order with those that the driver makes to `b`.
  (void)ctx.get(b.call<&Gate::fine>());
  std::cout << ctx.get(a.call<&Gate::of>(b, 200)) << ' ';  // 100 methods of each are suspended
  a.tell<&Gate::meets>(b);
  b.tell<&Gate::meets>(a);
  (void)ctx.get(b.call<&Gate::fine>());
  auto waits = a.call<&Gate::waits>(b);  // a waits for b, b for a, and a for its own door
  std::cout << end_of(ctx, waits, 200ms) << ' ' << ctx.get(a.call<&Gate::fine>()) << ' ';
  a.tell<&Gate::opens>(true);
  std::cout << ctx.get(waits) << ' ';
  a.tell<&Gate::opens>(false);
  auto never = a.call<&Gate::waits>(b);
  std::cout << end_of(ctx, never, 100ms) << ' ';
  ctx.kill(a);
  std::cout << end_of(ctx, never) << ' ';
  b.tell<&Gate::forgets>();
  b.tell<&Gate::parts>();
  std::cout << ctx.get(b.call<&Gate::fine>()) << '\n';
}
/// Proves that actors which wait for each other still serve calls, and that a kill ends the
/// cycle.
const Program cycle{"actors_that_wait_in_a_cycle",
                    {.expect = "200 timed_out? 1 9 timed_out? actor_died? 1\n", .seconds = 20},
                    cycles};

// --- methods that wait beside methods that do not ---

struct Mixed {
  std::string log;
  Task<int> slow(Ref<int> x, int name) {
    log += 'b' + std::to_string(name);
    const int value = co_await x;
    log += 'e' + std::to_string(name);
    co_return value;
  }
  std::string look() { return log; }
};
int when_told(const std::string& path, int value) {
  for (int i = 0; i < 4000 && !std::ifstream(path).good(); ++i) std::this_thread::sleep_for(2ms);
  return value;
}
void mix(Context& ctx) {
  const Words first("mix_first"), second("mix_second");
  auto one = ctx.spawn<Mixed>();
  auto x = ctx.submit<when_told>(first.path(), 1), y = ctx.submit<when_told>(second.path(), 2);
  auto slow_x = one.call<&Mixed::slow>(x, 1);
  std::cout << ctx.get(one.call<&Mixed::look>()) << ' ';
  auto slow_y = one.call<&Mixed::slow>(y, 2);
  std::cout << ctx.get(one.call<&Mixed::look>()) << ' ';
  Words::add(second.path(), "go");
  std::cout << ctx.get(slow_y) << ctx.get(one.call<&Mixed::look>()) << ' ';
  Words::add(first.path(), "go");
  std::cout << ctx.get(slow_x) << ctx.get(one.call<&Mixed::look>()) << '\n';
}
/// Proves that a suspended method does not hold back later methods.
const Program mixed{
    "methods_that_wait_beside_others", {.expect = "b1 b1b2 2b1b2e2 1b1b2e2e1\n"}, mix};

// --- many handles to one name ---

int use_name(Context& ctx, int times) {
  int right = 0;
  const ActorOptions shared{.name = "one of many", .get_if_exists = true};
  for (int i = 0; i < times; ++i) {
    auto made = ctx.with(shared).spawn<Fragile>();
    auto found = ctx.find<Fragile>("one of many");
    ctx.get(made.call<&Fragile::add>(1));
    right += found && *found == made ? 1 : 0;
  }
  return right;
}
void many_handles(Context& ctx) {
  auto base = ctx.with({.name = "one of many"}).spawn<Fragile>();
  std::vector<Ref<int>> users;
  for (int i = 0; i < 8; ++i) users.push_back(ctx.submit<use_name>(25));
  std::vector<std::thread> threads;
  std::atomic<int> here{0};
  for (int i = 0; i < 4; ++i) threads.emplace_back([&] { here += use_name(ctx, 25); });
  for (auto& thread : threads) thread.join();
  int there = 0;
  for (const int right : ctx.get(users)) there += right;
  std::cout << there << ' ' << here << ' ' << ctx.get(base.call<&Fragile::add>(0)) << '\n';
}
/// Proves that tasks and threads which use one name at once all get the same actor.
const Program names{
    "many_handles_to_one_name", {.expect = "200 100 300\n", .seconds = 30}, many_handles};

// --- what an actor made outlives it ---

struct Maker {
  Ref<std::vector<int>> makes(ActorContext& ctx, int n) {
    return ctx.put(std::vector<int>(static_cast<std::size_t>(n), n));
  }
  Ref<Ref<int>> ref_of_ref(ActorContext& ctx) { return ctx.put(ctx.put(11)); }
};
void outlives(Context& ctx) {
  auto maker = ctx.spawn<Maker>();
  auto big = maker.call<&Maker::makes>(200'000), small = maker.call<&Maker::makes>(3);
  auto inner = maker.call<&Maker::ref_of_ref>();
  ctx.wait({big, small});
  const Ref<int> ref = ctx.get(inner);
  ctx.kill(maker);
  std::cout << ctx.get(big).size() << ' ' << ctx.get(small).size() << ' ' << ctx.get(ref) << '\n';
}
/// Proves that objects which an actor made are readable after it was killed.
const Program made_by{
    "what_an_actor_made_outlives_it", {.expect = "200000 3 11\n", .seconds = 20}, outlives};

// --- a child that speaks to its parent while it is made ---

struct Child;
struct Parent {
  std::vector<std::string> heard;
  std::optional<Actor<Child>> child;
  void raise(ActorContext& ctx);
  void hears(const std::string& what) { heard.push_back(what); }
  int count() const { return static_cast<int>(heard.size()); }
  std::string all() const {
    std::string text;
    for (const auto& one : heard) text += one + ' ';
    return text;
  }
  void sends_away() { child.reset(); }
};
struct Child {
  explicit Child(Actor<Parent> parent) : parent_(std::move(parent)) {
    parent_.tell<&Parent::hears>("born");
  }
  ~Child() { parent_.tell<&Parent::hears>("gone"); }
  void speaks() { parent_.tell<&Parent::hears>("here"); }
  Actor<Parent> parent_;
};
void Parent::raise(ActorContext& ctx) {
  child = ctx.spawn<Child>(ctx.self<Parent>());
  child->tell<&Child::speaks>();
}
void families(Context& ctx) {
  auto parent = ctx.spawn<Parent>();
  parent.tell<&Parent::raise>();
  for (int i = 0; i < 2000 && ctx.get(parent.call<&Parent::count>()) < 2; ++i)
    std::this_thread::sleep_for(2ms);
  std::cout << ctx.get(parent.call<&Parent::all>());
  ctx.get(parent.call<&Parent::sends_away>());
  for (int i = 0; i < 2000 && ctx.get(parent.call<&Parent::count>()) < 3; ++i)
    std::this_thread::sleep_for(2ms);
  std::cout << ctx.get(parent.call<&Parent::all>()) << '\n';
}
/// Proves that an actor can tell its parent from its constructor, a method and its destructor.
const Program family{"a_child_speaks_to_its_parent",
                     {.expect = "born here born here gone \n", .seconds = 20},
                     families};

}  // namespace
}  // namespace odd_actors
