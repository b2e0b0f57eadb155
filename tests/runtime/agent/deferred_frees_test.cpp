// Frees wait for the messages that they may follow, also when a pass ends before all was read.
#include "troupe/runtime/agent/deferred_frees.hpp"

#include <gtest/gtest.h>

namespace troupe::agent::deferred_frees_test {
namespace {

wire::Location at(std::uint32_t slot) {
  wire::Location location;
  location.slot = slot;
  return location;
}

std::vector<std::uint32_t> due(DeferredFrees& frees) {
  std::vector<std::uint32_t> slots;
  for (const wire::Location& location : frees.take_due()) slots.push_back(location.slot);
  return slots;
}

using Slots = std::vector<std::uint32_t>;

TEST(DeferredFrees, AreDueWhenNothingIsReadyAnyMore) {
  DeferredFrees frees;
  frees.add(at(1));
  frees.pass_begins();
  frees.add(at(2));
  frees.pass_ended(true);
  EXPECT_EQ(due(frees), (Slots{1, 2}));
  EXPECT_TRUE(frees.empty());
}

TEST(DeferredFrees, WaitAnotherPassIfSomeRingsWereNotRead) {
  DeferredFrees frees;
  frees.add(at(1));
  frees.pass_begins();
  frees.add(at(2));  // the Adopt that it follows may be in a ring that is still unread
  frees.pass_ended(false);
  EXPECT_EQ(due(frees), (Slots{1}));
  frees.add(at(3));
  frees.pass_begins();
  frees.add(at(4));
  frees.pass_ended(false);
  EXPECT_EQ(due(frees), (Slots{2, 3}));
  EXPECT_FALSE(frees.empty());
}

TEST(DeferredFrees, StayWhenTheyAreNotTaken) {  // a dying process's ring is unread
  DeferredFrees frees;
  frees.pass_begins();
  frees.add(at(1));
  frees.pass_ended(false);
  frees.pass_begins();
  frees.pass_ended(true);
  EXPECT_EQ(due(frees), (Slots{1}));
  EXPECT_EQ(due(frees), (Slots{}));
}

}  // namespace
}  // namespace troupe::agent::deferred_frees_test
