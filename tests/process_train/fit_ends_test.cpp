// Tests how a run ends when a rank throws, leaves, or meets a failure of the infrastructure. The
// user's own error ends it at once, with the user's text. A failure restarts it.
#include "troupe/train/train.hpp"
#include "troupe/troupe.hpp"

#include <gtest/gtest.h>
#include <csignal>
#include <stdexcept>
#include <string>
#include <thread>

namespace fit_ends {

using namespace std::chrono_literals;
namespace train = troupe::train;

/// Far below the 30 s that a rank waits for a missing one, and far above the time of a start.
constexpr auto kAtOnce = 15s;

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// Returns the error in which `run` ends; it must come at once.
template <class E, class Run>
E error_of(const Run& run) {
  const troupe::Time begun = troupe::steady_now();
  try {
    run();
  } catch (const E& error) {
    EXPECT_LT(troupe::steady_now() - begun, kAtOnce);
    return error;
  } catch (const troupe::Error& error) {
    ADD_FAILURE() << name_of(error.code()) << ": " << error.what();
  }
  ADD_FAILURE() << "no error of that class";
  return E(troupe::Code::internal, "none");
}

struct Plan {
  std::string what;
  int rank = 1;
};

struct Oops : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct Silent : std::exception {
  const char* what() const noexcept override { return nullptr; }
};

/// Runs twenty steps with one sum each. `plan` names the rank that fails in step 10, and how.
void loop(train::Worker& w, const Plan& plan) {
  std::vector<float> values(1000);
  while (w.step() < 20) {
    w.next_step();
    std::span<float> sum(values);
    if (w.rank() == plan.rank && w.step() == 10) {
      if (plan.what == "size") sum = sum.first(7);
      if (plan.what == "throw") throw Oops("a bug of the loop");
      if (plan.what == "silent") throw Silent();
      if (plan.what == "number") throw 42;
      if (plan.what == "argument")
        throw troupe::InvalidArgument(troupe::Code::invalid_argument, "no such layer");
      if (plan.what == "return") return;
      if (plan.what == "skip") continue;
      if (w.incarnation() == 0) {
        if (plan.what == "lost")
          throw troupe::ObjectLost(troupe::Code::object_lost, "its node has gone");
        if (plan.what == "unavailable")
          throw troupe::Unavailable(troupe::Code::unavailable, "control does not answer");
        if (plan.what == "kill") ::raise(SIGKILL);
      }
    }
    w.all_reduce_mean(sum);
    w.report({.step = w.step(), .loss = 1.0 / static_cast<double>(w.step())});
  }
}

struct FitEnds : testing::Test {
  troupe::Session session{{.cpus = 2}};
  troupe::Context ctx = session.context();
  train::FitOptions three{.workers = 3, .max_restarts = 3};

  troupe::TaskFailed failure(const Plan& plan) {
    return error_of<troupe::TaskFailed>([&] { train::fit<loop>(ctx, three, plan); });
  }
};

TEST_F(FitEnds, SizesThatDifferAreTheUsersError) {
  for (const int rank : {0, 1}) {
    const auto error = failure({"size", rank});
    EXPECT_TRUE(says(error.message(), "rank " + std::to_string(rank) + " made another call"))
        << error.message();
    EXPECT_TRUE(says(error.message(), "at step 10")) << error.message();
    ASSERT_NE(error.cause(), nullptr);
    EXPECT_EQ(error.cause()->code(), troupe::Code::invalid_argument);
  }
}

TEST_F(FitEnds, WhatALoopThrowsIsWhatTheUserReads) {
  for (const int rank : {0, 1}) {
    const auto error = failure({"throw", rank});
    EXPECT_TRUE(says(error.message(), "worker " + std::to_string(rank))) << error.message();
    EXPECT_TRUE(says(error.message(), "at step 10: a bug of the loop")) << error.message();
    EXPECT_TRUE(error.is<Oops>());
  }
}

TEST_F(FitEnds, OddExceptionsAreReportedToo) {
  EXPECT_TRUE(says(failure({"number"}).message(), "int"));
  EXPECT_TRUE(failure({"silent"}).is<Silent>());
  const auto error = failure({"argument"});
  EXPECT_TRUE(says(error.message(), "no such layer"));
  ASSERT_NE(error.cause(), nullptr);
  EXPECT_EQ(error.cause()->code(), troupe::Code::invalid_argument);
}

TEST_F(FitEnds, ARankThatReturnsEarlyIsNamedAtOnce) {
  for (const int rank : {0, 1, 2}) {
    const auto error = failure({"return", rank});
    const std::string who = "worker " + std::to_string(rank) + " returned from the loop at step 10";
    EXPECT_TRUE(says(error.message(), who)) << error.message();
  }
}

TEST_F(FitEnds, ARankThatLeavesOneCallOutEndsTheRun) {
  const auto error = failure({"skip"});
  EXPECT_TRUE(says(error.message(), "worker 1 returned from the loop at step 20"))
      << error.message();
}

TEST_F(FitEnds, AFailureOfTheInfrastructureIsARestart) {
  for (const char* what : {"lost", "unavailable", "kill"}) {
    const train::Fit fit = train::fit<loop>(ctx, three, Plan{what});
    EXPECT_EQ(fit.restarts(), 1) << what;
    EXPECT_EQ(fit.history().size(), 20u) << what;
    EXPECT_FALSE(fit.failures().empty());
  }
}

TEST_F(FitEnds, WithoutRestartsLeftTheFailureIsNamed) {
  three.max_restarts = 0;
  const auto error =
      error_of<troupe::WorkerDied>([&] { train::fit<loop>(ctx, three, Plan{"lost"}); });
  EXPECT_TRUE(says(error.message(), "its node has gone")) << error.message();
  ASSERT_NE(error.cause(), nullptr);
  EXPECT_EQ(error.cause()->code(), troupe::Code::object_lost);
}

/// A type whose value cannot be decoded in the worker.
struct Picky {
  int value = 0;
  friend auto fields(Picky& p) {
    if (p.value == 0) throw std::runtime_error("Picky cannot be made here");
    return std::tie(p.value);
  }
  friend auto fields(const Picky& p) { return std::tie(p.value); }
};
void takes_picky(train::Worker&, const Picky&) {}

TEST_F(FitEnds, AnArgumentThatCannotBeMadeEndsTheRun) {
  const auto error =
      error_of<troupe::TaskFailed>([&] { train::fit<takes_picky>(ctx, three, Picky{.value = 1}); });
  EXPECT_TRUE(says(error.message(), "Picky cannot be made here")) << error.message();
}

int fails(int) {
  throw std::runtime_error("no data today");
}
int slow(int x) {
  std::this_thread::sleep_for(300ms);
  return x;
}
void takes_number(train::Worker& w, int x) {
  w.next_step();
  w.report({.step = x});
}

TEST_F(FitEnds, AnArgumentThatIsATasksResultIsWaitedFor) {
  EXPECT_EQ(train::fit<takes_number>(ctx, three, ctx.submit<slow>(5)).last().step, 5);
  const auto error = error_of<troupe::TaskFailed>(
      [&] { train::fit<takes_number>(ctx, three, ctx.submit<fails>(5)); });
  EXPECT_TRUE(says(error.message(), "no data today")) << error.message();
}

TEST_F(FitEnds, WhatNoNodeHasIsInfeasible) {
  for (const double cpus : {2.0, 3.0}) {
    three.cpus_per_worker = cpus;
    const auto error = error_of<troupe::Infeasible>([&] { train::fit<loop>(ctx, three, Plan{}); });
    EXPECT_TRUE(says(error.message(), "CPU")) << error.message();
  }
}

}  // namespace fit_ends
