// Tests shrink_arguments(): what travels inline fits a frame, and the larger arguments go first.
#include "troupe/runtime/client/shrink_arguments.hpp"

#include <gtest/gtest.h>
#include <deque>
#include <span>
#include <vector>

namespace troupe::client::shrink_arguments_test {
namespace {

const detail::Callable kFunction{.name = "mix(int)"};

struct ShrinkTest : testing::Test {
  ShrinkTest() { entry.handles = 1000; }  // more than are dropped: no engine frees it
  detail::ObjectHandle put(BlobView bytes, std::span<const detail::ObjectHandle> refs,
                           detail::CallSite at) {
    sizes.push_back(bytes.size());
    ref_counts.push_back(refs.size());
    EXPECT_STREQ(at.text, "mix(int)");
    return detail::ObjectHandle::adopt(&entry);
  }
  /// A call with arguments of these sizes, shrunk.
  const detail::Call& shrunk(const std::vector<std::uint32_t>& arguments) {
    detail::Call& call = calls.emplace_back();
    call.callable = &kFunction;
    for (const std::uint32_t size : arguments) {
      call.arguments.push_back({static_cast<std::uint32_t>(call.bytes.size()), size, 0, 0, {}});
      const Blob bytes(std::size_t{size});
      for (const std::byte byte : bytes) call.bytes.push_back(byte);
    }
    shrink_arguments(call, *this);
    return call;
  }

  detail::ObjectEntry entry;
  std::vector<std::size_t> sizes, ref_counts;
  std::deque<detail::Call> calls;
};

TEST_F(ShrinkTest, SmallCallStaysAsItIs) {
  shrunk({100, 100});
  shrunk({1000, 1000});
  EXPECT_TRUE(sizes.empty());
}

TEST_F(ShrinkTest, ArgumentAboveTheInlineLimitBecomesAnObject) {
  const detail::Call& call = shrunk({8, 5000});
  EXPECT_EQ(sizes, (std::vector<std::size_t>{5000}));
  EXPECT_FALSE(call.arguments[0].object);
  EXPECT_TRUE(call.arguments[1].object);
  EXPECT_EQ(call.arguments[1].size, 0u);
}

TEST_F(ShrinkTest, LargerOnesBecomeObjectsUntilTheRestFits) {
  shrunk({200, 4000, 4000, 200});
  EXPECT_EQ(sizes, (std::vector<std::size_t>{4000}));
}

TEST_F(ShrinkTest, TooManyArgumentsAreAnError) {
  EXPECT_THROW(shrunk(std::vector<std::uint32_t>(kMostArguments + 1, 0)), InvalidArgument);
}

}  // namespace
}  // namespace troupe::client::shrink_arguments_test
