/// Tests the error that a function's caller gets when an exception leaves the function: whether
/// the function has run, and the inner error. The error stays small however deep functions wait
/// for functions.
#include "tests/runtime/front/inline_engine.hpp"

#include <gtest/gtest.h>

#include <stdexcept>

namespace inner_errors {
namespace {

using troupe::Code;
using troupe::Context;
using troupe::Error;
using troupe::Outcome;
using troupe::Ref;
using troupe::Task;
using troupe::detail::Phase;
using troupe::testing::InlineEngine;

/// A value that cannot be decoded while `is_bad`.
struct Fragile {
  static inline bool is_bad = false;
  int x = 0;
  Fragile() {
    if (is_bad) throw std::runtime_error("cannot be made");
  }
  explicit Fragile(int value) : x(value) {}
  friend auto fields(Fragile& value) { return std::tie(value.x); }
};

int waits_for(Context& ctx, Ref<int> inner) {
  return ctx.get(inner);
}
Task<int> awaits(Ref<int> inner) {
  co_return co_await inner;
}
Ref<int> gives_nothing() {
  return {};
}
int takes(Fragile value) {
  return value.x;
}
int nested(Context& ctx, int levels, Ref<int> bottom) {
  return levels == 0 ? ctx.get(bottom) : ctx.get(ctx.submit<nested>(levels - 1, bottom));
}
int fails_below(Context& ctx, int levels) {
  if (levels == 0) throw std::out_of_range("no such row");
  return ctx.get(ctx.submit<fails_below>(levels - 1));
}

template <class T>
Error error_of(const Context& ctx, const Ref<T>& ref) {
  return ctx.try_get(ref).error();
}
int depth_of(const Error& error) {
  int depth = 0;
  for (const troupe::ErrorInfo* one = &error.info(); one != nullptr; one = one->cause.get())
    ++depth;
  return depth;
}

TEST(InnerErrors, one_that_was_never_executed_leaves_a_function_that_was) {
  InlineEngine engine;
  const Context ctx = engine.context();
  const auto inner = engine.promise<int>();
  const auto waiting = ctx.submit<waits_for>(inner);
  engine.break_promise(inner, Error(Code::infeasible, "no node has so much"));
  const auto awaiting = ctx.submit<awaits>(inner);
  for (const Error& error : {error_of(ctx, waiting), error_of(ctx, awaiting)}) {
    EXPECT_EQ(error.code(), Code::task_failed);
    EXPECT_EQ(error.outcome(), Outcome::executed);
    EXPECT_EQ(error.message(), "infeasible inside: no node has so much");
    EXPECT_TRUE(error.is<troupe::Infeasible>());
    ASSERT_NE(error.cause(), nullptr);
    EXPECT_EQ(error.cause()->code(), Code::infeasible);
    EXPECT_EQ(error.cause()->outcome(), Outcome::not_executed);
  }
}

TEST(InnerErrors, a_coroutine_that_has_waited_has_run_too) {
  InlineEngine engine;
  const Context ctx = engine.context();
  const auto inner = engine.promise<int>();
  const auto awaiting = ctx.submit<awaits>(inner);
  engine.drain();
  engine.break_promise(inner, Error(Code::invalid_argument, "an empty name"));
  engine.drain();
  const Error error = error_of(ctx, awaiting);
  EXPECT_EQ(error.code(), Code::task_failed);
  EXPECT_EQ(error.outcome(), Outcome::executed);
  ASSERT_NE(error.cause(), nullptr);
  EXPECT_EQ(error.cause()->code(), Code::invalid_argument);
}

TEST(InnerErrors, arguments_that_cannot_be_decoded_run_nothing) {
  InlineEngine engine;
  const Context ctx = engine.context();
  const auto call = ctx.submit<takes>(Fragile(1));
  Fragile::is_bad = true;
  const Error error = error_of(ctx, call);
  Fragile::is_bad = false;
  EXPECT_EQ(error.code(), Code::task_failed);
  EXPECT_EQ(error.message(), "cannot be made");
  EXPECT_EQ(error.outcome(), Outcome::not_executed);
}

TEST(InnerErrors, a_result_that_cannot_be_published_was_executed) {
  InlineEngine engine;
  const Context ctx = engine.context();
  const Error empty = error_of(ctx, ctx.submit<gives_nothing>());
  EXPECT_EQ(empty.code(), Code::invalid_argument);
  EXPECT_EQ(empty.outcome(), Outcome::executed);
}

TEST(InnerErrors, the_innermost_stays_and_the_chain_is_bounded) {
  InlineEngine engine;
  const Context ctx = engine.context();
  const auto bottom = engine.promise<int>();
  engine.break_promise(bottom, Error(Code::infeasible, "no node has so much"));
  const Error error = error_of(ctx, ctx.submit<nested>(100, bottom));
  EXPECT_EQ(error.message(), "infeasible inside: no node has so much");
  EXPECT_EQ(depth_of(error), 9);
  auto innermost = error.cause();
  while (innermost->cause()) innermost = innermost->cause();
  EXPECT_EQ(innermost->code(), Code::infeasible);

  const Error users = error_of(ctx, ctx.submit<fails_below>(100));
  EXPECT_EQ(users.message(), "task_failed inside: no such row");
  EXPECT_EQ(depth_of(users), 9);
  innermost = users.cause();
  while (innermost->cause()) innermost = innermost->cause();
  EXPECT_TRUE(innermost->is<std::out_of_range>());
}

TEST(InnerErrors, the_phase_decides) {
  const auto become = [](Phase phase, const Error& error) {
    try {
      raise(error);
    } catch (...) {
      return troupe::detail::error_from_current_exception("f(int)", phase);
    }
  };
  const Error lost(Code::object_lost, "gone", Outcome::unknown);
  EXPECT_EQ(become(Phase::arguments, lost).code(), Code::object_lost);
  EXPECT_EQ(become(Phase::arguments, lost).outcome(), Outcome::not_executed);
  EXPECT_EQ(become(Phase::arguments, lost).where().function, "f(int)");
  EXPECT_EQ(become(Phase::running, lost).code(), Code::task_failed);
  EXPECT_EQ(become(Phase::running, lost).outcome(), Outcome::executed);
  EXPECT_EQ(become(Phase::results, lost).code(), Code::object_lost);
  EXPECT_EQ(become(Phase::results, lost).outcome(), Outcome::executed);
}

}  // namespace
}  // namespace inner_errors
