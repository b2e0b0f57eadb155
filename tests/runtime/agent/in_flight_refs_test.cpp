// Tests InFlightRefs: it returns the counts that a dead process took for frames that never
// arrived.
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
  InFlightRefs in_flight;
  in_flight.counted(kSender, kReceiver, {1, 0}, kX);
  in_flight.counted(kSender, kReceiver, {2, 0}, kY);
  EXPECT_FALSE(in_flight.adopted(kSender, kReceiver, {2, 0}, place(1)));
  const InFlightRefs::Died after = in_flight.died(kSender);
  EXPECT_EQ(after.asked, std::vector<InFlightRefs::Process>{kReceiver});
  EXPECT_TRUE(after.free.empty()) << "the receiver may have it";
  const InFlightRefs::Undone undone = in_flight.arrived(kReceiver, kSender, 1);
  EXPECT_EQ(undone.counts, std::vector<ObjectId>{kY});
  EXPECT_EQ(undone.free, std::vector<wire::Location>{place(1)});
  EXPECT_EQ(in_flight.objects() + in_flight.refs(), 0u);
  EXPECT_TRUE(in_flight.arrived(kReceiver, kSender, 0).counts.empty()) << "it answers once";
}

TEST(InFlightRefs, WhatCameIsTheReceivers) {
  InFlightRefs in_flight;
  in_flight.counted(kSender, kReceiver, {1, 0}, kX);
  in_flight.adopted(kSender, kReceiver, {1, 0}, place(1));
  (void)in_flight.died(kSender);
  const InFlightRefs::Undone undone = in_flight.arrived(kReceiver, kSender, 1);
  EXPECT_TRUE(undone.counts.empty());
  EXPECT_TRUE(undone.free.empty());
  EXPECT_EQ(in_flight.died(kReceiver).free, std::vector<wire::Location>{place(1)});
}

TEST(InFlightRefs, KnowsWhatIsAnothersAndWhatMayBeTakenBack) {
  InFlightRefs in_flight;
  EXPECT_FALSE(in_flight.is_anothers(kOther, place(1))) << "nobody is known to own it";
  in_flight.adopted(kSender, kReceiver, {1, 0}, place(1));
  EXPECT_FALSE(in_flight.is_anothers(kReceiver, place(1)));
  EXPECT_TRUE(in_flight.is_anothers(kSender, place(1))) << "it gave it away";
  EXPECT_TRUE(in_flight.is_anothers(kOther, place(1)));
  in_flight.owned(place(1));
  EXPECT_FALSE(in_flight.is_anothers(kOther, place(1))) << "the owner table's is no process's";
  in_flight.counted(kSender, kReceiver, {2, 0}, kX);
  EXPECT_TRUE(in_flight.gave(kSender, kReceiver, {2, 0}, kX));
  EXPECT_FALSE(in_flight.gave(kSender, kReceiver, {2, 0}, kY));
  EXPECT_FALSE(in_flight.gave(kOther, kReceiver, {2, 0}, kX));
  in_flight.taken_back(kSender, kReceiver, {2, 0}, kX);
  EXPECT_FALSE(in_flight.gave(kSender, kReceiver, {2, 0}, kX)) << "once";
}

TEST(InFlightRefs, RemembersNoFrameThatIsInTheRing) {
  InFlightRefs in_flight;
  for (std::uint64_t frame = 1; frame <= 100; ++frame)
    in_flight.counted(kSender, kReceiver, {frame, 0}, kX);
  (void)in_flight.died(kSender);
  EXPECT_EQ(in_flight.arrived(kReceiver, kSender, 0).counts.size(), 1u);
}

TEST(InFlightRefs, FramesThatWaitBehindAFullRingAreLostWithTheirSender) {
  InFlightRefs in_flight;
  for (std::uint32_t waiting = 0; waiting < 10; ++waiting)
    in_flight.counted(kSender, kReceiver, {5 + waiting, waiting}, kX);
  (void)in_flight.died(kSender);
  EXPECT_EQ(in_flight.arrived(kReceiver, kSender, 6).counts.size(), 8u) << "frames 7 to 14";
}

TEST(InFlightRefs, AFrameThatIsMadeAnewCountsOnce) {
  InFlightRefs in_flight;
  in_flight.counted(kSender, kReceiver, {1, 0}, kX);
  in_flight.taken_back(kSender, kReceiver, {1, 0}, kX);
  in_flight.counted(kSender, kReceiver, {1, 0}, kY);
  (void)in_flight.died(kSender);
  EXPECT_EQ(in_flight.arrived(kReceiver, kSender, 0).counts, std::vector<ObjectId>{kY});
}

TEST(InFlightRefs, TheDeadsOwnObjectsAreFreedAndTheReferenceTablesStay) {
  InFlightRefs in_flight;
  in_flight.adopted(kSender, kSender, {}, place(1));
  in_flight.adopted(kSender, kSender, {}, place(2));
  in_flight.owned(place(2));
  in_flight.owned(place(3));  // the agent reads the adoption later
  in_flight.adopted(kSender, kReceiver, {1, 0}, place(3));
  in_flight.adopted(kSender, kSender, {}, place(4));
  in_flight.freed(place(4));
  in_flight.gone(place(4));
  EXPECT_EQ(in_flight.died(kSender).free, std::vector<wire::Location>{place(1)});
  EXPECT_TRUE(in_flight.arrived(kReceiver, kSender, 0).free.empty());
  EXPECT_EQ(in_flight.objects(), 2u);
}

TEST(InFlightRefs, WhatTheReceiverHasPassedOnIsNotFreed) {
  InFlightRefs in_flight;
  in_flight.adopted(kSender, kReceiver, {1, 0}, place(1));
  in_flight.owned(place(1));  // the frame arrived, and the ref was promoted
  (void)in_flight.died(kSender);
  EXPECT_TRUE(in_flight.arrived(kReceiver, kSender, 1).free.empty());
  EXPECT_TRUE(in_flight.died(kReceiver).free.empty());
}

/// The frame reaches the receiver before the agent reads the sender's ring; the agent reads the
/// receiver's ring first. The free then waits while another ring has unread messages.
TEST(InFlightRefs, AnAdoptionThatIsReadAfterTheFreeGivesNobodyTheObject) {
  InFlightRefs in_flight;
  in_flight.freed(place(1));
  EXPECT_FALSE(in_flight.adopted(kSender, kReceiver, {1, 0}, place(1)));
  EXPECT_TRUE(in_flight.died(kReceiver).free.empty()) << "it would be freed twice";
  in_flight.gone(place(1));
  EXPECT_EQ(in_flight.objects(), 0u);
}

TEST(InFlightRefs, AnAdoptionForTheDeadThatFreedItIsNotFreedAgain) {
  InFlightRefs in_flight;
  in_flight.freed(place(1));
  EXPECT_TRUE(in_flight.died(kReceiver).free.empty());
  EXPECT_FALSE(in_flight.adopted(kSender, kReceiver, {1, 0}, place(1)));
  in_flight.gone(place(1));
  EXPECT_EQ(in_flight.objects(), 0u);
}

TEST(InFlightRefs, WhatIsToBeFreedIsNotUndone) {
  InFlightRefs in_flight;
  EXPECT_FALSE(in_flight.adopted(kSender, kReceiver, {1, 0}, place(1)));
  in_flight.freed(place(1));
  (void)in_flight.died(kSender);
  EXPECT_TRUE(in_flight.arrived(kReceiver, kSender, 0).free.empty());
}

TEST(InFlightRefs, NothingIsTheDeads) {
  InFlightRefs in_flight;
  in_flight.counted(kSender, kReceiver, {1, 0}, kX);
  in_flight.counted(kOther, kReceiver, {1, 0}, kX);
  (void)in_flight.died(kReceiver, {kSender, kOther});
  EXPECT_EQ(in_flight.refs(), 0u) << "its counts end by themselves";
  EXPECT_TRUE(in_flight.adopted(kSender, kReceiver, {2, 0}, place(1)));
  EXPECT_EQ(in_flight.objects(), 0u);
  EXPECT_TRUE(in_flight.died(kSender).asked.empty());
}

TEST(InFlightRefs, TheDeadAreForgottenWhenAllWhoMayNameThemHaveAnswered) {
  using Forgotten = std::vector<InFlightRefs::Process>;
  InFlightRefs in_flight;
  EXPECT_EQ(in_flight.died(9).forgotten, Forgotten{9}) << "it had no channel";
  EXPECT_TRUE(in_flight.died(kSender, {kReceiver, kOther}).forgotten.empty());
  EXPECT_EQ(in_flight.arrived(kReceiver, kSender, 3).forgotten, ProcessIndex{});
  EXPECT_TRUE(in_flight.adopted(kOther, kSender, {1, 0}, place(1))) << "it has not heard of it";
  EXPECT_EQ(in_flight.arrived(kOther, kSender, 3).forgotten, kSender);
  EXPECT_EQ(in_flight.arrived(kOther, kSender, 3).forgotten, ProcessIndex{});
  EXPECT_TRUE(in_flight.died(kOther, {kReceiver}).forgotten.empty());
  EXPECT_EQ(in_flight.died(kReceiver).forgotten, (Forgotten{kReceiver, kOther}))
      << "who has died answers nobody";
  EXPECT_EQ(in_flight.dead(), 0u);
}

TEST(InFlightRefs, OnlyTheDeathOfTheSenderTakesAnythingBack) {
  InFlightRefs in_flight;
  in_flight.counted(kSender, kReceiver, {1, 0}, kX);
  EXPECT_TRUE(in_flight.arrived(kReceiver, kSender, 0).counts.empty()) << "it lives";
  (void)in_flight.died(kSender);
  EXPECT_EQ(in_flight.arrived(kReceiver, kSender, 0).counts.size(), 1u);
}

}  // namespace
}  // namespace troupe::agent
