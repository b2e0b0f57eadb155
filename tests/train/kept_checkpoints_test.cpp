// Tests which checkpoints of a run are kept.
#include "troupe/train/internal/kept_checkpoints.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace kept_checkpoints {

using troupe::train::SavedModel;
using troupe::train::internal::KeptCheckpoints;

/// Returns a saved model whose Ref names an object that no engine knows; the test never opens it.
SavedModel model(long step) {
  static troupe::detail::ObjectEntry entry{.handles{1'000'000}, .id{}};
  using Model = decltype(SavedModel::model);
  SavedModel saved;
  saved.model =
      troupe::detail::Access::make_ref<Model>(troupe::detail::ObjectHandle::adopt(&entry));
  saved.step = step;
  return saved;
}

TEST(KeptCheckpoints, TheBestIsOfTheStepWithTheBestValueWhicheverComesFirst) {
  KeptCheckpoints kept(true);
  kept.saved(model(1), false);
  kept.valued(1, 0.5);
  EXPECT_EQ(kept.best.step, 1);
  kept.valued(2, 0.9);
  EXPECT_EQ(kept.best.step, 1);  // no checkpoint of step 2 was saved yet
  kept.saved(model(2), false);
  EXPECT_EQ(kept.best.step, 2);
  EXPECT_EQ(kept.best_value, 0.9);
}

TEST(KeptCheckpoints, OneWhoseReportComesAfterTheNextCheckpointCounts) {
  KeptCheckpoints kept(false);
  kept.saved(model(1), false);
  kept.saved(model(2), true);
  kept.valued(1, 0.1);
  kept.valued(2, 0.2);
  EXPECT_EQ(kept.best.step, 1);
  EXPECT_EQ(kept.latest.step, 2);
}

TEST(KeptCheckpoints, AValueThatIsNotFiniteKeepsNothing) {
  KeptCheckpoints kept(false);
  kept.saved(model(1), false);
  kept.valued(1, std::numeric_limits<double>::quiet_NaN());
  kept.valued(1, std::nullopt);
  EXPECT_FALSE(kept.best);
}

TEST(KeptCheckpoints, AReportOfAnEarlierLifeMakesNoCheckpointOfTheNextTheBest) {
  KeptCheckpoints kept(false);
  kept.valued(3, 0.1);
  kept.start_again();
  kept.saved(model(3), false);
  EXPECT_FALSE(kept.best);
}

}  // namespace kept_checkpoints
