// Tests the order of calls under way while the queue grows and calls leave from the middle.
#include "troupe/runtime/client/flight_queue.hpp"

#include <gtest/gtest.h>
#include <algorithm>
#include <deque>
#include <random>
#include <vector>

namespace troupe::client {
namespace {

struct Call {
  std::uint64_t sequence = 0;
};
using Queue = FlightQueue<std::unique_ptr<Call>>;

void send(Queue& queue, std::uint64_t sequence) {
  queue.make_room();
  queue.push_back(std::make_unique<Call>(Call{sequence}));
}
std::vector<std::uint64_t> sequences(const Queue& queue) {
  std::vector<std::uint64_t> all;
  for (std::size_t i = 0; i < queue.size(); ++i) all.push_back(queue[i]->sequence);
  return all;
}

TEST(FlightQueueTest, StaysInOrderWhileItGrowsAroundItsEnd) {
  Queue queue;
  std::uint64_t sent = 0, ended = 0;
  for (int round = 1; round <= 40; ++round) {
    for (int i = 0; i < 3; ++i) send(queue, ++sent);
    for (int i = 0; i < 2; ++i) {
      ASSERT_EQ(queue.find(++ended), 0u);
      ASSERT_EQ(queue.take(0)->sequence, ended);
    }
  }
  ASSERT_EQ(queue.size(), sent - ended);
  for (std::size_t i = 0; i < queue.size(); ++i) EXPECT_EQ(queue[i]->sequence, ended + 1 + i);
}

TEST(FlightQueueTest, FindsEachAndTakesItFromWhereverItIs) {
  Queue queue;
  for (std::uint64_t i = 0; i < 12; ++i) send(queue, i);
  for (std::uint64_t i = 0; i < 12; ++i) queue.take(0);
  for (std::uint64_t i = 10; i <= 80; i += 10) send(queue, i);  // around the end of its storage
  for (std::uint64_t i = 10; i <= 80; i += 10) EXPECT_EQ(queue.find(i), i / 10 - 1);
  for (const std::uint64_t none : {0, 15, 75, 90}) EXPECT_EQ(queue.find(none), queue.size());
  for (const std::uint64_t one : {20, 70, 80, 10})
    EXPECT_EQ(queue.take(queue.find(one))->sequence, one);
  EXPECT_EQ(sequences(queue), (std::vector<std::uint64_t>{30, 40, 50, 60}));
  EXPECT_EQ(queue.find(20), queue.size());
}

// Whatever order calls leave in, the queue holds what a deque would.
TEST(FlightQueueTest, AnyOrderOfStepsLeavesWhatADequeWouldHold) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    Queue queue;
    std::deque<std::uint64_t> model;
    std::uint64_t sequence = 0;
    const std::uint64_t of_ten_are_sent = 4 + seed % 4;
    for (int step = 0; step < 500; ++step) {
      if (random() % 10 < of_ten_are_sent) {
        send(queue, sequence += 1 + random() % 3);
        model.push_back(sequence);
      } else if (!model.empty()) {
        const std::size_t at = random() % 2 == 0 ? 0 : random() % model.size();
        ASSERT_EQ(queue.find(model[at]), at);
        ASSERT_EQ(queue.take(at)->sequence, model[at]);
        model.erase(model.begin() + static_cast<std::ptrdiff_t>(at));
      }
      const std::uint64_t any = random() % (sequence + 2);
      const auto there = std::find(model.begin(), model.end(), any);
      ASSERT_EQ(queue.find(any), static_cast<std::size_t>(there - model.begin()));
      ASSERT_EQ(queue.empty(), model.empty());
    }
    EXPECT_EQ(sequences(queue), std::vector<std::uint64_t>(model.begin(), model.end()));
  }
}

}  // namespace
}  // namespace troupe::client
