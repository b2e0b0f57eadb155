// Tests coroutines that wait for another thread of their process.
#include "troupe/runtime/async_event.hpp"
#include "tests/runtime/front/inline_engine.hpp"
#include "troupe/runtime/task.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>

namespace async_events {

using troupe::Context;
using troupe::Task;
using troupe::testing::InlineEngine;

/// State that the actor below and the thread that wakes it share; each test uses one.
struct Shared {
  troupe::AsyncEvent changed;
  int value = 0;
};
std::unique_ptr<Shared> shared;

struct Waiter {
  std::shared_ptr<int> held = nullptr;  ///< held by a waiting call
  Task<int> next() {
    co_await shared->changed;
    co_return shared->value;
  }
  Task<int> hold() {
    const std::shared_ptr<int> mine = held = std::make_shared<int>(1);
    co_await shared->changed;
    co_return *mine;
  }
  int plain() { return 7; }
};

struct AsyncEvents : ::testing::Test {
  AsyncEvents() { shared = std::make_unique<Shared>(); }
  ~AsyncEvents() override { shared.reset(); }
  InlineEngine engine;
  Context ctx = engine.context();
  troupe::Actor<Waiter> waiter = ctx.spawn<Waiter>();
};

TEST_F(AsyncEvents, ACallWaitsForAnotherThreadAndOthersRunMeanwhile) {
  const auto waits = waiter.call<&Waiter::next>();
  EXPECT_EQ(ctx.get(waiter.call<&Waiter::plain>()), 7);
  engine.drain();
  EXPECT_FALSE(ctx.try_get(waits, troupe::Duration::zero()));
  std::thread([] {
    shared->value = 5;
    shared->changed.set();
  }).join();
  EXPECT_EQ(ctx.get(waits), 5);
}

TEST_F(AsyncEvents, WhatWasSetBeforeTheWaitServesOneWait) {
  shared->value = 3;
  shared->changed.set();
  shared->changed.set();
  EXPECT_EQ(ctx.get(waiter.call<&Waiter::next>()), 3);
  const auto second = waiter.call<&Waiter::next>();
  engine.drain();
  EXPECT_FALSE(ctx.try_get(second, troupe::Duration::zero()));
  shared->changed.set();
  EXPECT_EQ(ctx.get(second), 3);
}

TEST_F(AsyncEvents, ASecondWaiterIsAnErrorAndTheFirstGoesOn) {
  const auto first = waiter.call<&Waiter::next>();
  const auto second = waiter.call<&Waiter::next>();
  EXPECT_THROW(ctx.get(second), troupe::TaskFailed);
  shared->changed.set();
  EXPECT_EQ(ctx.get(first), 0);
}

TEST_F(AsyncEvents, TheEndOfTheEventFreesWhoWaits) {
  static_cast<void>(waiter.call<&Waiter::hold>());
  engine.drain();
  shared.reset();  // LeakSanitizer would report a frame that is left
}

}  // namespace async_events
