// Proves the basics of actors: methods, calls between actors, names, ends and restarts.
#include "tests/programs/program.hpp"

#include <unistd.h>
#include <cstdio>
#include <fstream>
#include <stdexcept>
#include <thread>

namespace actors {
namespace {

using namespace std::chrono_literals;
using programs::Program;
using troupe::Actor;
using troupe::ActorContext;
using troupe::Context;
using troupe::Ref;

struct Counter {
  int n = 0;
  int add(int k) { return n += k; }
  int get() const { return n; }
  troupe::Task<int> add_later(Ref<int> k) {
    const int x = co_await k;
    co_return n += x;
  }
};
int slow(int x) {
  std::this_thread::sleep_for(2ms);
  return x;
}

void order(Context& ctx) {
  auto counter = ctx.spawn<Counter>(10);
  counter.tell<&Counter::add>(1);
  std::cout << ctx.get(counter.call<&Counter::add>(5)) << std::endl;
  for (int i = 0; i < 1000; ++i) counter.tell<&Counter::add>(1);
  std::cout << ctx.get(counter.call<&Counter::get>()) << ' ';
  std::vector<Ref<int>> sums;
  for (int i = 0; i < 50; ++i)
    sums.push_back(counter.call<&Counter::add_later>(ctx.submit<slow>(1)));
  ctx.get(sums);
  std::cout << ctx.get(troupe::call<&Counter::get>(counter)) << '\n';
}
/// Proves that calls and tells of one caller run in order, and that suspended methods all finish.
const Program counter{"a_counter", {.expect = "16\n1016 1066\n", .everywhere = true}, order};

// --- what can be a method ---

struct Shape {
  virtual ~Shape() = default;
  virtual double area() const { return 0; }
  std::string name() const { return "shape"; }
};
struct Square final : Shape {
  explicit Square(double side) : side_(side) {}
  double area() const override { return side_ * side_; }
  void grow(double by) & noexcept { side_ += by; }
  static int corners() { return 4; }
  template <class T>
  T scaled(T by) const {
    return static_cast<T>(side_) * by;
  }
  std::string with_context(ActorContext& ctx, const std::string& text) {
    return text + (ctx.restarted() ? " again" : " first");
  }
  double side_;
};
void methods(Context& ctx) {
  auto square = ctx.spawn<Square>(2);
  square.tell<&Square::grow>(1);
  std::cout << ctx.get(square.call<&Square::area>()) << ' ' << ctx.get(square.call<&Square::name>())
            << ' ' << ctx.get(square.call<&Square::scaled<int>>(3)) << ' '
            << ctx.get(square.call<&Square::with_context>("life")) << '\n';
}
/// Proves that virtual, inherited, template, ref-qualified and context-taking methods can be
/// called.
const Program method{"methods_of_all_kinds", {.expect = "9 shape 9 life first\n"}, methods};

// --- actors that know each other ---

struct Player {
  int hits = 0;
  troupe::Task<int> play(ActorContext& ctx, Actor<Player> other, int left) {
    ++hits;
    if (left == 0) co_return 0;
    auto answer = other.call<&Player::play>(ctx.self<Player>(), left - 1);
    co_return 1 + co_await answer;
  }
  int count() const { return hits; }
};
void ping_pong(Context& ctx) {
  auto a = ctx.spawn<Player>(), b = ctx.spawn<Player>();
  std::cout << ctx.get(a.call<&Player::play>(b, 50)) << ' ' << ctx.get(a.call<&Player::count>())
            << ' ' << ctx.get(b.call<&Player::count>()) << '\n';
}
/// Proves that two actors can await each other's methods in turns, 50 levels deep.
const Program pong{"two_actors_play", {.expect = "50 26 25\n"}, ping_pong};

struct Selfish {
  int n = 0;
  void bump() { ++n; }
  void start(ActorContext& ctx) {
    auto me = ctx.self<Selfish>();
    me.tell<&Selfish::bump>();
    me.tell<&Selfish::bump>();
  }
  troupe::Task<int> ask(ActorContext& ctx) {
    auto answer = ctx.self<Selfish>().call<&Selfish::get>();
    co_return co_await answer;
  }
  void through(Actor<Selfish> me) { me.tell<&Selfish::bump>(); }
  int get() const { return n; }
};
void selves(Context& ctx) {
  auto one = ctx.spawn<Selfish>();
  ctx.get(one.call<&Selfish::start>());
  ctx.get(one.call<&Selfish::through>(one));
  for (int i = 0; i < 1000 && ctx.get(one.call<&Selfish::get>()) < 3; ++i)
    std::this_thread::sleep_for(1ms);
  std::cout << ctx.get(one.call<&Selfish::get>()) << ' ' << ctx.get(one.call<&Selfish::ask>(), 5s)
            << '\n';
}
/// Proves that an actor can call itself, through self() and through a handle that it was given.
const Program self{"an_actor_calls_itself", {.expect = "3 3\n"}, selves};

struct Parent {
  std::vector<Actor<Counter>> children;
  int raise(ActorContext& ctx, int n) {
    for (int i = 0; i < n; ++i) children.push_back(ctx.spawn<Counter>(i));
    return static_cast<int>(children.size());
  }
  Actor<Counter> child(int i) const { return children.at(static_cast<std::size_t>(i)); }
  troupe::Task<int> sum() {
    int total = 0;
    std::vector<Ref<int>> answers;
    for (auto& child : children) answers.push_back(child.call<&Counter::get>());
    for (auto& answer : answers) total += co_await answer;
    co_return total;
  }
};
int through_a_task(Context& ctx, Actor<Counter> counter, int k) {
  return ctx.get(counter.call<&Counter::add>(k));
}
struct Team {
  std::string name;
  std::vector<Actor<Counter>> members;
};
int size_of(const Team& team) {
  return static_cast<int>(team.members.size());
}
void families(Context& ctx) {
  auto parent = ctx.spawn<Parent>();
  std::cout << ctx.get(parent.call<&Parent::raise>(5)) << ' '
            << ctx.get(parent.call<&Parent::sum>()) << ' ';
  const Actor<Counter> child = ctx.get(parent.call<&Parent::child>(3));
  std::cout << ctx.get(ctx.submit<through_a_task>(child, 10)) << ' '
            << ctx.get(child.call<&Counter::get>()) << ' '
            << ctx.get(ctx.submit<size_of>(Team{"t", {child, child}})) << ' '
            << (child == ctx.get(parent.call<&Parent::child>(3))) << '\n';
}
/// Proves that actors can spawn actors and hand out their handles, alone and inside values.
const Program family{"actors_make_actors", {.expect = "5 10 13 13 2 1\n", .seconds = 20}, families};

// --- names ---

void names(Context& ctx) {
  auto a = ctx.with({.name = "counter"}).spawn<Counter>(1);
  std::cout << ctx.get(a.call<&Counter::get>());
  auto found = ctx.find<Counter>("counter");
  std::cout << found.has_value() << (found && *found == a) << ctx.find<Counter>("none").has_value();
  const troupe::ActorOptions shared{.name = "counter", .get_if_exists = true};
  auto same = ctx.with(shared).spawn<Counter>(7);
  std::cout << ctx.get(same.call<&Counter::get>());
  try {
    auto other = ctx.with({.name = "counter"}).spawn<Counter>(2);
    ctx.get(other.call<&Counter::get>());
  } catch (const troupe::Error& e) {
    std::cout << ' ' << (std::string(e.what()).find("counter") != std::string::npos);
  }
  std::cout << '\n';
}
/// Proves find, get_if_exists, and the refusal of a name that is taken.
const Program named{"named_actors", {.expect = "11101 1\n"}, names};

void name_again(Context& ctx) {
  // Handles come and go. Each spawn must get a live actor, either the old one or a new one.
  const troupe::ActorOptions shared{.name = "shared", .get_if_exists = true};
  int right = 0;
  for (int i = 0; i < 20; ++i) {
    auto one = ctx.with(shared).spawn<Counter>();
    right += ctx.get(one.call<&Counter::add>(1)) >= 1 ? 1 : 0;
  }
  std::cout << right << '\n';
}
/// Proves that get_if_exists always returns a live actor while handles to the name come and go.
const Program again{"a_name_again_and_again", {.expect = "20\n", .seconds = 20}, name_again};

// --- a Ref that is not ready ---

int until(const std::string& file) {
  for (int i = 0; i < 4000; ++i) {
    if (std::ifstream(file).good()) return 5;
    std::this_thread::sleep_for(2ms);
  }
  return -1;
}
void not_ready(Context& ctx) {
  const std::string file = "/tmp/" + std::to_string(::getpid()) + ".not_ready";
  auto later = ctx.submit<until>(file);
  auto counter = ctx.spawn<Counter>(later);  // returns at once
  auto sum = counter.call<&Counter::add>(1);
  std::cout << ctx.try_get(later, 0s).ok();
  std::ofstream(file) << 1;
  std::cout << ctx.get(sum) << '\n';
  std::remove(file.c_str());
}
/// Proves that spawn returns at once and the constructor waits for its argument.
const Program unready{"spawn_with_a_ref_that_is_not_ready", {.expect = "06\n"}, not_ready};

// --- ends ---

struct Fragile {
  explicit Fragile(std::string file) : file_(std::move(file)) {
    std::ofstream(file_, std::ios::app) << "made ";
  }
  ~Fragile() { std::ofstream(file_, std::ios::app) << "destroyed "; }
  int fine() { return 1; }
  int fails() { throw std::out_of_range("beyond"); }
  int dies() { ::_exit(3); }
  int lives(ActorContext& ctx) { return ctx.restarted() ? 2 : 1; }
  std::string file_;
};
std::string content(const std::string& file) {
  std::string text;
  std::getline(std::ifstream(file) >> std::ws, text);
  return text;
}
void destructors(Context& ctx) {
  const std::string file = "/tmp/" + std::to_string(::getpid()) + ".destructors";
  auto one = ctx.spawn<Fragile>(file);
  auto last = one.call<&Fragile::fine>();
  one = {};
  std::cout << ctx.get(last) << ' ';
  for (int i = 0; i < 2000 && content(file).find("destroyed") == std::string::npos; ++i)
    std::this_thread::sleep_for(2ms);
  std::cout << content(file) << '\n';
  std::remove(file.c_str());
}
/// Proves that an actor without handles answers its calls and runs its destructor.
const Program destructor{
    "the_last_handle_ends_an_actor", {.expect = "1 made destroyed \n"}, destructors};

void deaths(Context& ctx) {
  const std::string file = "/tmp/" + std::to_string(::getpid()) + ".deaths";
  auto one = ctx.spawn<Fragile>(file);
  try {
    ctx.get(one.call<&Fragile::fails>());
  } catch (const troupe::TaskFailed& e) {
    std::cout << e.is<std::out_of_range>() << (e.outcome() == troupe::Outcome::executed);
  }
  one.tell<&Fragile::fails>();
  std::cout << ctx.get(one.call<&Fragile::fine>()) << ' ';
  try {
    ctx.get(one.call<&Fragile::dies>());
  } catch (const troupe::ActorDied& e) {
    std::cout << "ActorDied " << e.maybe_executed();
  }
  try {
    ctx.get(one.call<&Fragile::fine>());
  } catch (const troupe::ActorDied& e) {
    std::cout << e.maybe_executed() << '\n';
  }
  auto again = ctx.with(troupe::ActorOptions{.max_restarts = 2}).spawn<Fragile>(file);
  std::cout << ctx.get(again.call<&Fragile::lives>());
  ctx.wait({again.call<&Fragile::dies>()});
  std::cout << ctx.get(again.call<&Fragile::lives>());
  ctx.kill(again, true);
  std::cout << ctx.get(again.call<&Fragile::lives>());
  ctx.kill(again);
  try {
    ctx.get(again.call<&Fragile::lives>());
  } catch (const troupe::ActorDied&) {
    std::cout << " killed\n";
  }
  std::remove(file.c_str());
}
/// Proves the errors after an exception, a death and a kill, and that restarts make new lives.
const Program death{"actors_die_and_restart", {.expect = "111 ActorDied 10\n122 killed\n"}, deaths};

struct Refuses {
  explicit Refuses(int x) {
    if (x < 0) throw std::invalid_argument("x is negative");
  }
  int fine() { return 1; }
};
void constructors(Context& ctx) {
  auto one = ctx.spawn<Refuses>(-1);
  try {
    ctx.get(one.call<&Refuses::fine>());
  } catch (const troupe::ActorDied& e) {
    std::cout << (std::string(e.what()).find("x is negative") != std::string::npos)
              << e.maybe_executed();
  }
  const Actor<Refuses> none;
  try {
    none.call<&Refuses::fine>();
  } catch (const troupe::InvalidArgument&) {
    std::cout << " empty handle\n";
  }
}
/// Proves the errors of an actor that cannot be made, and of a call through an empty handle.
const Program constructor{"constructors_that_throw", {.expect = "10 empty handle\n"}, constructors};

struct Busy {
  int work(int ms) {
    std::this_thread::sleep_for(std::chrono::milliseconds(ms));
    return ms;
  }
};
void busy(Context& ctx) {
  auto a = ctx.spawn<Busy>();
  auto r = a.call<&Busy::work>(200);
  a = {};
  std::cout << ctx.get(r) << '\n';
  auto b = ctx.spawn<Busy>();
  b.tell<&Busy::work>(60'000);
  b = {};  // no result is held, so the program does not wait for it
}
/// Proves that a held result is computed after the last handle is gone, and that a result which
/// nobody holds does not delay the program's end.
const Program busies{"the_last_handle_of_a_busy_actor", {.expect = "200\n"}, busy};

void forty(Context& ctx) {
  std::vector<Actor<Counter>> all;
  for (int i = 0; i < 40; ++i) all.push_back(ctx.spawn<Counter>(i));
  int sum = 0;
  for (auto& one : all) sum += ctx.get(one.call<&Counter::add>(1));
  std::cout << sum << '\n';
}
/// Proves that more actors than CPUs live at the same time.
const Program many{"forty_actors", {.expect = "820\n", .seconds = 20}, forty};

void detached(Context& ctx) {
  ctx.with(troupe::ActorOptions{.name = "stays", .detached = true}).spawn<Counter>(4);
  auto found = ctx.find<Counter>("stays");
  std::cout << (found ? ctx.get(found->call<&Counter::get>()) : -1) << '\n';
}
/// Proves that a detached actor stays without handles and is found by its name.
const Program stays{"a_detached_actor", {.expect = "4\n"}, detached};

}  // namespace
}  // namespace actors
