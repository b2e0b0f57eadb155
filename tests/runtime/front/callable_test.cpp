/// Tests everything that may be called, and how arguments reach it.
#include "troupe/runtime/callable.hpp"

#include "tests/runtime/front/inline_engine.hpp"

#include <gtest/gtest.h>
#include <stdexcept>

namespace {

using namespace std::string_literals;
using troupe::Context;
using troupe::Ref;
using troupe::testing::InlineEngine;

int twice(int x) {
  return 2 * x;
}
int quiet(int x) noexcept {
  return x + 1;
}
extern "C" int c_function(int x) {
  return x - 1;
}
static int local(int x) {
  return x * 3;
}
template <class T>
T templated(T x) {
  return x + x;
}
struct Tools {
  static int helper(int x) { return x * 100; }
};
int chosen(int x) {
  return x;
}
double chosen(double x) {
  return x / 2;
}
double area(double r) {
  return 3 * r * r;
}
std::string greet(const std::string& name) {
  return "hello " + name;
}
int length(std::string_view text) {
  return static_cast<int>(text.size());
}
int consume(std::unique_ptr<int> p) {
  return *p;
}
int consume_rvalue(std::vector<int>&& v) {
  return static_cast<int>(v.size());
}
double sum(std::span<const double> values) {
  double total = 0;
  for (double v : values) total += v;
  return total;
}
int first_of_three(std::span<const int, 3> values) {
  return values[0];
}
std::vector<double> numbers(int n) {
  return std::vector<double>(static_cast<std::size_t>(n), 1.5);
}
const std::string& reference_result() {
  static const std::string text = "kept";
  return text;
}
void nothing(int) {}
void throws(int x) {
  throw std::out_of_range("no " + std::to_string(x));
}
int nested(Context& ctx, int n) {
  return n == 0 ? 0 : 1 + ctx.get(ctx.submit<nested>(n - 1));
}
int by_const_context(const Context& ctx, int n) {
  return ctx.get(ctx.put(n));
}
Ref<int> passes_on(Context& ctx, int n) {
  return ctx.submit<twice>(n);
}
int holds_ref(Context& ctx, Ref<int> ref) {
  return ctx.get(ref) + 1;
}
// NOLINTNEXTLINE(performance-unnecessary-value-param): a form of function that users write
int holds_refs(Context& ctx, std::vector<Ref<int>> refs) {
  int total = 0;
  for (int v : ctx.get(refs)) total += v;
  return total;
}
std::size_t any_ref(troupe::AnyRef ref) {
  return ref ? 1 : 0;
}
std::tuple<int, std::string> two(int n) {
  return {n, std::to_string(n)};
}
double total(const troupe::Array<double>& values) {
  return sum(values);
}
enum class Unit { metre, mile };
struct Length {
  double value = 0;
  Unit unit = Unit::metre;
};
double in_metres(const Length& l) {
  return l.unit == Unit::metre ? l.value : l.value * 1609;
}
struct Celsius {
  double degrees = 0;
};
struct Kelvin {
  Kelvin() = default;
  Kelvin(const Celsius& c) : degrees(c.degrees + 273) {}
  friend auto fields(Kelvin& k) { return std::tie(k.degrees); }
  double degrees = 0;
};
double temperature(Kelvin k) {
  return k.degrees;
}

TEST(Callables, every_form_of_function) {
  InlineEngine engine;
  const Context ctx = engine.context();
  EXPECT_EQ(ctx.get(ctx.submit<twice>(4)), 8);
  EXPECT_EQ(ctx.get(ctx.submit<&twice>(4)), 8);
  EXPECT_EQ(ctx.get(ctx.submit<quiet>(4)), 5);
  EXPECT_EQ(ctx.get(ctx.submit<c_function>(4)), 3);
  EXPECT_EQ(ctx.get(ctx.submit<local>(4)), 12);
  EXPECT_EQ(ctx.get(ctx.submit<templated<double>>(4)), 8.0);
  EXPECT_EQ(ctx.get(ctx.submit<Tools::helper>(4)), 400);
  EXPECT_EQ(ctx.get(ctx.submit<troupe::overload<double(double)>(chosen)>(4)), 2.0);
  EXPECT_EQ(ctx.get(ctx.submit<troupe::overload<int(int)>(chosen)>(4)), 4);
  EXPECT_EQ(ctx.get(ctx.submit<[](int x) { return x + 7; }>(4)), 11);
  EXPECT_EQ(ctx.get(ctx.submit([](int x, const std::string& s) { return std::to_string(x) + s; }, 4,
                               "!")),
            "4!");
  EXPECT_EQ(ctx.get(ctx.submit([] { return 5; })), 5);
  EXPECT_EQ(ctx.get(ctx.submit([](int x) mutable noexcept { return x; }, 6)), 6);
}

TEST(Callables, arguments_convert_as_in_a_plain_call) {
  InlineEngine engine;
  const Context ctx = engine.context();
  EXPECT_EQ(ctx.get(ctx.submit<area>(2)), 12.0);
  EXPECT_EQ(ctx.get(ctx.submit<greet>("world")), "hello world");
  char buffer[] = "array";
  EXPECT_EQ(ctx.get(ctx.submit<greet>(buffer)), "hello array");
  EXPECT_EQ(ctx.get(ctx.submit<length>("literal")), 7);
  EXPECT_EQ(ctx.get(ctx.submit<length>("string"s)), 6);
  EXPECT_EQ(ctx.get(ctx.submit<consume>(std::make_unique<int>(3))), 3);
  EXPECT_EQ(ctx.get(ctx.submit<consume_rvalue>(std::vector<int>{1, 2})), 2);
  EXPECT_EQ(ctx.get(ctx.submit<in_metres>(Length{2, Unit::mile})), 3218);
  EXPECT_EQ(ctx.get(ctx.submit<temperature>(Celsius{1})), 274);
  const std::vector<int> lvalue{1, 2, 3};
  EXPECT_EQ(ctx.get(ctx.submit<first_of_three>(std::span<const int, 3>(lvalue))), 1);
}

TEST(Callables, a_ref_is_a_dependency_and_its_value_converts) {
  InlineEngine engine;
  const Context ctx = engine.context();
  auto eight = ctx.submit<twice>(4);
  EXPECT_EQ(ctx.get(ctx.submit<twice>(eight)), 16);
  EXPECT_EQ(ctx.get(ctx.submit<area>(eight)), 192.0);  // a Ref<int> for a parameter of type double
  EXPECT_EQ(ctx.get(ctx.submit<temperature>(ctx.put(Celsius{2}))), 275);
  EXPECT_EQ(ctx.get(ctx.submit<consume>(ctx.put(std::make_unique<int>(9)))), 9);
  EXPECT_EQ(ctx.get(ctx.submit<length>(ctx.put("four"))), 4);
  EXPECT_EQ(ctx.get(ctx.submit<greet>(ctx.submit<greet>("a"))), "hello hello a");
  EXPECT_EQ(ctx.get(ctx.submit<sum>(ctx.submit<numbers>(4))), 6);
  EXPECT_EQ(ctx.get(ctx.submit<total>(ctx.submit<numbers>(400))), 600);
  EXPECT_EQ(ctx.get(ctx.submit<sum>(ctx.put(troupe::Array<double>{1, 2}))), 3);
  EXPECT_EQ(ctx.get(ctx.submit<sum>(ctx.put(std::array<double, 2>{1, 2}))), 3);
}

TEST(Callables, spans_read_in_place_small_and_large) {
  InlineEngine engine;
  const Context ctx = engine.context();
  EXPECT_EQ(ctx.get(ctx.submit<sum>(std::vector<double>{1, 2, 3})), 6);
  EXPECT_EQ(engine.large_creates(), 0);
  const std::vector<double> large(100'000, 0.5);
  EXPECT_EQ(ctx.get(ctx.submit<sum>(large)), 50'000);
  EXPECT_EQ(engine.large_creates(), 1);  // written straight into shared memory
  EXPECT_LE(engine.last_inline_bytes(), 16u);
  EXPECT_EQ(ctx.get(ctx.submit<total>(large)), 50'000);
  EXPECT_EQ(ctx.get(ctx.submit<sum>(std::vector<double>{})), 0);
}

int many(const std::string& a, const std::string& b, const std::string& c, const std::string& d) {
  return static_cast<int>(a.size() + b.size() + c.size() + d.size());
}
TEST(Callables, what_does_not_fit_a_message_becomes_an_object) {
  InlineEngine engine;
  const Context ctx = engine.context();
  const std::string part(3000, 'x');
  EXPECT_EQ(ctx.get(ctx.submit<many>(part, part, part, part)), 12'000);
  EXPECT_EQ(engine.large_creates(), 2);
}

TEST(Callables, results) {
  InlineEngine engine;
  const Context ctx = engine.context();
  const Ref<std::string> text = ctx.submit<reference_result>();
  EXPECT_EQ(ctx.get(text), "kept");
  const Ref<void> done = ctx.submit<nothing>(1);
  ctx.get(done);
  const Ref<int> flat = ctx.submit<passes_on>(21);
  EXPECT_EQ(ctx.get(flat), 42);
  auto [number, digits] = ctx.submit_split<two>(17);
  EXPECT_EQ(ctx.get(number), 17);
  EXPECT_EQ(ctx.get(digits), "17");
  EXPECT_EQ(ctx.get(ctx.submit<greet>(digits)), "hello 17");
  EXPECT_EQ(ctx.get(ctx.submit<two>(3)), (std::tuple<int, std::string>{3, "3"}));
}

TEST(Callables, a_function_with_a_context_submits_and_gets) {
  InlineEngine engine;
  const Context ctx = engine.context();
  EXPECT_EQ(ctx.get(ctx.submit<nested>(5)), 5);
  EXPECT_EQ(ctx.get(ctx.submit<by_const_context>(5)), 5);
  EXPECT_EQ(ctx.get(ctx.submit<holds_ref>(ctx.submit<twice>(4))), 9);
  EXPECT_EQ(ctx.get(ctx.submit<holds_refs>(ctx.map<twice>(std::vector<int>{1, 2, 3}))), 12);
  EXPECT_EQ(ctx.get(ctx.submit<any_ref>(ctx.put(1))), 1u);
  EXPECT_EQ(ctx.get(ctx.submit([](Context& c, int n) { return c.get(c.submit<twice>(n)); }, 4)), 8);
}

TEST(Callables, exceptions_and_failed_arguments) {
  InlineEngine engine;
  const Context ctx = engine.context();
  auto failed = ctx.submit<throws>(3);
  try {
    ctx.get(failed);
    FAIL();
  } catch (const troupe::TaskFailed& e) {
    EXPECT_TRUE(e.is<std::out_of_range>());
    EXPECT_EQ(e.message(), "no 3");
    EXPECT_EQ(e.where().function, "(anonymous namespace)::throws(int)");
  }
  const auto bad = ctx.submit([](int x) -> int { throw std::runtime_error(std::to_string(x)); }, 1);
  EXPECT_THROW(ctx.get(ctx.submit<twice>(bad)), troupe::TaskFailed);
  EXPECT_FALSE(ctx.try_get(bad).ok());
  EXPECT_EQ(*ctx.try_get(ctx.put(3)), 3);
  EXPECT_THROW(ctx.submit<twice>(Ref<int>{}), troupe::InvalidArgument);
  EXPECT_THROW(ctx.get(Ref<int>{}), troupe::InvalidArgument);
}

// --- methods

struct Base {
  virtual ~Base() = default;
  virtual std::string name() const { return "base"; }
  int inherited(int x) { return x + base; }
  int base = 1000;
};
struct Robot : Base {
  explicit Robot(int start) : n(start) {}
  Robot(const std::string& text, double factor)
      : n(static_cast<int>(static_cast<double>(text.size()) * factor)) {}
  int add(int k) { return n += k; }
  int read() const noexcept { return n; }
  int on_lvalue(int x) & { return x; }
  int on_rvalue() && { return -n; }
  int over(int x) { return x; }
  std::string over(const std::string& x) const { return x; }
  std::string name() const override { return "robot"; }
  static int helper(int x) { return x; }
  void fail() { throw std::runtime_error("broken"); }
  troupe::Actor<Robot> me(troupe::ActorContext& self) { return self.self<Robot>(); }
  Ref<int> ask(troupe::ActorContext& self, int x) { return self.submit<twice>(x); }
  int n;
};
struct Counter {
  int n = 0;
  std::vector<int> seen = {};
  int add(int k) {
    seen.push_back(k);
    return n += k;
  }
  std::vector<int> all() const { return seen; }
};

TEST(Methods, every_form) {
  InlineEngine engine;
  const Context ctx = engine.context();
  const auto robot = ctx.spawn<Robot>(10);
  EXPECT_EQ(ctx.get(robot.call<&Robot::add>(5)), 15);
  EXPECT_EQ(ctx.get(robot.call<&Robot::read>()), 15);
  EXPECT_EQ(ctx.get(robot.call<&Robot::on_lvalue>(3)), 3);
  EXPECT_EQ(ctx.get(robot.call<&Robot::on_rvalue>()), -15);
  EXPECT_EQ(ctx.get(robot.call<&Robot::name>()), "robot");
  EXPECT_EQ(ctx.get(robot.call<&Base::name>()), "robot");
  EXPECT_EQ(ctx.get(robot.call<&Robot::inherited>(1)), 1001);
  EXPECT_EQ(ctx.get(robot.call<troupe::overload<int(int)>(&Robot::over)>(4)), 4);
  EXPECT_EQ(
      ctx.get(
          robot.call<troupe::overload<std::string(const std::string&) const>(&Robot::over)>("x")),
      "x");
  EXPECT_EQ(ctx.get(troupe::call<&Robot::add>(robot, ctx.put(5))), 20);
  EXPECT_EQ(ctx.get(robot.call<&Robot::me>()), robot);
  EXPECT_EQ(ctx.get(robot.call<&Robot::ask>(8)), 16);
  EXPECT_THROW(ctx.get(robot.call<&Robot::fail>()), troupe::TaskFailed);
  EXPECT_EQ(ctx.get(robot.call<&Robot::read>()), 20);  // an exception does not end the actor
  robot.tell<&Robot::fail>();
  engine.drain();
  EXPECT_EQ(engine.tells_failed(), 1);
}

TEST(Methods, one_method_of_two_actor_classes_are_two_entries) {
  struct Other : Base {};
  InlineEngine engine;
  const Context ctx = engine.context();
  const auto robot = ctx.spawn<Robot>(1);
  const auto other = ctx.spawn<Other>();
  EXPECT_EQ(ctx.get(other.call<&Base::name>()), "base");
  const auto* first = engine.last_callable();
  EXPECT_EQ(ctx.get(robot.call<&Base::name>()), "robot");
  EXPECT_NE(engine.last_callable(), first);
}

TEST(Methods, constructors_take_parentheses_or_braces_and_what_refs_hold) {
  InlineEngine engine;
  const Context ctx = engine.context();
  EXPECT_EQ(ctx.get(ctx.spawn<Counter>(10).call<&Counter::add>(1)), 11);
  EXPECT_EQ(ctx.get(ctx.spawn<Counter>().call<&Counter::add>(1)), 1);
  EXPECT_EQ(ctx.get(ctx.spawn<Robot>("four", 2).call<&Robot::read>()), 8);
  EXPECT_EQ(ctx.get(ctx.spawn<Robot>(ctx.submit<twice>(8)).call<&Robot::read>()), 16);
  struct FromViews {
    FromViews(std::span<const int> values, std::string_view name)
        : n(values[1] + static_cast<int>(name.size())) {}
    int get() const { return n; }
    int n;
  };
  const std::vector<int> values{1, 20};
  const std::string_view name = "abc";
  EXPECT_EQ(
      ctx.get(ctx.spawn<FromViews>(std::span<const int>(values), name).call<&FromViews::get>()),
      23);
  EXPECT_EQ(ctx.get(ctx.spawn<FromViews>(ctx.put(values), "ab").call<&FromViews::get>()), 22);
  struct KeepsRef {
    Ref<int> ref;
    Ref<int> get() { return ref; }
  };
  EXPECT_EQ(ctx.get(ctx.spawn<KeepsRef>(ctx.put(5)).call<&KeepsRef::get>()), 5);
  struct Bad {
    explicit Bad(int) { throw std::runtime_error("no start"); }
    int x() { return 1; }
  };
  EXPECT_THROW(ctx.get(ctx.spawn<Bad>(1).call<&Bad::x>()), troupe::ActorDied);
}

TEST(Methods, a_call_whose_argument_is_late_holds_back_later_ones) {
  InlineEngine engine;
  const Context ctx = engine.context();
  const auto counter = ctx.spawn<Counter>();
  auto late = engine.promise<int>();
  counter.tell<&Counter::add>(1);
  auto second = counter.call<&Counter::add>(late);
  counter.tell<&Counter::add>(3);
  engine.drain();
  engine.keep_promise(late, 2);
  EXPECT_EQ(ctx.get(second), 3);
  EXPECT_EQ(ctx.get(counter.call<&Counter::all>()), (std::vector<int>{1, 2, 3}));
}

struct Team {
  troupe::Actor<Counter> member;
  std::string name;
};
int through(Context& ctx, const Team& team) {
  return ctx.get(team.member.call<&Counter::add>(5));
}
TEST(Methods, an_actor_crosses_inside_a_value) {
  InlineEngine engine;
  const Context ctx = engine.context();
  EXPECT_EQ(ctx.get(ctx.submit<through>(Team{ctx.spawn<Counter>(1), "a"})), 6);
}

// --- entries

struct Widget {
  int method(int) { return 0; }
};
namespace outer {
[[maybe_unused]] static int hidden(int) {
  return 0;
}
}  // namespace outer

}  // namespace
int visible(int x) {
  return x;
}
namespace outer {
int shown(int x) {
  return x;
}
static int hidden(int x) {
  return x;
}
enum class Kind { a };
template <Kind>
int with_kind(int x) {
  return x;
}
}  // namespace outer
namespace {

TEST(Entries, names_are_readable_and_linkage_is_known) {
  InlineEngine engine;
  const Context ctx = engine.context();
  auto name_of = [&](auto ref) {
    static_cast<void>(ref);
    return engine.last_name();
  };
  auto is_internal = [&](auto ref) {
    static_cast<void>(ref);
    return engine.last_callable()->internal_linkage;
  };
  EXPECT_EQ(name_of(ctx.submit<visible>(1)), "visible(int)");
  EXPECT_EQ(name_of(ctx.submit<::outer::shown>(1)), "outer::shown(int)");
  EXPECT_EQ(name_of(ctx.submit<greet>("x")), "(anonymous namespace)::greet(std::string)");
  EXPECT_FALSE(is_internal(ctx.submit<visible>(1)));
  EXPECT_FALSE(is_internal(ctx.submit<::outer::shown>(1)));
  EXPECT_FALSE(is_internal(ctx.submit<::outer::with_kind<::outer::Kind::a>>(1)));
  EXPECT_TRUE(is_internal(ctx.submit<::outer::hidden>(1)));
  EXPECT_TRUE(is_internal(ctx.submit<local>(1)));
  EXPECT_TRUE(is_internal(ctx.submit<twice>(1)));
  EXPECT_TRUE(is_internal(ctx.submit([](int x) { return x; }, 1)));
}

TEST(Entries, static_functions_of_one_name_in_two_files_stay_apart) {
  InlineEngine engine;  // context_test.cpp has another outer::hidden(int)
  EXPECT_EQ(engine.context().get(engine.context().submit<::outer::hidden>(5)), 5);
}

TEST(Entries, fingerprints_follow_types) {
  InlineEngine engine;
  const Context ctx = engine.context();
  auto print_of = [&](auto ref) {
    static_cast<void>(ref);
    return engine.last_callable()->fingerprint;
  };
  const auto print = print_of(ctx.submit<twice>(1));
  EXPECT_EQ(print, print_of(ctx.submit<visible>(1)));
  EXPECT_NE(print, print_of(ctx.submit<area>(1)));
}

static_assert(troupe::callable_remotely_with<twice, int>);
static_assert(troupe::callable_remotely_with<twice, Ref<int>&>);
static_assert(!troupe::callable_remotely_with<twice, std::string>);
static_assert(!troupe::callable_remotely_with<twice>);
static_assert(!troupe::callable_remotely_with<consume, std::unique_ptr<int>&>);
static_assert(!troupe::callable_remotely_with<twice, Ref<std::string>>);

// What a library above troupe builds from a function in angle brackets.
struct Step {
  int number = 0;
};
template <auto body, class Parameters = typename troupe::CallableTraits<body>::Parameters>
struct Job {
  static constexpr bool takes_a_step = false;
};
template <auto body, class... P>
struct Job<body, troupe::TypeList<Step&, P...>> {
  static constexpr bool takes_a_step = true;
  static auto run(Step& step, std::decay_t<P>... arguments) {
    return troupe::CallableTraits<body>::call(step, std::move(arguments)...);
  }
};
int count_up(Step& step, int by) {
  return step.number += by;
}
struct Stateful {
  int offset;
  int operator()(Step& step) const { return step.number + offset; }
};
struct HasMethod {
  int method(Step&) { return 0; }
};
constexpr auto kGeneric = [](auto) {};

TEST(CallableTraits, take_a_function_apart_and_call_it_with_references) {
  using Traits = troupe::CallableTraits<count_up>;
  static_assert(Traits::valid && std::is_same_v<Traits::Result, int>);
  static_assert(std::is_same_v<Traits::Parameters, troupe::TypeList<Step&, int>>);
  static_assert(Job<count_up>::takes_a_step && !Job<twice>::takes_a_step);
  Step step;
  EXPECT_EQ(Job<count_up>::run(step, 3), 3);
  EXPECT_EQ(Job<count_up>::run(step, 4), 7);
  EXPECT_NE(std::string(Traits::name()).find("count_up"), std::string::npos) << Traits::name();
  EXPECT_EQ(Traits::name(), Traits::name());  // computed once
  constexpr auto lambda = [](Step& s, const std::string& text) {
    return text + greet("you") + (s.number > 6 ? "!" : "");
  };
  EXPECT_EQ(Job<lambda>::run(step, "well, "), "well, hello you!");
  EXPECT_EQ(troupe::CallableTraits<consume>::call(std::make_unique<int>(5)), 5);
}

TEST(CallableTraits, have_no_parameters_for_what_is_no_function) {
  static_assert(!troupe::CallableTraits<&HasMethod::method>::valid);
  static_assert(!Job<&HasMethod::method>::takes_a_step);
  static_assert(!troupe::CallableTraits<7>::valid);
  static_assert(!troupe::CallableTraits<kGeneric>::valid);
  static_assert(troupe::CodeOnly<decltype([](int) {})>);
  static_assert(!troupe::CodeOnly<Stateful> && !troupe::CodeOnly<decltype(kGeneric)> &&
                !troupe::CodeOnly<int (*)(int)>);
}

TEST(CallableTraits, an_exception_becomes_the_failure_of_the_function_that_is_named) {
  try {
    throw std::out_of_range("row 9");
  } catch (...) {
    const troupe::Error error = troupe::failure_of_current_exception("loop(int)");
    EXPECT_EQ(error.code(), troupe::Code::task_failed);
    EXPECT_EQ(error.outcome(), troupe::Outcome::executed);
    EXPECT_EQ(error.info().origin.function, "loop(int)");
    EXPECT_EQ(error.message(), "row 9");
  }
  try {
    throw troupe::TimedOut(troupe::Code::timed_out, "no answer");
  } catch (...) {
    const troupe::Error error = troupe::failure_of_current_exception("loop(int)");
    EXPECT_EQ(error.code(), troupe::Code::task_failed);
    ASSERT_NE(error.info().cause, nullptr);
    EXPECT_EQ(error.info().cause->code, troupe::Code::timed_out);
  }
}

}  // namespace
