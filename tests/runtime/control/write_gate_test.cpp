// Tests when control refuses a request that writes: no space, or a disk that is far behind.
#include "troupe/runtime/control/write_gate.hpp"

#include <gtest/gtest.h>
#include <string>

namespace troupe::control {
namespace {

Batch batch_of(std::size_t bytes) {
  Batch batch;
  batch.put("k", std::string(bytes, 'x'));
  return batch;
}

TEST(WriteGateTest, IsOpenAtFirst) {
  EXPECT_EQ(WriteGate(1000).refusal(), nullptr);
}

TEST(WriteGateTest, ShutsWhileTooMuchWaitsForACommit) {
  WriteGate gate(1000);
  gate.add(batch_of(600));
  EXPECT_EQ(gate.refusal(), nullptr);
  gate.add(batch_of(600));
  ASSERT_NE(gate.refusal(), nullptr);
  EXPECT_EQ(gate.refusal()->code, Code::overloaded);
  gate.on_commit();
  EXPECT_EQ(gate.refusal(), nullptr);
}

TEST(WriteGateTest, CountsDeletionsToo) {
  WriteGate gate(1000);
  Batch batch;
  for (int i = 0; i < 20; ++i) batch.del("k");
  gate.add(batch);
  EXPECT_NE(gate.refusal(), nullptr);
}

TEST(WriteGateTest, ShutsWhileTheStoreHasNoSpace) {
  WriteGate gate(1000);
  gate.set_space(false);
  ASSERT_NE(gate.refusal(), nullptr);
  EXPECT_EQ(gate.refusal()->code, Code::no_space);
  gate.on_commit();
  EXPECT_NE(gate.refusal(), nullptr) << "a commit makes no space";
  gate.set_space(true);
  EXPECT_EQ(gate.refusal(), nullptr);
}

}  // namespace
}  // namespace troupe::control
