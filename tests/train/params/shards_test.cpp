// Tests that shards of a tensor give the whole again, in any division.
#include "troupe/train/params/shards.hpp"

#include "troupe/runtime/base/error.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace troupe::train {
namespace {

std::vector<float> counted(std::int64_t count, float first = 1) {
  std::vector<float> values(static_cast<std::size_t>(count));
  std::iota(values.begin(), values.end(), first);
  return values;
}

TensorPlace place(const Shape& global, const Shape& local, const TensorShard& shard) {
  return {.name = "w", .global = global, .local = local, .shard = shard};
}

/// Takes every rank's shard of a whole tensor, and returns the tensor that they form.
std::vector<float> there_and_back(TensorPlace tensor, const std::vector<float>& whole) {
  std::vector<float> back(whole.size(), -1);
  for (int rank = 0; rank < tensor.shard.parts; ++rank) {
    tensor.shard.index = rank;
    std::vector<float> local(static_cast<std::size_t>(tensor.local.count()), -1);
    take_shard(tensor, whole, local);
    add_shard(tensor, rank, local, back);
  }
  return back;
}

TEST(Shards, AreTheBoxesOfTheIndex) {
  for (const TensorShard& shard :
       {TensorShard{}, TensorShard{.axis = 0, .parts = 2}, TensorShard{.axis = 1, .parts = 3},
        TensorShard{.axis = 1, .parts = 2, .groups = 3}, TensorShard{.axis = 2, .parts = 5}}) {
    const Shape global{4, 6, 5};
    const std::vector<float> whole = counted(global.count());
    for (int rank = 0; rank < shard.parts; ++rank) {
      TensorShard mine = shard;
      mine.index = rank;
      Index index;
      const TensorId id = index.add(index.begin_unit("u"), "w", global, Group::decay, mine);
      std::vector<float> local(static_cast<std::size_t>(index[id].local.count())), expected;
      take_shard(index[id], whole, local);
      std::vector<bool> inside(whole.size(), false);
      for (const Box& box : index.global(id))
        for (std::int64_t a = 0; a < box.size[0]; ++a)
          for (std::int64_t b = 0; b < box.size[1]; ++b)
            for (std::int64_t c = 0; c < box.size[2]; ++c)
              inside[static_cast<std::size_t>(((box.first[0] + a) * 6 + box.first[1] + b) * 5 +
                                              box.first[2] + c)] = true;
      for (std::size_t i = 0; i < whole.size(); ++i)
        if (inside[i]) expected.push_back(whole[i]);
      EXPECT_EQ(local, expected);
    }
    TensorPlace tensor = place(global, global, shard);
    if (shard.axis >= 0) tensor.local.set(shard.axis, global[shard.axis] / shard.parts);
    EXPECT_EQ(there_and_back(tensor, whole), whole);
  }
}

TEST(Shards, OfAPaddedAxisEndWithZerosThatNoWholeHas) {
  const std::vector<float> whole = counted(7 * 2);
  TensorPlace tensor = place({7, 2}, {3, 2}, {.axis = 0, .parts = 3, .index = 2});
  std::vector<float> last(6, -1);
  take_shard(tensor, whole, last);
  EXPECT_EQ(last, (std::vector<float>{13, 14, 0, 0, 0, 0}));
  EXPECT_EQ(there_and_back(tensor, whole), whole);
  TensorPlace wide = place({2, 2}, {1, 2}, {.axis = 0, .parts = 4, .index = 3});
  std::vector<float> empty(2, -1);
  take_shard(wide, counted(4), empty);
  EXPECT_EQ(empty, (std::vector<float>{0, 0})) << "a shard that is all padding";
  EXPECT_EQ(there_and_back(wide, counted(4)), counted(4));
}

TEST(Shards, OfOtherSizesAreRefused) {
  const TensorPlace tensor = place({4}, {2}, {.axis = 0, .parts = 2});
  std::vector<float> whole(4), local(3);
  EXPECT_THROW(take_shard(tensor, whole, local), InvalidArgument);
  EXPECT_THROW(add_shard(tensor, 0, local, whole), InvalidArgument);
}

}  // namespace
}  // namespace troupe::train
