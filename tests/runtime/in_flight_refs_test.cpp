#include "troupe/runtime/agent/in_flight_refs.hpp"

#include <gtest/gtest.h>

namespace troupe::agent {
namespace {

constexpr ObjectId kX{1, 1}, kY{1, 2};
constexpr InFlightRefs::Process kSender = 1, kReceiver = 2, kOther = 3;

wire::Location place(std::uint32_t slot) {
  wire::Location at;
  at.segment = 1;
  at.slot = slot;
  at.generation = 7;
  at.length = 5000;
  return at;
}

TEST(InFlightRefs, WhatTheDeadNeverSentGoesBack) {
  InFlightRefs transit;
  transit.counted(kSender, kReceiver, {1, 0}, kX);
  transit.counted(kSender, kReceiver, {2, 0}, kY);
  EXPECT_FALSE(transit.adopted(kSender, kReceiver, {2, 0}, place(1)));
  const InFlightRefs::Died after = transit.died(kSender);
  EXPECT_EQ(after.asked, std::vector<InFlightRefs::Process>{kReceiver});
  EXPECT_TRUE(after.free.empty()) << "the receiver may have it";
  const InFlightRefs::Undone undone = transit.arrived(kReceiver, kSender, 1);
  EXPECT_EQ(undone.counts, std::vector<ObjectId>{kY});
  EXPECT_EQ(undone.free, std::vector<wire::Location>{place(1)});
  EXPECT_EQ(transit.objects() + transit.gifts(), 0u);
  EXPECT_TRUE(transit.arrived(kReceiver, kSender, 0).counts.empty()) << "it answers once";
}

TEST(InFlightRefs, WhatCameIsTheReceivers) {
  InFlightRefs transit;
  transit.counted(kSender, kReceiver, {1, 0}, kX);
  transit.adopted(kSender, kReceiver, {1, 0}, place(1));
  (void)transit.died(kSender);
  const InFlightRefs::Undone undone = transit.arrived(kReceiver, kSender, 1);
  EXPECT_TRUE(undone.counts.empty());
  EXPECT_TRUE(undone.free.empty());
  EXPECT_EQ(transit.died(kReceiver).free, std::vector<wire::Location>{place(1)});
}

TEST(InFlightRefs, KnowsWhatIsAnothersAndWhatMayBeTakenBack) {
  InFlightRefs transit;
  EXPECT_FALSE(transit.is_anothers(kOther, place(1))) << "nobody is known to own it";
  transit.adopted(kSender, kReceiver, {1, 0}, place(1));
  EXPECT_FALSE(transit.is_anothers(kReceiver, place(1)));
  EXPECT_TRUE(transit.is_anothers(kSender, place(1))) << "it gave it away";
  EXPECT_TRUE(transit.is_anothers(kOther, place(1)));
  transit.owned(place(1));
  EXPECT_FALSE(transit.is_anothers(kOther, place(1))) << "the owner table's is no process's";
  transit.counted(kSender, kReceiver, {2, 0}, kX);
  EXPECT_TRUE(transit.gave(kSender, kReceiver, {2, 0}, kX));
  EXPECT_FALSE(transit.gave(kSender, kReceiver, {2, 0}, kY));
  EXPECT_FALSE(transit.gave(kOther, kReceiver, {2, 0}, kX));
  transit.taken_back(kSender, kReceiver, {2, 0}, kX);
  EXPECT_FALSE(transit.gave(kSender, kReceiver, {2, 0}, kX)) << "once";
}

TEST(InFlightRefs, RemembersNoFrameThatIsInTheRing) {
  InFlightRefs transit;
  for (std::uint64_t frame = 1; frame <= 100; ++frame)
    transit.counted(kSender, kReceiver, {frame, 0}, kX);
  (void)transit.died(kSender);
  EXPECT_EQ(transit.arrived(kReceiver, kSender, 0).counts.size(), 1u);
}

TEST(InFlightRefs, FramesThatWaitBehindAFullRingAreLostWithTheirSender) {
  InFlightRefs transit;
  for (std::uint32_t waiting = 0; waiting < 10; ++waiting)
    transit.counted(kSender, kReceiver, {5 + waiting, waiting}, kX);
  (void)transit.died(kSender);
  EXPECT_EQ(transit.arrived(kReceiver, kSender, 6).counts.size(), 8u) << "frames 7 to 14";
}

TEST(InFlightRefs, AFrameThatIsMadeAnewCountsOnce) {
  InFlightRefs transit;
  transit.counted(kSender, kReceiver, {1, 0}, kX);
  transit.taken_back(kSender, kReceiver, {1, 0}, kX);
  transit.counted(kSender, kReceiver, {1, 0}, kY);
  (void)transit.died(kSender);
  EXPECT_EQ(transit.arrived(kReceiver, kSender, 0).counts, std::vector<ObjectId>{kY});
}

TEST(InFlightRefs, TheDeadsOwnObjectsAreFreedAndTheOwnerTablesStay) {
  InFlightRefs transit;
  transit.adopted(kSender, kSender, {}, place(1));
  transit.adopted(kSender, kSender, {}, place(2));
  transit.owned(place(2));
  transit.owned(place(3));  // its adoption is read later
  transit.adopted(kSender, kReceiver, {1, 0}, place(3));
  transit.adopted(kSender, kSender, {}, place(4));
  transit.freed(place(4));
  transit.gone(place(4));
  EXPECT_EQ(transit.died(kSender).free, std::vector<wire::Location>{place(1)});
  EXPECT_TRUE(transit.arrived(kReceiver, kSender, 0).free.empty());
  EXPECT_EQ(transit.objects(), 2u);
}

TEST(InFlightRefs, WhatTheReceiverHasPassedOnIsNotFreed) {
  InFlightRefs transit;
  transit.adopted(kSender, kReceiver, {1, 0}, place(1));
  transit.owned(place(1));  // it came, and was promoted
  (void)transit.died(kSender);
  EXPECT_TRUE(transit.arrived(kReceiver, kSender, 1).free.empty());
  EXPECT_TRUE(transit.died(kReceiver).free.empty());
}

/// The frame is faster than the agent, which reads the receiver's ring first; the free waits while
/// another ring has not been read.
TEST(InFlightRefs, AnAdoptionThatIsReadAfterTheFreeGivesNobodyTheObject) {
  InFlightRefs transit;
  transit.freed(place(1));
  EXPECT_FALSE(transit.adopted(kSender, kReceiver, {1, 0}, place(1)));
  EXPECT_TRUE(transit.died(kReceiver).free.empty()) << "it would be freed twice";
  transit.gone(place(1));
  EXPECT_EQ(transit.objects(), 0u);
}

TEST(InFlightRefs, AnAdoptionForTheDeadThatFreedItIsNotFreedAgain) {
  InFlightRefs transit;
  transit.freed(place(1));
  EXPECT_TRUE(transit.died(kReceiver).free.empty());
  EXPECT_FALSE(transit.adopted(kSender, kReceiver, {1, 0}, place(1)));
  transit.gone(place(1));
  EXPECT_EQ(transit.objects(), 0u);
}

TEST(InFlightRefs, WhatIsToBeFreedIsNotUndone) {
  InFlightRefs transit;
  EXPECT_FALSE(transit.adopted(kSender, kReceiver, {1, 0}, place(1)));
  transit.freed(place(1));
  (void)transit.died(kSender);
  EXPECT_TRUE(transit.arrived(kReceiver, kSender, 0).free.empty());
}

TEST(InFlightRefs, NothingIsTheDeads) {
  InFlightRefs transit;
  transit.counted(kSender, kReceiver, {1, 0}, kX);
  transit.counted(kOther, kReceiver, {1, 0}, kX);
  (void)transit.died(kReceiver, {kSender, kOther});
  EXPECT_EQ(transit.gifts(), 0u) << "its counts end by themselves";
  EXPECT_TRUE(transit.adopted(kSender, kReceiver, {2, 0}, place(1)));
  EXPECT_EQ(transit.objects(), 0u);
  EXPECT_TRUE(transit.died(kSender).asked.empty());
}

TEST(InFlightRefs, TheDeadAreForgottenWhenAllWhoMayNameThemHaveAnswered) {
  using Forgotten = std::vector<InFlightRefs::Process>;
  InFlightRefs transit;
  EXPECT_EQ(transit.died(9).forgotten, Forgotten{9}) << "it had no channel";
  EXPECT_TRUE(transit.died(kSender, {kReceiver, kOther}).forgotten.empty());
  EXPECT_EQ(transit.arrived(kReceiver, kSender, 3).forgotten, 0u);
  EXPECT_TRUE(transit.adopted(kOther, kSender, {1, 0}, place(1))) << "it has not heard of it";
  EXPECT_EQ(transit.arrived(kOther, kSender, 3).forgotten, kSender);
  EXPECT_EQ(transit.arrived(kOther, kSender, 3).forgotten, 0u);
  EXPECT_TRUE(transit.died(kOther, {kReceiver}).forgotten.empty());
  EXPECT_EQ(transit.died(kReceiver).forgotten, (Forgotten{kReceiver, kOther}))
      << "who has died answers nobody";
  EXPECT_EQ(transit.dead(), 0u);
}

TEST(InFlightRefs, OnlyTheDeathOfTheSenderTakesAnythingBack) {
  InFlightRefs transit;
  transit.counted(kSender, kReceiver, {1, 0}, kX);
  EXPECT_TRUE(transit.arrived(kReceiver, kSender, 0).counts.empty()) << "it lives";
  (void)transit.died(kSender);
  EXPECT_EQ(transit.arrived(kReceiver, kSender, 0).counts.size(), 1u);
}

}  // namespace
}  // namespace troupe::agent
