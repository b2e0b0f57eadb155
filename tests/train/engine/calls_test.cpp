// Tests that ranks which make different calls of an engine learn which ones, at once, for every
// pair of calls.
#include "tests/leeway.hpp"
#include "tests/train/engine/ranks.hpp"

#include <functional>
#include <string>
#include <vector>

namespace troupe::train::testing {
namespace {

using namespace std::chrono_literals;

const GptShape kCalledShape{};

/// An engine after a step, its batch, and its state.
struct Caller {
  Caller(RankContext& context, const Layout& layout)
      : engine(gpt(kCalledShape), layout, context.mesh, context.device, {}),
        rows(rows_of(kCalledShape, 0, 0, 2)) {
    engine.initialize(1);
    step();
    state = engine.snapshot();
  }
  void step() { static_cast<void>(engine.step(std::vector{rows.micro()})); }
  Engine engine;
  Rows rows;
  Snapshot state;
};

struct NamedCall {
  std::string name;
  std::function<void(Caller&)> make;
};
const std::vector<NamedCall>& calls() {
  static const std::vector<NamedCall> all = {
      {"initialize()", [](Caller& c) { c.engine.initialize(2); }},
      {"step()", [](Caller& c) { c.step(); }},
      {"evaluate()", [](Caller& c) { c.engine.evaluate(std::vector{c.rows.micro()}); }},
      {"predict()", [](Caller& c) { c.engine.predict(c.rows.micro().input); }},
      {"snapshot()", [](Caller& c) { c.engine.snapshot(0); }},
      {"restore()", [](Caller& c) { c.engine.restore(c.state); }},
      {"weights_hash()", [](Caller& c) { c.engine.weights_hash(); }}};
  return all;
}

/// Rank 0 makes one call and rank 1 the other; both step afterwards. Expects that each is told both
/// names within a second.
void expect_named(const Layout& layout, const NamedCall& zero, const NamedCall& one) {
  const std::string difference =
      "rank 0 called " + zero.name + " while rank 1 called " + one.name + ": ";
  on_mesh(mesh_of(layout), Wire::shm, [&](RankContext& context) {
    Caller caller(context, layout);
    const Time begun = steady_now();
    try {
      (context.mesh.rank() == 0 ? zero : one).make(caller);
      caller.step();
      ADD_FAILURE() << difference << "went on";
    } catch (const InvalidArgument& error) {
      EXPECT_EQ(error.message().rfind(difference, 0), 0u) << error.message();
    }
    EXPECT_LT(steady_now() - begun, kLeeway * 1s);
  });
}

void expect_every_pair_named(const Layout& layout) {
  for (const NamedCall& zero : calls())
    for (const NamedCall& one : calls())
      if (zero.name != one.name) expect_named(layout, zero, one);
}

TEST(EngineCalls, ThatDifferBetweenDataParallelRanksAreNamed) {
  expect_every_pair_named({.dp = 2, .zero = 3});
}
TEST(EngineCalls, ThatDifferBetweenTensorParallelRanksAreNamed) {
  expect_every_pair_named({.tp = 2});
}
TEST(EngineCalls, ThatDifferBetweenStagesAreNamed) {
  expect_every_pair_named({.pp = 2, .micro = 1});
}

// With whole weights on every rank these calls involve no other rank.
TEST(EngineCalls, ThatNeedNoOtherRankMayBeMadeByOneRank) {
  on_ranks(2, Wire::local, [](RankContext& context) {
    Caller caller(context, {.dp = 2});
    for (int round = 0; round < 10; ++round) {
      if (context.mesh.rank() == 0) {
        caller.engine.snapshot(0);
        caller.engine.weights_hash();
        caller.engine.predict(caller.rows.micro().input);
      }
      caller.step();
    }
    EXPECT_EQ(caller.engine.steps(), 11);
  });
}

}  // namespace
}  // namespace troupe::train::testing
