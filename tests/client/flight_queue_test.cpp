// The order of calls under way, through growth and calls that leave from the middle.
#include "troupe/runtime/client/flight_queue.hpp"

#include <gtest/gtest.h>
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
  for (std::uint64_t i = 10; i <= 80; i += 10) send(queue, i);  // around the end of its places
  for (std::uint64_t i = 10; i <= 80; i += 10) EXPECT_EQ(queue.find(i), i / 10 - 1);
  for (const std::uint64_t none : {0, 15, 75, 90}) EXPECT_EQ(queue.find(none), queue.size());
  for (const std::uint64_t one : {20, 70, 80, 10})
    EXPECT_EQ(queue.take(queue.find(one))->sequence, one);
  EXPECT_EQ(sequences(queue), (std::vector<std::uint64_t>{30, 40, 50, 60}));
  EXPECT_EQ(queue.find(20), queue.size());
}

}  // namespace
}  // namespace troupe::client
