// Tests Tensor: its shape, parts that share the elements, and reading in place wherever it
// arrived.
#include "troupe/troupe.hpp"

#include <gtest/gtest.h>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

namespace {

using troupe::Tensor;

Tensor<int> counted(Tensor<int>::Shape shape, int n) {
  std::vector<int> elements(static_cast<std::size_t>(n));
  std::iota(elements.begin(), elements.end(), 0);
  return {std::move(shape), std::move(elements)};
}

template <class Body>
std::string refusal(Body body) {
  try {
    body();
  } catch (const troupe::InvalidArgument& error) {
    return error.message();
  }
  return "";
}

TEST(Tensor, ElementsLieInRowMajorOrder) {
  const auto t = counted({2, 3, 4}, 24);
  EXPECT_EQ(t.rank(), 3u);
  EXPECT_EQ(t.size(), 24u);
  EXPECT_EQ(t(0, 0, 0), 0);
  EXPECT_EQ(t(1, 2, 3), 23);
  EXPECT_EQ(t(1, 0, 2), 14);
  EXPECT_EQ(t.at(0, 2, 1), 9);
  EXPECT_EQ(Tensor<int>({}, {7})(), 7) << "without a dimension it has one element";
  EXPECT_TRUE(Tensor<int>().empty());
  EXPECT_TRUE(counted({3, 0, 2}, 0).empty());
}

TEST(Tensor, PartsAndOtherShapesShareTheElements) {
  auto whole = counted({2, 3, 4}, 24);
  const int* data = whole.data();
  const Tensor<int> row = whole[1][2];
  const Tensor<int> flat = whole.reshaped({6, 4});
  whole = {};
  EXPECT_EQ(row, Tensor<int>({4}, {20, 21, 22, 23}));
  EXPECT_EQ(row.data(), data + 20);
  EXPECT_EQ(flat.data(), data);
  EXPECT_EQ(flat(5, 3), 23);
  EXPECT_EQ(row[3](), 23);
  EXPECT_NE(row, row.reshaped({2, 2}));
  EXPECT_TRUE(counted({3, 0, 2}, 0)[2].empty());
}

TEST(Tensor, AShapeThatDoesNotFitIsRefusedWithBothNumbers) {
  EXPECT_NE(refusal([] { counted({2, 3}, 5); }).find("shape 2 × 3 does not have 5 elements"),
            std::string::npos);
  const std::uint64_t huge = std::uint64_t{1} << 33;
  EXPECT_NE(refusal([=] { counted({huge, huge}, 0); }), "") << "their product does not fit";
  EXPECT_NE(refusal([] { (void)counted({6}, 6).reshaped({4, 2}); }), "");
  const auto t = counted({2, 3}, 6);
  EXPECT_NE(refusal([&] { (void)t.at(1, 3); }).find("index 3 of dimension 1"), std::string::npos);
  EXPECT_NE(refusal([&] { (void)t.at(1); }).find("1 indexes"), std::string::npos);
  EXPECT_NE(refusal([&] { (void)t[2]; }).find("no part 2"), std::string::npos);
  EXPECT_NE(refusal([] { (void)Tensor<int>({}, {7})[0]; }), "");
}

struct Batch {
  int label = 0;
  Tensor<double> images;
};

TEST(Tensor, InsideAnAggregateItPointsIntoTheBytesAndKeepsThem) {
  const Batch batch{3, {{10, 100}, std::vector<double>(1000, 2.5)}};
  auto* aligned = static_cast<std::byte*>(::operator new(16384, std::align_val_t(64)));
  const auto sizer = troupe::detail::measure(batch);
  std::vector<troupe::detail::ObjectHandle> handles;
  troupe::detail::encode_into({aligned, sizer.size()}, handles, batch);
  std::weak_ptr<const void> alive;
  Tensor<double> part;
  {
    std::shared_ptr<const void> keep(aligned, [](const void* p) {
      ::operator delete(const_cast<void*>(p), std::align_val_t(64));
    });
    alive = keep;
    const auto copy = troupe::detail::decode_value<Batch>({aligned, sizer.size()}, {}, &keep);
    EXPECT_EQ(copy.images, batch.images);
    part = copy.images[9];
  }
  EXPECT_FALSE(alive.expired()) << "a part keeps all";
  EXPECT_GE(reinterpret_cast<const std::byte*>(part.data()), aligned);
  EXPECT_LT(reinterpret_cast<const std::byte*>(part.data()), aligned + 16384);
  EXPECT_EQ(part.shape(), std::vector<std::uint64_t>{100});
  part = {};
  EXPECT_TRUE(alive.expired());
}

static_assert(troupe::can_cross<Tensor<float>> && troupe::can_cross<std::vector<Tensor<int>>>);

}  // namespace
