// Tests a snapshot as an argument of a task: a value of the codec.
#include "troupe/runtime/codec.hpp"
#include "troupe/train/checkpoint/snapshot.hpp"

#include <gtest/gtest.h>

namespace troupe::train {
namespace {

TEST(SnapshotCodec, ASnapshotCrossesAsAValue) {
  Snapshot sent{.step = 9, .tensors = {}};
  sent.tensors.push_back(
      {"w", DType::bf16, {2, 1}, {std::byte{1}, std::byte{2}, std::byte{3}, std::byte{255}}});
  sent.tensors.push_back({"empty", DType::f64, {0}, {}});
  const Snapshot come = decode<Snapshot>(encode(sent));
  EXPECT_EQ(come.step, 9);
  EXPECT_EQ(difference(come.tensors, sent.tensors), "");
  ASSERT_EQ(come.tensors.size(), 2u);
  EXPECT_EQ(come.tensors[0].bytes, sent.tensors[0].bytes);
}

}  // namespace
}  // namespace troupe::train
