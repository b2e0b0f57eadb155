// Proves which functions can be tasks and which values can be arguments and results.
#include "tests/programs/program.hpp"

#include <array>
#include <chrono>
#include <complex>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <variant>

namespace tasks_calls {
namespace {

using programs::Program;
using troupe::Context;
using troupe::Ref;

// --- everything that can be called ---

int plain_one(int x) {
  return x + 1;
}
int quiet(int x) noexcept {
  return x + 2;
}
extern "C" int of_c(int x) {
  return x + 3;
}
struct Holder {
  static int inside(int x) { return x + 4; }
};
template <int n>
int instance(int x) {
  return x + n;
}
template <class T>
T doubled(const T& x) {
  return x + x;
}
int many(int x) {
  return x;
}
double many(double x) {
  return x + 0.5;
}
int nine(int a, short b, char c, long d, float e, double f, bool g, unsigned h, std::string i) {
  return a + b + c + static_cast<int>(d) + static_cast<int>(e) + static_cast<int>(f) + (g ? 1 : 0) +
         static_cast<int>(h) + static_cast<int>(i.size());
}
void nothing() {}

void what_can_be_called(Context& ctx) {
  std::cout << ctx.get(ctx.submit<plain_one>(0)) << ctx.get(ctx.submit<quiet>(0))
            << ctx.get(ctx.submit<of_c>(0)) << ctx.get(ctx.submit<Holder::inside>(0))
            << ctx.get(ctx.submit<instance<5>>(0)) << ctx.get(ctx.submit<doubled<int>>(3))
            << ctx.get(ctx.submit<[](int x) { return x + 7; }>(0))
            << ctx.get(ctx.submit([](int x) { return x + 8; }, 0))
            << ctx.get(ctx.submit<nine>(1, 1, '\1', 1, 1, 1, true, 1, "x")) << '\n'
            << ctx.get(ctx.submit<doubled<std::string>>("ab")) << ' '
            << ctx.get(ctx.submit<troupe::overload<double(double)>(many)>(1))
            << ctx.get(ctx.submit<troupe::overload<int(int)>(many)>(1)) << '\n';
  ctx.get(ctx.submit<nothing>());
  ctx.get(std::vector<Ref<void>>{ctx.submit<nothing>(), ctx.submit<nothing>()});
  const auto [a, b, c] = ctx.get(ctx.submit<nothing>(), ctx.submit<quiet>(1), ctx.put(2.5));
  static_cast<void>(a);
  std::cout << b << ' ' << c << '\n';
}
/// Proves that functions, static members, templates, overloads and lambdas can be tasks.
const Program called{
    "what_can_be_called", {.expect = "123456789\nabab 1.51\n3 2.5\n"}, what_can_be_called};

// --- several results, and results that only move ---

std::tuple<int, std::string> both(int x) {
  return {x, std::string(static_cast<std::size_t>(x), 'x')};
}
std::pair<std::vector<int>, double> halves(int n) {
  return {std::vector<int>(static_cast<std::size_t>(n), 1), 0.5};
}
std::unique_ptr<int> own(int x) {
  return std::make_unique<int>(x);
}
int open_it(std::unique_ptr<int> x) {
  return x ? *x : -1;
}
std::size_t count(const std::vector<int>& x) {
  return x.size();
}
void split(Context& ctx) {
  auto [number, text] = ctx.submit_split<both>(3);
  auto [ones, half] = ctx.submit_split<halves>(100'000);
  std::cout << ctx.get(number) << ' ' << ctx.get(text) << ' ' << ctx.get(ctx.submit<count>(ones))
            << ' ' << ctx.get(half) << '\n';
  std::cout << *ctx.get(ctx.submit<own>(7)) << ' ' << ctx.get(ctx.submit<open_it>(own(8))) << ' '
            << ctx.get(ctx.submit<open_it>(nullptr)) << ' '
            << ctx.get(ctx.submit<open_it>(ctx.submit<own>(9))) << '\n';
}
/// Proves tasks with several results, and values that can only be moved.
const Program splits{
    "submit_split_and_move_only", {.expect = "3 xxx 100000 0.5\n7 8 -1 9\n"}, split};

// --- what may cross ---

enum class Colour : std::uint8_t { red, green };
struct Inner {
  int n = 0;
  std::optional<double> weight;
};
struct Outer {
  std::string name;
  std::vector<Inner> parts;
  std::map<std::string, std::set<int>> sets;
  std::array<float, 3> place{};
  std::variant<int, std::string, std::monostate> what;
  Colour colour = Colour::red;
  std::vector<bool> bits;
  std::chrono::milliseconds time{};
  std::complex<double> z;
  std::unique_ptr<Inner> own;
};
class Secret {
 public:
  Secret() = default;
  explicit Secret(int x) : x_(x) {}
  int x() const { return x_; }

 private:
  int x_ = 0;
  std::string text_ = "hidden";
  friend auto fields(Secret& s) { return std::tie(s.x_, s.text_); }
};
Outer changed(Outer o) {
  o.name += "!";
  o.parts.push_back({2, 0.25});
  o.sets["b"].insert(7);
  o.place[2] = 3;
  o.what = "text";
  o.colour = Colour::green;
  o.bits.push_back(true);
  o.time *= 2;
  o.z *= 2;
  o.own = std::make_unique<Inner>(Inner{5, {}});
  return o;
}
Secret next(const Secret& s) {
  return Secret(s.x() + 1);
}
void values(Context& ctx) {
  Outer start;
  start.name = "n";
  start.parts = {{1, {}}};
  start.sets["a"] = {1, 2};
  start.bits = {false, true};
  start.time = std::chrono::milliseconds(21);
  start.z = {1, -1};
  const Outer end = ctx.get(ctx.submit<changed>(std::move(start)));
  std::cout << end.name << ' ' << end.parts.size() << ' ' << *end.parts[1].weight << ' '
            << end.sets.size() << ' ' << end.place[2] << ' ' << std::get<std::string>(end.what)
            << ' ' << (end.colour == Colour::green) << ' ' << end.bits.size() << ' '
            << end.time.count() << ' ' << end.z << ' ' << end.own->n << '\n'
            << ctx.get(ctx.submit<next>(ctx.submit<next>(Secret(40)))).x() << '\n';
}
/// Proves that structs, containers, variants and classes with private members arrive unchanged.
const Program cross{
    "values_of_all_kinds", {.expect = "n! 2 0.25 2 3 text 1 3 42 (2,-2) 5\n42\n"}, values};

// --- strange sizes ---

std::string echo(const std::string& text) {
  return text;
}
std::size_t length(std::span<const double> all) {
  return all.size();
}
std::size_t letters(std::string_view text) {
  return text.size();
}
void sizes(Context& ctx) {
  // Sizes around the limits of a message (4 and 8 KiB) and of a page.
  bool same = true;
  for (const std::size_t n : {0, 1, 63, 64, 4095, 4096, 4097, 8191, 8192, 8193, 65536, 1 << 20}) {
    const std::string text(n, static_cast<char>('a' + n % 26));
    same = same && ctx.get(ctx.submit<echo>(text)) == text;
    same = same && ctx.get(ctx.submit<letters>(text)) == n;
    same = same && ctx.get(ctx.submit<length>(std::vector<double>(n))) == n;
    same = same && ctx.get(ctx.put(text)) == text;
  }
  const std::string zeros("a\0b\0", 4);
  same = same && ctx.get(ctx.submit<echo>(zeros)) == zeros;
  std::cout << (same ? "all the same" : "something differs") << '\n';
}
/// Proves that values of every size around the limits of transport arrive unchanged.
const Program strange{"strange_sizes", {.expect = "all the same\n"}, sizes};

// --- many ---

void ten_thousand(Context& ctx) {
  std::vector<Ref<int>> refs;
  for (int i = 0; i < 10'000; ++i) refs.push_back(ctx.submit<plain_one>(i));
  long sum = 0;
  for (const int x : ctx.get(refs)) sum += x;
  std::cout << sum << '\n';
  for (int i = 0; i < 10'000; ++i) ctx.submit<plain_one>(i);  // their results are dropped
  std::cout << ctx.get(ctx.submit<plain_one>(0)) << '\n';
}
/// Proves that many tasks run, also when their results are dropped.
const Program thousands{"ten_thousand_tasks", {.expect = "50005000\n1\n"}, ten_thousand};

// --- nothing at all ---

void empty(Context& ctx) {
  std::cout << ctx.map<plain_one>(std::vector<int>{}).size()
            << ctx.get(std::vector<Ref<int>>{}).size()
            << ctx.wait(std::vector<Ref<int>>{}, {.count = 5}).ready.size();
  for (auto& ref : ctx.as_completed(std::vector<Ref<int>>{})) std::cout << ctx.get(ref);
  std::cout << ctx.wait({ctx.put(1)}, {.count = 0}).ready.size() << '\n';
  const Ref<int> none;
  try {
    ctx.get(none);
  } catch (const troupe::InvalidArgument&) {
    std::cout << "an empty Ref is refused by get";
  }
  try {
    ctx.submit<plain_one>(none);
  } catch (const troupe::InvalidArgument&) {
    std::cout << ", and as an argument\n";
  }
}
/// Proves that empty lists are fine, and that an empty Ref is refused.
const Program nothing_at_all{
    "nothing_at_all",
    {.expect = "0000\nan empty Ref is refused by get, and as an argument\n"},
    empty};

}  // namespace
}  // namespace tasks_calls
