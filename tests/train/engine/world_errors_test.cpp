// Tests that all ranks of the world learn of a refusal or failure of one rank, whichever axes
// divide the world.
#include "tests/train/engine/divided_layers.hpp"
#include "tests/train/engine/failing_layer.hpp"
#include "tests/train/engine/ranks.hpp"

#include <cmath>
#include <cstring>
#include <latch>
#include <limits>

namespace troupe::train::testing {
namespace {

constexpr GptShape kWorldShape{};
constexpr collective::MeshShape kSquare{.dp = 2, .tp = 2};
const Layout kSquareLayout{.dp = 2, .tp = 2, .zero = 1};

template <class F>
std::string refusal_of(F&& call) {
  try {
    std::forward<F>(call)();
  } catch (const Error& e) {
    return e.message();
  } catch (const std::exception& e) {
    return e.what();
  }
  return "none";
}

/// Expects that the message contains the part; prints the message otherwise.
void expect_refusal(const std::string& message, const std::string& part) {
  EXPECT_NE(message.find(part), std::string::npos) << message << "\nhas no: " << part;
}

/// An engine with the rows of its dp index.
struct Member {
  explicit Member(RankContext& context, const Layout& layout = kSquareLayout)
      : engine(failing_gpt(kWorldShape, fails), layout, context.mesh, context.device,
               {.rate = 1e-3f}),
        rows(rows_of(kWorldShape, 0, std::int64_t{2} * context.mesh.dp_rank,
                     std::int64_t{2} * context.mesh.dp_rank + 2)) {
    engine.initialize(1);
  }
  StepResult step() {
    const MicroBatch micro = rows.micro();
    return engine.step(std::span(&micro, 1));
  }
  bool fails = false;  ///< in the middle of a step
  Engine engine;
  Rows rows;
};

// Each rank of the square is once the one that differs; ranks 2 and 3 have dp index 1.
TEST(World, RefusesDifferentBatchesOnRanksOfOneDpIndexAndGoesOn) {
  for (const int odd : {0, 1, 2, 3})
    on_mesh(kSquare, Wire::local, [&](RankContext& context) {
      Member member(context);
      const Rows right = member.rows;
      const bool differs = context.mesh.rank() == odd;
      const std::string ranks = odd < 2 ? "ranks 0 and 1" : "ranks 2 and 3";
      const std::uint64_t before = member.engine.weights_hash();
      if (differs) member.rows.targets[3] ^= 1;
      const std::string values = refusal_of([&] { member.step(); });
      expect_refusal(values, ranks);
      expect_refusal(values, "differ in values");
      if (differs)
        member.rows = rows_of(kWorldShape, 0, 0, 1);
      else
        member.rows = right;
      expect_refusal(refusal_of([&] { member.step(); }), "differ in number or shape");
      const auto evaluate = [&] {
        const MicroBatch micro = member.rows.micro();
        member.engine.evaluate(std::span(&micro, 1));
      };
      expect_refusal(refusal_of(evaluate), ranks);
      expect_refusal(refusal_of([&] { member.engine.predict(member.rows.micro().input); }), ranks);
      EXPECT_EQ(member.engine.weights_hash(), before);
      member.rows = right;
      EXPECT_EQ(member.step().step, 1);
    });
}

TEST(World, HearsTheRefusalOfAnyRankAndGoesOn) {
  for (const int odd : {0, 1, 2, 3})
    on_mesh(kSquare, Wire::local, [&](RankContext& context) {
      Member member(context);
      const bool refuses = context.mesh.rank() == odd;
      MicroBatch micro = member.rows.micro();
      if (refuses) micro.targets.shape = {1, kWorldShape.context};
      const std::string message = refusal_of([&] { member.engine.step(std::span(&micro, 1)); });
      expect_refusal(message, refuses ? "one for each"
                                      : "rank " + std::to_string(odd) + " refused its inputs");
      EXPECT_EQ(member.step().step, 1);
    });
}

TEST(World, HearsThatARankRefusesASnapshotAndChangesNothing) {
  for (const int odd : {1, 2})
    on_mesh(kSquare, Wire::local, [&](RankContext& context) {
      Member member(context);
      const Snapshot start = member.engine.snapshot();
      member.step();
      const std::uint64_t before = member.engine.weights_hash();
      Snapshot other = start;
      const bool refuses = context.mesh.rank() == odd;
      if (refuses) other.tensors[1].bytes.pop_back();
      const std::string message = refusal_of([&] { member.engine.restore(other); });
      expect_refusal(message, refuses ? other.tensors[1].name
                                      : "rank " + std::to_string(odd) + " refused its inputs");
      EXPECT_EQ(member.engine.weights_hash(), before);
      EXPECT_EQ(member.engine.steps(), 1);
      member.engine.restore(start);
      EXPECT_EQ(member.engine.steps(), 0);
    });
}

TEST(World, RefusesDifferentRatesAndSnapshotsOfAnyRankAndGoesOn) {
  for (const int odd : {1, 3})
    on_mesh(kSquare, Wire::local, [&](RankContext& context) {
      Member member(context);
      const Snapshot start = member.engine.snapshot();
      const bool differs = context.mesh.rank() == odd;
      const std::string ranks = "ranks 0 and " + std::to_string(odd);
      const MicroBatch micro = member.rows.micro();
      const std::string rates = refusal_of(
          [&] { member.engine.step(std::span(&micro, 1), {.rate = differs ? 2e-3f : 1e-3f}); });
      expect_refusal(rates, ranks + " called step() with different options");
      Snapshot other = start;
      if (differs) other.tensors.back().bytes.back() ^= std::byte{1};
      const std::string snapshots = refusal_of([&] { member.engine.restore(other); });
      expect_refusal(snapshots, ranks + " called restore() with different snapshots");
      EXPECT_EQ(hash_of(member.engine.snapshot()), hash_of(start));
      other = start;
      if (differs) std::swap(other.tensors.front(), other.tensors.back());
      EXPECT_EQ(refusal_of([&] { member.engine.restore(other); }), "none") << "the order is free";
      EXPECT_EQ(member.step().step, 1);
    });
}

TEST(World, ChangesNothingOnALossThatIsNotFinite) {
  for (const Layout& layout : {Layout{.tp = 2}, Layout{.tp = 2, .sequence = true}, kSquareLayout})
    on_mesh(mesh_of(layout), Wire::local, [&](RankContext& context) {
      Member member(context, layout);
      const Snapshot good = member.engine.snapshot();
      Snapshot bad = good;
      const float nan = std::numeric_limits<float>::quiet_NaN();
      // A row of the vocabulary that belongs to the second rank.
      for (NamedTensor& tensor : bad.tensors)
        if (tensor.name == "transformer.wte.weight")
          std::memcpy(tensor.bytes.data() + tensor.bytes.size() - sizeof nan, &nan, sizeof nan);
      member.engine.restore(bad);
      const std::uint64_t before = member.engine.weights_hash();
      expect_refusal(refusal_of([&] { member.step(); }), "lower the learning rate");
      EXPECT_EQ(member.engine.weights_hash(), before);
      EXPECT_EQ(member.engine.steps(), 0);
      member.engine.restore(good);
      EXPECT_TRUE(member.step().applied);
    });
}

TEST(World, StopsOnAnErrorInTheMiddleOfAStepOfAnyDpIndex) {
  on_mesh(kSquare, Wire::local, [](RankContext& context) {
    Member member(context);
    member.step();
    member.fails = context.mesh.dp_rank == 1;
    expect_refusal(refusal_of([&] { member.step(); }), "the layer failed");
    expect_refusal(refusal_of([&] { member.step(); }),
                   "this engine stopped in step() after step 1");
  });
}

// The stopped rank is alone in its dp group. It must still end the ranks that share its tensors.
TEST(World, StopsWithoutADpGroup) {
  on_mesh({.tp = 2}, Wire::local, [](RankContext& context) {
    Member member(context, {.tp = 2});
    member.step();
    member.fails = true;
    expect_refusal(refusal_of([&] { member.step(); }), "the layer failed");
    EXPECT_TRUE(context.mesh.world->is_over());
    EXPECT_TRUE(context.mesh.tp->is_over());
  });
}

TEST(World, DoesNotWaitForeverForARankThatSharesItsTensors) {
  std::latch ended(1);
  on_mesh({.tp = 2}, Wire::local, [&](RankContext& context) {
    Member member(context, {.tp = 2});
    context.mesh.world->set_timeout(std::chrono::milliseconds(200));
    if (context.mesh.tp_rank == 1) return ended.wait();  // alive, but makes no call
    const std::string message = refusal_of([&] { member.step(); });
    ended.count_down();
    expect_refusal(message, "rank 1");
    expect_refusal(refusal_of([&] { member.step(); }), "this engine stopped");
  });
}

TEST(World, EndsWithARankThatLeaves) {
  for (const int leaver : {1, 2})
    on_mesh(kSquare, Wire::local, [&](RankContext& context) {
      Member member(context);
      if (context.mesh.rank() == leaver) return;
      expect_refusal(refusal_of([&] { member.step(); }), "rank");
      expect_refusal(refusal_of([&] { member.step(); }), "this engine stopped");
    });
}

struct Floats {
  explicit Floats(std::int64_t rows) : values(static_cast<std::size_t>(rows * kDividedChannels)) {
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = std::sin(static_cast<float>(i) * 0.7f);
  }
  MicroBatch micro() {
    const Shape shape{std::ssize(values) / kDividedChannels, kDividedChannels};
    return {.input = {values.data(), DType::f32, shape},
            .targets = {values.data(), DType::f32, shape}};
  }
  std::vector<float> values;
};

// The fault appears on dp index 0 and 1 alike. Each rank gives the same error, and none waits.
TEST(World, FindsReplicatedTensorsThatDifferOverTpOnAllRanks) {
  on_mesh(kSquare, Wire::local, [](RankContext& context) {
    Layout layout = kSquareLayout;
    layout.sequence = true;
    Engine engine(divided_model(Fault::not_partial), layout, context.mesh, context.device,
                  {.rate = 0.1f});
    engine.initialize(1);
    const Snapshot start = engine.snapshot();
    Floats batch(4);
    const MicroBatch micro = batch.micro();
    engine.step(std::span(&micro, 1));
    for (const std::string& message :
         {refusal_of([&] { engine.weights_hash(); }), refusal_of([&] { engine.snapshot(); })}) {
      expect_refusal(message, "tensor mlp.1.bias is not the same on rank 0 and rank 1");
      expect_refusal(message, "restore a snapshot");
    }
    engine.restore(start);
    EXPECT_EQ(refusal_of([&] { engine.weights_hash(); }), "none");
    EXPECT_EQ(hash_of(engine.snapshot()), hash_of(start));
  });
}

}  // namespace
}  // namespace troupe::train::testing
