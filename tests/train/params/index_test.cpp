// Tests shapes, layouts, and the places of tensors.
#include "troupe/train/params/index.hpp"

#include "tests/train/params/ranks.hpp"
#include "troupe/runtime/base/error.hpp"
#include "troupe/train/layout.hpp"

#include <gtest/gtest.h>

namespace troupe::train::index_test {
namespace {

template <class F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const InvalidArgument& error) {
    return error.message();
  }
  return "none";
}

TEST(Shape, CountsPrintsAndRefusesASixthDimension) {
  EXPECT_EQ(Shape{}.count(), 1);
  EXPECT_EQ((Shape{2, 0, 3}.count()), 0);
  EXPECT_EQ((Shape{2, 3}.text()), "[2, 3]");
  EXPECT_EQ(Shape{}.text(), "[]");
  EXPECT_NE((Shape{2, 3}), (Shape{2, 3, 1}));
  Shape full{1, 2, 3, 4, 5};
  EXPECT_THROW(full.push_back(6), InvalidArgument);
  EXPECT_EQ(full.count(), 120);
}

TEST(Index, TensorsAreAlignedTo64ElementsAndUnitsToChunksOfEveryOwner) {
  for (int dp = 1; dp <= 4; ++dp) {
    const Index index = testing::odd_model(dp);
    for (const UnitPlace& unit : index.units()) {
      EXPECT_EQ(unit.size % (kChunk * dp), 0);
      std::int64_t end = 0, used = 0;
      for (const TensorId id : unit.tensors) {
        EXPECT_EQ(index[id].offset % kAlign, 0) << index[id].name;
        EXPECT_GE(index[id].offset, end);
        EXPECT_LT(index[id].offset - end, kAlign);
        end = index[id].offset + index[id].local.count();
        used += index[id].local.count();
      }
      EXPECT_EQ(unit.used, used);
      EXPECT_LT(unit.size - end, kChunk * dp);
      EXPECT_GE(unit.size, end);
    }
  }
}

TEST(Index, OwnersDivideEveryUnitWithoutHoleOrOverlap) {
  const Index index = testing::odd_model(3);
  for (int unit = 0; unit < static_cast<int>(index.units().size()); ++unit) {
    std::int64_t end = 0;
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(index.owned(unit, rank).first, end);
      EXPECT_EQ(index.owned(unit, rank).count % kChunk, 0);
      end = index.owned(unit, rank).end();
    }
    EXPECT_EQ(end, index.units()[static_cast<std::size_t>(unit)].size);
  }
  EXPECT_THROW(index.owned(0, 3), InvalidArgument);
}

TEST(Index, CountsTiedTensorsOnce) {
  const Index index = testing::odd_model(2);
  EXPECT_EQ(index.parameter_count(), testing::kParameters);
  EXPECT_EQ(index.tied_size(), testing::kTied);
  EXPECT_EQ(index.units()[3].used, 1);
  const TensorId use = index.units()[3].tied.at(0);
  EXPECT_EQ(index[use].tied_to, index.find("wte"));
  EXPECT_EQ(index[use].unit, 3);
  EXPECT_EQ(index.find("wte in head"), std::nullopt);
  EXPECT_EQ(index.find("w"), std::nullopt);
}

TEST(Index, ShardsOfAFusedTensorAreOneBoxPerGroup) {
  Index index;
  const int unit = index.begin_unit("h");
  const TensorId qkv = index.add(unit, "qkv", {12, 5}, Group::decay,
                                 {.axis = 0, .parts = 2, .index = 1, .groups = 3});
  const TensorId row =
      index.add(unit, "row", {5, 8}, Group::decay, {.axis = 1, .parts = 4, .index = 2});
  const TensorId all = index.add(unit, "all", {7}, Group::no_decay);
  index.seal();
  EXPECT_EQ(index[qkv].local, (Shape{6, 5}));
  EXPECT_EQ(index.global(qkv),
            (std::vector<Box>{{{2, 0}, {2, 5}}, {{6, 0}, {2, 5}}, {{10, 0}, {2, 5}}}));
  EXPECT_EQ(index.global(row), (std::vector<Box>{{{0, 4}, {5, 2}}}));
  EXPECT_EQ(index.global(all), (std::vector<Box>{{{0}, {7}}}));
  EXPECT_EQ(index.parameter_count(), 30 + 10 + 7);
}

TEST(Index, ShardsOfAllPartsCoverATensorOnce) {
  std::vector<int> covered(24 * 3);
  for (int part = 0; part < 4; ++part) {
    Index index;
    const TensorId id = index.add(index.begin_unit("u"), "t", {24, 3}, Group::decay,
                                  {.axis = 0, .parts = 4, .index = part, .groups = 3});
    for (const Box& box : index.global(id))
      for (std::int64_t i = 0; i < box.size[0]; ++i)
        for (std::int64_t j = 0; j < box.size[1]; ++j)
          ++covered[static_cast<std::size_t>((box.first[0] + i) * 3 + box.first[1] + j)];
  }
  EXPECT_EQ(covered, std::vector<int>(24 * 3, 1));
}

TEST(Index, PaddedShardsAreOfOneSizeAndCoverATensorOnce) {
  for (const int parts : {2, 3, 4}) {
    for (const std::int64_t vocabulary : {1, 5, 65}) {
      std::vector<int> covered(static_cast<std::size_t>(vocabulary * 3));
      std::int64_t counted = 0;
      for (int part = 0; part < parts; ++part) {
        Index index(part);
        EXPECT_EQ(index.tp_rank(), part);
        const int unit = index.begin_unit("u");
        const TensorId id = index.add(unit, "wte", {vocabulary, 3}, Group::decay,
                                      {.axis = 0, .parts = parts, .index = part, .padded = true});
        const TensorId use = index.tie(index.begin_unit("head"), id);
        index.seal({.dp = 2});
        EXPECT_EQ(index[id].local, (Shape{(vocabulary + parts - 1) / parts, 3}));
        EXPECT_EQ(index[use].shard, index[id].shard);
        EXPECT_EQ(index.global(use), index.global(id));
        EXPECT_EQ(index.parameter_count(), index[id].count());
        EXPECT_EQ(index.units()[0].used, index[id].count());
        EXPECT_EQ(index.tied_size(), index[id].local.count());
        counted += index.parameter_count();
        for (const Box& box : index.global(id)) {
          EXPECT_EQ(box.size, (Shape{index[id].size(0), 3}));
          for (std::int64_t i = 0; i < box.size.count(); ++i)
            ++covered[static_cast<std::size_t>(box.first[0] * 3 + i)];
        }
      }
      EXPECT_EQ(counted, vocabulary * 3);
      EXPECT_EQ(covered, std::vector<int>(static_cast<std::size_t>(vocabulary * 3), 1));
    }
  }
}

TEST(Index, AShardThatIsAllPaddingHasNoBox) {
  Index index;
  const TensorId id = index.add(index.begin_unit("u"), "wte", {5, 3}, Group::decay,
                                {.axis = 0, .parts = 4, .index = 3, .padded = true});
  EXPECT_EQ(index[id].local, (Shape{2, 3}));
  EXPECT_EQ(index[id].count(), 0);
  EXPECT_EQ(index[id].size(1), 3);
  EXPECT_TRUE(index.global(id).empty());
}

TEST(Index, RefusesWhatIsNoTensorByName) {
  Index index;
  const int unit = index.begin_unit("u");
  const TensorId a = index.add(unit, "a", {4, 6}, Group::decay);
  const auto add = [&](const Shape& shape, const TensorShard& shard = {}, std::string name = "b") {
    return message_of([&] { index.add(unit, std::move(name), shape, Group::decay, shard); });
  };
  EXPECT_EQ(add({1}, {}, "a"), "two tensors are named a");
  EXPECT_NE(add({2, 0}).find("tensor b has a dimension below 1"), std::string::npos);
  EXPECT_NE(add({1 << 25, 1 << 25}).find("tensor b has more than 2^48"), std::string::npos);
  EXPECT_NE(add({6, 4}, {.axis = 2, .parts = 2}).find("tensor b: axis 2"), std::string::npos);
  EXPECT_NE(add({6, 4}, {.axis = 1, .parts = 3}).find("does not divide by 3"), std::string::npos);
  EXPECT_NE(add({6, 4}, {.axis = 0, .parts = 2, .groups = 2}).find("by 4"), std::string::npos);
  EXPECT_NE(add({6, 4}, {.axis = 0, .parts = 2, .index = 2}).find("tensor b"), std::string::npos);
  EXPECT_NE(add({6, 4}, {.axis = 0, .parts = 2, .groups = 3, .padded = true}).find("has one group"),
            std::string::npos);
  EXPECT_THROW(index.tie(unit, 17), InvalidArgument);
  EXPECT_THROW(index.add(1, "b", {1}, Group::decay), InvalidArgument);
  const TensorId tied = index.tie(unit, a);
  EXPECT_THROW(index.tie(unit, tied), InvalidArgument);
  EXPECT_EQ(index.tensors().size(), 2u) << "what was refused is not there";
  EXPECT_THROW(index.owned(0, 0), InvalidArgument);
  EXPECT_THROW(index.seal({.dp = 0}), InvalidArgument);
  index.seal();
  EXPECT_THROW(index.seal(), InvalidArgument);
  EXPECT_NE(add({1}), "none");
  EXPECT_THROW(index.begin_unit("v"), InvalidArgument);
}

TEST(Layout, TakesItsMeshFromText) {
  Layout layout{.dp = 8, .zero = 1};
  set_mesh(layout, "pp=3,dp=2");
  EXPECT_EQ(layout.dp, 2);
  EXPECT_EQ(layout.tp, 1);
  EXPECT_EQ(layout.pp, 3);
  EXPECT_EQ(layout.zero, 1);
  for (const char* bad : {"dp", "dp=0", "dp=2;tp=2", "ep=2", "dp=x", "tp=2x", "dp=-1", ",dp=2"}) {
    EXPECT_THROW(set_mesh(layout, bad), InvalidArgument) << bad;
    EXPECT_EQ(layout.pp, 3) << "a refused text changes nothing";
  }
}

TEST(Layout, IsRefusedWithOneSentenceThatSaysWhatToChange) {
  const auto message = [](const Layout& layout, int ranks) {
    return message_of([&] { check(layout, ranks); });
  };
  EXPECT_EQ(message({.dp = 2, .tp = 3, .micro = 4}, 6), "none");
  EXPECT_EQ(message({.dp = 2, .pp = 2, .zero = 1}, 4), "none");
  EXPECT_NE(message({.dp = 4}, 3).find("choose sizes whose product is 3"), std::string::npos);
  EXPECT_NE(message({.dp = 1 << 30, .tp = 1 << 30, .pp = 1 << 30}, 1).find("product is 1"),
            std::string::npos);
  EXPECT_NE(message({.dp = 0}, 1).find("dp is 0"), std::string::npos);
  EXPECT_NE(message({.micro = 0}, 1).find("micro is 0"), std::string::npos);
  EXPECT_NE(message({.zero = 4}, 1).find("zero is 4"), std::string::npos);
  EXPECT_NE(message({.zero = -1}, 1).find("zero is -1"), std::string::npos);
  EXPECT_NE(message({.pp = 2, .zero = 2}, 2).find("choose zero = 1, or pp = 1"), std::string::npos);
  EXPECT_NE(message({.sequence = true}, 1).find("tp > 1"), std::string::npos);
}

}  // namespace
}  // namespace troupe::train::index_test
