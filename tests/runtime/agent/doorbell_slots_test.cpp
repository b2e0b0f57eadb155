/// Tests doorbell slots when there are more of them than a doorbell has marks.
#include "troupe/runtime/agent/doorbell_slots.hpp"

#include <gtest/gtest.h>

namespace troupe::agent::doorbell_slots_test {
namespace {

TEST(DoorbellSlotsTest, AMarkMeansEachSlotThatIsRungByIt) {
  ring::Doorbell bell = ring::Doorbell::create().value();
  constexpr std::uint32_t kSlot = 2 * ring::kMaxSlots + 7;
  bell.ring(kSlot);
  std::vector<std::uint32_t> marks, slots;
  ASSERT_TRUE(bell.take(marks));
  for (const std::uint32_t mark : marks)
    each_slot_of_mark(mark, kSlot + 1, [&](std::uint32_t slot) { slots.push_back(slot); });
  EXPECT_EQ(slots, (std::vector<std::uint32_t>{7, ring::kMaxSlots + 7, kSlot}));
  slots.clear();
  each_slot_of_mark(7, ring::kMaxSlots + 7, [&](std::uint32_t slot) { slots.push_back(slot); });
  EXPECT_EQ(slots, std::vector<std::uint32_t>{7});
}

}  // namespace
}  // namespace troupe::agent::doorbell_slots_test
