#include "troupe/train/engine/internal/exchanges.hpp"

#include "troupe/train/internal/sizes.hpp"

#include <algorithm>
#include <vector>

namespace troupe::train::internal {
namespace {

constexpr const char* kStepTraffic = "the traffic of a step";
constexpr std::int64_t kGradientSize = sizeof(float);

void add(Exchanged& sum, const Exchanged& more, std::int64_t times = 1) {
  sum.all_reduce = add_product(sum.all_reduce, more.all_reduce, times, kStepTraffic);
  sum.reduce_scatter = add_product(sum.reduce_scatter, more.reduce_scatter, times, kStepTraffic);
  sum.all_gather = add_product(sum.all_gather, more.all_gather, times, kStepTraffic);
}

/// Returns the traffic as a group of `ranks` ranks counts it: the total is rounded down once.
collective::Traffic traffic_of(const Exchanged& moved, std::int64_t ranks) {
  const auto share = [ranks](std::int64_t bytes, std::int64_t times) {
    return static_cast<std::uint64_t>(add_product(0, bytes, times * (ranks - 1), kStepTraffic) /
                                      ranks);
  };
  return {.all_reduce = share(moved.all_reduce, 2),
          .reduce_scatter = share(moved.reduce_scatter, 1),
          .all_gather = share(moved.all_gather, 1)};
}

/// Walks a rank's list of actions as the engine does, and adds up its traffic.
class Counter {
 public:
  Counter(const Model& model, const Layout& layout, const RankPlan& rank, const Spec& in)
      : model_(model),
        layout_(layout),
        rank_(rank),
        plan_(plan_pass(model, layout, rank.stages, in, PassMode::training, rank.apart)) {}

  void run() {
    for (const Action& action : rank_.actions) count(action);
  }
  const Exchanged& over_tp() const noexcept { return over_tp_; }
  std::int64_t sent() const noexcept { return sent_; }

 private:
  void count(const Action& action) {
    const auto stage = static_cast<std::size_t>(action.stage / rank_.stages.ranks);
    const StagePlan& plan = plan_.stages[stage];
    if (!is_transfer(action.op)) enter(stage, action.micro);
    switch (action.op) {
      case Action::F: return forward(stage, action.micro);
      case Action::B:
      case Action::I: return backward(stage);
      case Action::SendF: sent_ = add_product(sent_, plan.out().bytes(), 1, kStepTraffic); return;
      case Action::SendB: sent_ = add_product(sent_, plan.in().bytes(), 1, kStepTraffic); return;
      default: return;
    }
  }

  PassExchanges of(int number, const LayerPlan& plan) const {
    return model_[static_cast<std::size_t>(number)]->exchanges(plan.in, layout_);
  }

  /// Calls f(number in the model, plan) for each layer of a stage.
  template <class F>
  void for_each_layer(std::size_t stage, F&& f) const {
    int number = rank_.stages.stages[stage].first;
    for (const LayerPlan& plan : plan_.stages[stage].layers) f(number++, plan);
  }

  /// Passes of other stages or micro-batches overwrite the shared saved memory.
  void enter(std::size_t stage, int micro) {
    if (saved_.micro != micro || !rank_.stages.stages[stage].has(saved_.layer))
      saved_ = {micro, -1};
  }

  void forward(std::size_t stage, int micro) {
    for_each_layer(stage, [&](int number, const LayerPlan& plan) {
      add(over_tp_, of(number, plan).forward);
      if (plan.again) saved_ = {micro, number};
    });
  }

  /// Full recompute runs a layer's forward again, unless its saved memory is still there from
  /// forward.
  void backward(std::size_t stage) {
    for_each_layer(stage, [&](int number, const LayerPlan& plan) {
      const PassExchanges moved = of(number, plan);
      const bool is_there = saved_.layer == number && plan.saved.region == Region::work;
      if (plan.again && !is_there) add(over_tp_, moved.forward);
      add(over_tp_, moved.backward);
    });
    saved_ = {};
  }

  struct Saved {
    int micro = -1, layer = -1;
  };

  const Model& model_;
  const Layout& layout_;
  const RankPlan& rank_;
  PassPlan plan_;
  Saved saved_;
  Exchanged over_tp_;
  std::int64_t sent_ = 0;
};

/// Returns the bytes of gradients that tensor-parallel ranks sum before each reduction of their
/// units.
std::int64_t partial_bytes(const Index& index) {
  std::int64_t bytes = 0;
  for (const TensorPlace& tensor : index.tensors())
    if (tensor.shard.partial && tensor.tied_to < 0 && !tensor.is_copy())
      bytes += tensor.local.count() * kGradientSize;
  return bytes;
}

/// Returns the bytes that this rank sends for tied tensors. The first stage sends the weights of
/// each shared tensor, and the last stage the gradient of each use.
std::int64_t tied_bytes(const Index& index, const Layout& layout) {
  std::int64_t bytes = 0;
  std::vector<TensorId> tensors;
  for (const TensorPlace& use : index.tensors()) {
    if (use.tied_to < 0) continue;
    if (index[use.tied_to].is_copy()) bytes += use.local.count() * kGradientSize;
    if (use.remote) tensors.push_back(use.tied_to);
  }
  std::sort(tensors.begin(), tensors.end());
  tensors.erase(std::unique(tensors.begin(), tensors.end()), tensors.end());
  for (const TensorId id : tensors)
    bytes += index[id].local.count() * kernels::size_of(layout.compute);
  return bytes;
}

}  // namespace

Exchanges count_exchanges(const Model& model, const Layout& layout, const RankPlan& rank,
                          const Index& index, const Spec& in) {
  Counter counter(model, layout, rank, in);
  counter.run();
  Exchanged over_tp = counter.over_tp();
  // With zero >= 2 every micro-batch is reduced, so its partial gradients are summed each time.
  add(over_tp, {.all_reduce = partial_bytes(index)}, layout.zero >= 2 ? layout.micro : 1);
  Exchanges moved{.tp = traffic_of(over_tp, layout.tp)};
  moved.pp.send = static_cast<std::uint64_t>(counter.sent());
  moved.tied.send = static_cast<std::uint64_t>(tied_bytes(index, layout));
  return moved;
}

}  // namespace troupe::train::internal
