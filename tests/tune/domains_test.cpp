// Tests domains at the limits of their numbers: a drawn value lies in the domain, or the domain
// is refused.
#include "troupe/tune/internal/schedulers.hpp"
#include "troupe/tune/searcher.hpp"
#include "troupe/tune/space.hpp"

#include <gtest/gtest.h>
#include <cmath>
#include <cstdint>
#include <limits>

namespace troupe::tune::domains_test {
namespace {

constexpr double kTiny = std::numeric_limits<double>::denorm_min();
constexpr double kTop = std::numeric_limits<double>::max();

std::vector<Domain> odd_domains() {
  return {uniform(3, 3),
          uniform(-0.0, 0.0),
          uniform(0, kTiny),
          uniform(-kTiny, 3 * kTiny),
          uniform(-kTop / 2, kTop / 2),
          uniform(1e17, 1e17 + 16),
          uniform(1, std::nextafter(1.0, 2.0)),
          log_uniform(kTiny, 2 * kTiny),
          log_uniform(kTiny, kTop),
          log_uniform(5, 5),
          quantized(0, 0.3, 0.1),
          quantized(0, 1.9, 1),
          quantized(-1, 1, 0.7),
          quantized(1e9, 1e9 + 1, 0.1),
          quantized(0, 0.1, 1e-15),
          log_quantized(1, 10, 4),
          log_quantized(1e-8, 1, 1e-8),
          integers(4, 4),
          integers(-(1LL << 53), 1LL << 53),
          integers(std::numeric_limits<std::int8_t>::min(), 127),
          log_integers(1, 1LL << 53),
          log_integers(1, 2),
          normal(0, kTiny),
          normal(1e300, 1e290),
          normal(0, 1, 0.5),
          normal(5, 1, 100),
          choices({"only"})};
}

void expect_inside(const Domain& domain, double value, const std::string& who) {
  EXPECT_TRUE(contains(domain, value))
      << who << " drew " << show_number(value) << " of " << show(domain);
  EXPECT_GE(value, domain.low) << who << " of " << show(domain);
  EXPECT_LE(value, domain.high) << who << " of " << show(domain);
}

TEST(Domains, WhateverIsDrawnLiesInside) {
  for (const Domain& domain : odd_domains()) {
    const SearchSpace space{{{"x", domain}}};
    for (const AnySearcher& settings :
         {AnySearcher(RandomSearch{}), AnySearcher(Halton{}), AnySearcher(Tpe{.startup_trials = 4}),
          AnySearcher(GridSearch{7})}) {
      const auto searcher = make_searcher(settings, space, minimize, 5);
      for (int i = 0; i < 60; ++i) {
        const auto point = searcher->ask(i);
        if (!point) break;
        expect_inside(domain, (*point)[0], show(settings));
        searcher->tell({.trial = i, .score = i % 7 == 0 ? HUGE_VAL : (*point)[0]});
      }
    }
    PbtScheduler pbt(Pbt{}, {space, minimize, 4, 3});
    Random random(2);
    Point point = space.sample(random);
    for (int i = 0; i < 200; ++i) {
      point = pbt.explore(point, random);
      expect_inside(domain, point[0], "pbt");
    }
    for (const double u : {0.0, 1e-300, 0.5, 1 - 0x1p-53})
      expect_inside(domain, at_quantile(domain, u), "a quantile");
    for (const double far : {-HUGE_VAL, -kTop, -kTiny, 0.0, kTiny, kTop, HUGE_VAL, std::nan("")}) {
      if (domain.kind == Domain::Kind::normal && std::isinf(far)) continue;
      expect_inside(domain, clamp(domain, far), "clamp");
    }
    EXPECT_FALSE(show(domain, std::nan("")).empty());
    EXPECT_FALSE(show(domain, -kTop).empty());
  }
}

template <class F>
bool refused(F make) {
  try {
    make();
  } catch (const InvalidArgument& error) {
    return !error.message().empty();
  }
  return false;
}

TEST(Domains, WhatADoubleCannotCountIsRefused) {
  constexpr long long most = 1LL << 53;
  EXPECT_FALSE(refused([] { integers(-most, most); }));
  EXPECT_TRUE(refused([] { integers(most, most + 1); }));  // as doubles both are the same number
  EXPECT_TRUE(refused([] { integers(-most - 1, 0); }));
  EXPECT_TRUE(refused([] { log_integers(1, most + 1); }));
  EXPECT_TRUE(refused([] { log_integers(0, 5); }));
  EXPECT_TRUE(refused([] { integers(std::numeric_limits<long long>::min(), 0); }));
  EXPECT_TRUE(refused([] { integers(0, std::numeric_limits<long long>::max()); }));
  EXPECT_TRUE(refused([] { quantized(0, 1, kTiny); }));
  EXPECT_TRUE(refused([] { quantized(0, kTop, 1e-5); }));
  EXPECT_TRUE(refused([] { quantized(0, 1, HUGE_VAL); }));
  EXPECT_TRUE(refused([] { quantized(0, 1, 2); }));
  EXPECT_TRUE(refused([] { log_quantized(0, 1, 0.1); }));
  EXPECT_TRUE(refused([] { log_uniform(0, 1); }));
  EXPECT_TRUE(refused([] { log_uniform(-kTiny, 1); }));
  EXPECT_TRUE(refused([] { normal(0, 1, HUGE_VAL); }));
  EXPECT_TRUE(refused([] { normal(0, 1, kTiny); }));
  EXPECT_TRUE(refused([] { normal(0, 1, std::nan("")); }));
  EXPECT_TRUE(refused([] { choices({}); }));
  EXPECT_TRUE(refused([] {
    make_searcher(GridSearch{std::numeric_limits<int>::max()}, {{{"x", uniform(0, 1)}}}, minimize,
                  1);
  }));
  EXPECT_TRUE(refused([] { make_searcher(Tpe{.startup_trials = -1}, {}, minimize, 1); }));
}

TEST(Domains, ARangeWithoutStepsEndsAtItsBounds) {
  EXPECT_FALSE(contains(uniform(0, 1e9), -0.5));
  EXPECT_FALSE(contains(uniform(0, 1e9), 1e9 + 0.5));
  EXPECT_FALSE(contains(log_uniform(1e-12, 1), -1e-10));
  EXPECT_TRUE(contains(uniform(0, 1e9), 1e9));
  EXPECT_FALSE(contains(quantized(0, 1e9, 0.5), 0.25));
  EXPECT_FALSE(contains(integers(0, 1LL << 53), 0.5));
  for (const double whole : {-0x1p53, 1 - 0x1p53, -1.0, 0.0, 1.0, 0x1p53 - 1, 0x1p53})
    EXPECT_TRUE(contains(integers(-(1LL << 53), 1LL << 53), whole)) << whole;
}

/// The tolerance for values on the grid depends on the bounds, not on the value.
TEST(Domains, ValuesOnTheGridAreInsideAndThoseBesideItAreNot) {
  EXPECT_TRUE(contains(quantized(-1e7, 1e7, 0.1), 0.3));
  EXPECT_TRUE(contains(quantized(-1e7, 0.3, 0.1), 0.3));
  EXPECT_FALSE(contains(quantized(-1e7, 1e7, 0.1), 0.30001));
  EXPECT_FALSE(contains(quantized(-1e15, 1e15, 1), 0.5));
  EXPECT_TRUE(contains(normal(0, 1, 0.1), 0.3));
  EXPECT_FALSE(contains(normal(0, 1, 0.1), 0.3001));
  EXPECT_FALSE(contains(integers(0, 1'000'000'000'000'000), 1e15 + 1));
  EXPECT_FALSE(contains(integers(0, 1'000'000'000'000'000), -1));
  EXPECT_FALSE(contains(integers(0, 1'000'000'000'000'000), 1e14 + 0.0625));
  EXPECT_FALSE(contains(choices({"a", "b"}), 1 - 1e-10));
}

struct Limits {
  std::int8_t small = 0;
  std::uint64_t wide = 0;
  bool flag = false;
  double rate = 0;
};

TEST(Domains, MembersAtTheirLimits) {
  auto space = Space<Limits>{}
                   .with(&Limits::small, integers(-128, 127))
                   .with(&Limits::wide, integers(0, 1LL << 53))
                   .with(&Limits::flag, integers(0, 1));
  const Limits top = space.from_point({127, 0x1p53, 1});
  EXPECT_EQ(top.small, 127);
  EXPECT_EQ(top.wide, std::uint64_t{1} << 53);
  EXPECT_TRUE(top.flag);
  EXPECT_EQ(space.to_point(top), (Point{127, 0x1p53, 1}));
  EXPECT_EQ(space.from_point({-128, 0, 0}).small, -128);
  const Limits far = space.from_point({1e300, -1e300, std::nan("")});
  EXPECT_EQ(far.small, 127);
  EXPECT_EQ(far.wide, 0U);
  EXPECT_FALSE(far.flag);
  EXPECT_TRUE(refused([] { Space<Limits>{}.with(&Limits::small, integers(-129, 0)); }));
  EXPECT_TRUE(refused([] { Space<Limits>{}.with(&Limits::wide, integers(-1, 0)); }));
  EXPECT_TRUE(refused([] { Space<Limits>{}.with(&Limits::flag, integers(0, 2)); }));
}

TEST(Domains, AnOptionThatDoesNotExistIsRefused) {
  auto space = Space<Limits>{}.with(&Limits::rate, choice(0.1, 0.2));
  EXPECT_EQ(space.from_point({1}).rate, 0.2);
  for (const double no : {2.0, -1.0, 1e300, -HUGE_VAL, std::nan("")})
    EXPECT_TRUE(refused([&] { space.from_point({no}); })) << no;
  EXPECT_TRUE(refused([] { Space<Limits>{}.with(&Limits::rate, Choice<double>{}); }));
  const auto only = Space<Limits>{}.with(&Limits::rate, choice(0.5));
  EXPECT_EQ(only.from_point({0}).rate, 0.5);
}

/// Columns of files and the first line of the log show options as text, so different options need
/// different texts.
TEST(Domains, OptionsThatDifferAreShownDifferently) {
  const auto shown = [](const auto& options, auto member) {
    return Space<Limits>{}.with(member, options).search().parameters[0].domain.options;
  };
  const std::vector<std::string> rates = shown(choice(0.1, 0.10000001, 1e-7), &Limits::rate);
  EXPECT_EQ(rates, (std::vector<std::string>{"0.1", "0.10000001", "1e-07"}));
  const std::vector<std::string> bytes =
      shown(choice(std::int8_t{-1}, std::int8_t{65}), &Limits::small);
  EXPECT_EQ(bytes, (std::vector<std::string>{"-1", "65"}));
  EXPECT_EQ(shown(choice(0.1F, 0.3F), &Limits::rate), (std::vector<std::string>{"0.1", "0.3"}));
}

}  // namespace
}  // namespace troupe::tune::domains_test
