// Tests search spaces over the members of a struct, and the domains of parameters.
#include "troupe/tune/space.hpp"

#include <gtest/gtest.h>
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>

namespace troupe::tune {
namespace {

struct Hp {
  double lr = 0.5;
  int width = 3;
  std::string optimizer = "none";
  double decay = 0;
  bool nesterov = false;
  float dropout = 0.25F;
};

Space<Hp> full_space() {
  return Space<Hp>{}
      .with(&Hp::lr, log_uniform(1e-5, 1e-1))
      .with(&Hp::width, integers(16, 512))
      .with(&Hp::optimizer, choice("adam", "sgd"))
      .with(&Hp::nesterov, choice(false, true))
      .derive(&Hp::decay, [](const Hp& hp) { return hp.lr / 10; });
}

TEST(Space, ParametersAreNamedAfterTheirMembers) {
  const auto space = full_space();
  ASSERT_EQ(space.search().size(), 4U);
  EXPECT_EQ(space.search().parameters[0].name, "lr");
  EXPECT_EQ(space.search().parameters[1].name, "width");
  EXPECT_EQ(space.search().parameters[2].name, "optimizer");
  EXPECT_EQ(space.search().parameters[3].name, "nesterov");
}

class Private {
 public:
  Private() = default;
  explicit Private(int) {}
  double rate = 0;
};

TEST(Space, OtherWaysToName) {
  EXPECT_EQ(Space<Private>{}.with(&Private::rate, uniform(0, 1)).search().parameters[0].name, "p0");
  EXPECT_EQ(Space<Private>{}.with<&Private::rate>(uniform(0, 1)).search().parameters[0].name,
            "rate");
  EXPECT_EQ(Space<Hp>{}.with("learning rate", &Hp::lr, uniform(0, 1)).search().parameters[0].name,
            "learning rate");
}

TEST(Space, PointsBecomeStructsAndComeBack) {
  const auto space = full_space();
  Random random(7);
  for (int i = 0; i < 200; ++i) {
    const Point point = space.search().sample(random);
    EXPECT_NO_THROW(space.search().check(point));
    const Hp hp = space.from_point(point);
    EXPECT_EQ(space.to_point(hp), point);
    EXPECT_GE(hp.lr, 1e-5);
    EXPECT_LE(hp.lr, 1e-1);
    EXPECT_GE(hp.width, 16);
    EXPECT_LE(hp.width, 512);
    EXPECT_TRUE(hp.optimizer == "adam" || hp.optimizer == "sgd");
    EXPECT_DOUBLE_EQ(hp.decay, hp.lr / 10);
    EXPECT_EQ(hp.dropout, 0.25F);  // untouched
  }
}

template <class F>
std::string message_of(F f) {
  try {
    f();
  } catch (const InvalidArgument& e) {
    return e.message();
  }
  return "no error";
}

TEST(Space, MistakesAreExplained) {
  EXPECT_NE(message_of([] { log_uniform(0, 1); }).find("log scale"), std::string::npos);
  EXPECT_NE(message_of([] { uniform(2, 1); }).find("above the upper"), std::string::npos);
  EXPECT_NE(message_of([] { uniform(0, NAN); }).find("finite"), std::string::npos);
  EXPECT_NE(message_of([] { quantized(0, 1, 0); }).find("step"), std::string::npos);
  EXPECT_NE(message_of([] { normal(0, 0); }).find("deviation"), std::string::npos);
  EXPECT_EQ(message_of([] { Space<Hp>{}.with(&Hp::width, uniform(1, 8)); }),
            "tune::Space: width is a whole number and uniform(1, 8) makes fractions; use "
            "tune::integers(low, high)");
  EXPECT_EQ(message_of([] {
              Space<Hp>{}.with(&Hp::lr, uniform(0, 1)).with("again", &Hp::lr, uniform(0, 1));
            }),
            "tune::Space: again is already a parameter (lr)");
  EXPECT_EQ(message_of([] { full_space().start_at({.lr = 7, .width = 20, .optimizer = "sgd"}); }),
            "lr = 7: outside log_uniform(1e-05, 0.1)");
  EXPECT_EQ(message_of([] { full_space().start_at({.lr = 1e-3, .width = 20, .optimizer = "x"}); }),
            "tune::Space: optimizer holds none of its options");
}

struct Narrow {
  std::uint8_t byte = 0;
  int whole = 0;
  float ratio = 0;
  long long wide = 0;
};

TEST(Space, AMemberThatCannotHoldTheDomainIsRefused) {
  EXPECT_EQ(
      message_of([] { Space<Narrow>{}.with(&Narrow::byte, integers(0, 300)); }),
      "tune::Space: byte holds 0 to 255 and integers(0, 300) goes beyond; narrow it, or take a "
      "larger type");
  EXPECT_NE(
      message_of([] { Space<Narrow>{}.with(&Narrow::byte, integers(-1, 3)); }).find("0 to 255"),
      std::string::npos);
  EXPECT_NE(message_of([] {
              Space<Narrow>{}.with(&Narrow::whole, integers(0, 5'000'000'000));
            }).find("whole holds"),
            std::string::npos);
  EXPECT_NE(message_of([] {
              Space<Narrow>{}.with(&Narrow::ratio, uniform(0, 1e39));
            }).find("ratio holds"),
            std::string::npos);
  EXPECT_NE(message_of([] { uniform(-1.7e308, 1.7e308); }).find("wider than a double"),
            std::string::npos);
  EXPECT_NE(message_of([] { integers(0, 1LL << 60); }).find("2^53"), std::string::npos);
  EXPECT_NE(message_of([] { normal(0, 1e308); }).find("larger than a double"), std::string::npos);
  EXPECT_EQ(message_of([] { Space<Narrow>{}.with(&Narrow::byte, integers(0, 255)); }), "no error");
  // A scheduler may leave the domain, but never causes undefined behaviour.
  const auto space = Space<Narrow>{}
                         .with(&Narrow::byte, integers(0, 255))
                         .with(&Narrow::whole, integers(0, 9))
                         .with(&Narrow::wide, integers(0, 9));
  const Narrow far = space.from_point({300, 1e12, 1e30});
  EXPECT_EQ(far.byte, 255);
  EXPECT_EQ(far.whole, std::numeric_limits<int>::max());
  EXPECT_EQ(far.wide, std::numeric_limits<long long>::max());
}

TEST(Space, AFloatIsInsideWhereItsDoubleIs) {
  auto space = Space<Narrow>{}.with(&Narrow::ratio, uniform(0, 0.1));
  EXPECT_NO_THROW(space.start_at({.ratio = 0.1F}));
  EXPECT_EQ(space.starts()[0][0], 0.1);
  auto steps = Space<Narrow>{}.with(&Narrow::ratio, quantized(0, 1, 0.1));
  EXPECT_NO_THROW(steps.start_at({.ratio = 0.3F}));
  EXPECT_EQ(message_of([&] { space.start_at({.ratio = 0.100001F}); }),
            "ratio = " + show_number(double(0.100001F)) + ": outside uniform(0, 0.1)");
}

struct WithArray {
  double lr = 0;
  double betas[2] = {0.9, 0.99};
  int width = 1;
  double grid[2][2] = {};
  bool flag = false;
};
struct Common {
  double lr = 0;
  int steps = 0;
};
struct Derived : Common {
  double extra = 0;
};

TEST(Space, ArraysAndBaseClassesInTheStruct) {
  const auto space = Space<WithArray>{}
                         .with(&WithArray::lr, uniform(0, 1))
                         .with(&WithArray::width, integers(1, 9))
                         .with(&WithArray::flag, choice(false, true));
  EXPECT_EQ(space.search().parameters[0].name, "lr");
  EXPECT_EQ(space.search().parameters[1].name, "width");
  EXPECT_EQ(space.search().parameters[2].name, "flag");
  EXPECT_EQ(space.from_point({0.5, 3, 1}).betas[1], 0.99);
  const auto derived =
      Space<Derived>{}.with(&Derived::steps, integers(1, 9)).with(&Derived::extra, uniform(0, 1));
  EXPECT_EQ(derived.search().parameters[0].name, "steps");
  EXPECT_EQ(derived.search().parameters[1].name, "p1");
  EXPECT_EQ(derived.from_point({4, 0.5}).steps, 4);
  EXPECT_EQ(derived.from_point({4, 0.5}).extra, 0.5);
}

TEST(Domain, TheLastStepOfAQuantizedRangeIsAsLikelyAsTheRest) {
  Random random(3);
  int ones = 0;
  for (int i = 0; i < 20000; ++i) ones += sample(quantized(0, 1.9, 1), random) == 1;
  EXPECT_NEAR(ones / 20000.0, 0.5, 0.015);
  EXPECT_EQ(grid_values(quantized(0, 1.9, 1), 5), (std::vector<double>{0, 1}));
}

TEST(Domain, SamplesFollowTheirDistribution) {
  Random random(1);
  double log_sum = 0;
  double normal_sum = 0;
  double normal_squares = 0;
  std::set<double> whole;
  std::set<double> steps;
  const int n = 20000;
  for (int i = 0; i < n; ++i) {
    log_sum += std::log10(sample(log_uniform(1e-4, 1e-2), random));
    const double x = sample(normal(3, 2), random);
    normal_sum += x;
    normal_squares += (x - 3) * (x - 3);
    whole.insert(sample(integers(-2, 2), random));
    steps.insert(sample(quantized(0, 1, 0.25), random));
  }
  EXPECT_NEAR(log_sum / n, -3, 0.02);
  EXPECT_NEAR(normal_sum / n, 3, 0.05);
  EXPECT_NEAR(normal_squares / n, 4, 0.15);
  EXPECT_EQ(whole, (std::set<double>{-2, -1, 0, 1, 2}));
  EXPECT_EQ(steps, (std::set<double>{0, 0.25, 0.5, 0.75, 1}));
}

TEST(Domain, EndPointsOfIntegersAreAsLikelyAsTheRest) {
  Random random(2);
  int first = 0;
  for (int i = 0; i < 30000; ++i) first += sample(integers(0, 2), random) == 0;
  EXPECT_NEAR(first / 30000.0, 1.0 / 3, 0.01);
}

TEST(Domain, SameSeedSameSample) {
  Random a(5);
  Random b(5);
  const auto space = full_space();
  EXPECT_EQ(space.search().sample(a), space.search().sample(b));
}

TEST(Domain, Grids) {
  EXPECT_EQ(grid_values(integers(1, 3), 10), (std::vector<double>{1, 2, 3}));
  EXPECT_EQ(grid_values(uniform(0, 1), 3), (std::vector<double>{0, 0.5, 1}));
  const auto log = grid_values(log_uniform(1e-4, 1e-2), 3);
  ASSERT_EQ(log.size(), 3U);
  EXPECT_NEAR(log[1], 1e-3, 1e-12);
  EXPECT_EQ(grid_values(choices({"a", "b"}), 1).size(), 2U);
}

TEST(Domain, ClampAndContain) {
  EXPECT_EQ(clamp(uniform(0, 1), 1.5), 1);
  EXPECT_EQ(clamp(integers(1, 9), 4.4), 4);
  EXPECT_EQ(clamp(quantized(0, 1, 0.3), 1.0), 0.3 * 3);
  EXPECT_TRUE(contains(quantized(0.1, 0.9, 0.1), 0.3));
  EXPECT_FALSE(contains(quantized(0.1, 0.9, 0.1), 0.35));
  EXPECT_FALSE(contains(uniform(0, 1), NAN));
  EXPECT_FALSE(contains(choices({"a", "b"}), 2));
}

TEST(Domain, ShowsForPeople) {
  EXPECT_EQ(show(log_uniform(1e-5, 1e-1)), "log_uniform(1e-05, 0.1)");
  EXPECT_EQ(show(integers(1, 512)), "integers(1, 512)");
  EXPECT_EQ(show(uniform(0, 1), 0.00312345), "0.003123");
  EXPECT_EQ(show(choices({"adam", "sgd"}), 1), "sgd");
}

}  // namespace
}  // namespace troupe::tune
