// Tests how a batch of text is divided into micro-batches for an engine.
#include "troupe/train/engine/micro_batches.hpp"

#include "troupe/runtime/base/error.hpp"

#include <gtest/gtest.h>

namespace troupe::train {
namespace {

TEST(MicroBatches, AreTheRowsOfTheBatchInOrderAndSomeEmpty) {
  Batch batch{.inputs = {}, .targets = {}, .rows = 5, .time = 3};
  for (int i = 0; i < 15; ++i) {
    batch.inputs.push_back(i);
    batch.targets.push_back(100 + i);
  }
  for (const int parts : {1, 2, 3, 5, 8}) {
    const std::vector<MicroBatch> micros = micro_batches(batch, parts);
    ASSERT_EQ(micros.size(), static_cast<std::size_t>(parts));
    std::int32_t next = 0;
    for (const MicroBatch& micro : micros) {
      EXPECT_EQ(micro.input.shape, micro.targets.shape);
      EXPECT_EQ(micro.input.columns(), 3);
      EXPECT_LE(micro.input.shape[0], (5 + parts - 1) / parts);
      for (std::int64_t i = 0; i < micro.input.count(); ++i, ++next) {
        EXPECT_EQ(micro.input.as<std::int32_t>()[i], next);
        EXPECT_EQ(micro.targets.as<std::int32_t>()[i], 100 + next);
      }
    }
    EXPECT_EQ(next, 15);
  }
  EXPECT_THROW(micro_batches(batch, 0), InvalidArgument);
}

}  // namespace
}  // namespace troupe::train
