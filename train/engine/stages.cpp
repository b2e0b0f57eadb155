#include "troupe/train/engine/stages.hpp"

#include "troupe/train/internal/reject.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace troupe::train {
namespace {

using internal::reject;

/// Returns the layers between those that belong to the first and to the last stage.
Stage blocks_of(const Model& model) {
  Stage blocks{0, static_cast<int>(model.size())};
  const auto stays = [&](int l) { return model[static_cast<std::size_t>(l)]->keeps_saved(); };
  while (blocks.first < blocks.end && stays(blocks.first)) ++blocks.first;
  while (blocks.end > blocks.first && stays(blocks.end - 1)) --blocks.end;
  return blocks;
}

/// Returns a text like "1, 2 or 4".
std::string divisors_of(int n) {
  std::vector<int> all;
  for (int d = 1; d <= n; ++d)
    if (n % d == 0) all.push_back(d);
  std::string text;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i > 0) text += i + 1 == all.size() ? " or " : ", ";
    text += std::to_string(all[i]);
  }
  return text;
}

/// A tied use and the tensor whose weights it shares, in an index of all layers.
struct Tie {
  TensorId use, tensor;
};

/// Returns the ties from the last rank of the pipeline to the first, in the order of their uses.
std::vector<Tie> remote_ties(const Index& whole, const std::vector<int>& rank_of_layer, int ranks) {
  std::vector<Tie> ties;
  for (const UnitPlace& unit : whole.units())
    for (const TensorId id : unit.tied) {
      const TensorPlace& use = whole[id];
      const TensorPlace& tensor = whole[use.tied_to];
      const int from = rank_of_layer[static_cast<std::size_t>(use.unit)];
      const int to = rank_of_layer[static_cast<std::size_t>(tensor.unit)];
      if (from == to) continue;
      if (from != ranks - 1 || to != 0)
        reject("tensor " + tensor.name + " is shared by layers of ranks " + std::to_string(to) +
               " and " + std::to_string(from) +
               " of the pipeline, and only the first rank may share with the last: use another "
               "pp, or untie them");
      ties.push_back({id, use.tied_to});
    }
  return ties;
}

std::vector<int> ranks_of_layers(const Model& model, const RankStages& stages) {
  std::vector<int> ranks;
  const int count = stages.ranks * static_cast<int>(stages.stages.size());
  int number = 0;
  for (const Stage& stage : stages_of(model, count))
    ranks.insert(ranks.end(), static_cast<std::size_t>(stage.size()),
                 rank_of_stage(number++, stages.ranks));
  return ranks;
}

void add_copies(Index& index, const Index& whole, const std::vector<Tie>& ties) {
  for (const Tie& tie : ties)
    if (!index.find(whole[tie.tensor].name)) index.add_copy(whole[tie.tensor]);
}

}  // namespace

std::vector<Stage> stages_of(const Model& model, int count) {
  const Stage blocks = blocks_of(model);
  const int all = static_cast<int>(model.size());
  if (count == 1) return {{0, all}};
  if (blocks.size() == 0 || blocks.size() % count != 0)
    reject("the model has " + std::to_string(blocks.size()) +
           " layers between its first and last ones, which " + std::to_string(count) +
           " stages do not divide: choose pp times the stages of a rank as " +
           divisors_of(std::max(blocks.size(), 1)) + ", or another number of layers");
  const int each = blocks.size() / count;
  std::vector<Stage> stages;
  for (int s = 0; s < count; ++s)
    stages.push_back({blocks.first + s * each, blocks.first + (s + 1) * each});
  stages.front().first = 0;
  stages.back().end = all;
  return stages;
}

Schedule forward_schedule(int p, int v, int micros) {
  Schedule schedule(static_cast<std::size_t>(p));
  for (int micro = 0; micro < micros; ++micro)
    for (int stage = 0; stage < p * v; ++stage) {
      std::vector<Action>& list = schedule[static_cast<std::size_t>(rank_of_stage(stage, p))];
      if (stage > 0) list.push_back({Action::RecvF, stage, micro});
      list.push_back({Action::F, stage, micro});
      if (stage + 1 < p * v) list.push_back({Action::SendF, stage, micro});
    }
  return schedule;
}

RankStages rank_stages(const Model& model, int p, int v, int rank) {
  const std::vector<Stage> all = stages_of(model, p * v);
  RankStages own{.rank = rank, .ranks = p, .stages = {}};
  for (int s = rank; s < p * v; s += p) own.stages.push_back(all[static_cast<std::size_t>(s)]);
  return own;
}

Index declare(const Model& model, const Layout& layout, const RankStages& stages, int tp_rank) {
  if (stages.ranks == 1) return declare(model, layout, tp_rank);
  const Index whole = declare(model, layout, tp_rank);
  const std::vector<int> ranks = ranks_of_layers(model, stages);
  const std::vector<Tie> ties = remote_ties(whole, ranks, stages.ranks);
  Index index(tp_rank);
  if (stages.has_last()) add_copies(index, whole, ties);
  for (std::size_t l = 0; l < model.size(); ++l) {
    const int unit = index.begin_unit(model[l]->name());
    if (ranks[l] == stages.rank) model[l]->declare(index, unit, layout);
  }
  if (stages.has_first())
    for (const Tie& tie : ties) index.tie_remote(*index.find(whole[tie.tensor].name));
  return index;
}

}  // namespace troupe::train
