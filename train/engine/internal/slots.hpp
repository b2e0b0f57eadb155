/// Slots: assigns parts of the arena's regions to live micro-batches while a rank's list of
/// actions runs.
#pragma once

#include "troupe/train/engine/stages.hpp"
#include "troupe/train/pipeline/schedule.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace troupe::train::internal {

/// The lifetime of a part of an arena. All but `work` belong to one stage and one micro-batch.
enum class Region : std::uint8_t {
  work,      ///< during one action; shared by all stages of the rank
  slot,      ///< from the forward pass to the end of the backward pass
  outgoing,  ///< the gradient of the stage's input, until it is sent
  pair,      ///< from I to W, when the backward pass is split
};
inline constexpr std::size_t kRegions = 4;

/// For each region of a stage, the largest number of parts in use at one time.
using LiveParts = std::array<int, kRegions>;

/// The part of each region that a live micro-batch has. The interpreter updates it with each
/// action. A dry run over a list gives the numbers of parts that the list needs.
class Slots {
 public:
  Slots(int p, std::size_t stages, std::size_t micros, bool apart);

  /// before() takes the parts that the action fills. after() gives back the parts that no later
  /// action needs.
  void before(const Action& action);
  void after(const Action& action);
  /// Returns the part of a live micro-batch; -1 for none.
  int of(Region region, int stage, int micro) const;
  const std::vector<LiveParts>& most() const noexcept { return most_; }

 private:
  struct Places {
    std::array<std::vector<int>, kRegions> held;   // by micro-batch; -1: none
    std::array<std::vector<bool>, kRegions> used;  // by part
  };
  void take(Region region, const Action& action);
  void give_back(Region region, const Action& action);
  std::size_t local(int stage) const noexcept { return static_cast<std::size_t>(stage / p_); }

  int p_;
  bool apart_;
  std::vector<Places> stages_;  // the rank's, ascending
  std::vector<LiveParts> most_;
};

/// Returns whether the list splits backward passes into I and W.
bool is_apart(const std::vector<Action>& list) noexcept;
/// Returns the live parts of each of the rank's stages, ascending.
std::vector<LiveParts> live_of(const std::vector<Action>& list, const RankStages& stages,
                               int micros);

/// The stages and the list of actions of one rank of a pipeline.
struct RankPlan {
  RankStages stages;
  std::vector<Action> actions;
  std::vector<LiveParts> live;  ///< of each of its stages
  bool apart = false;           ///< backward passes are split into I and W
};
/// Returns the plan of a rank. With pp = 1 it is F0 B0 F1 B1 ... of one stage, whatever the
/// schedule. Reads the schedule's file. Throws InvalidArgument, one sentence, when the schedule
/// does not fit the layout, or the stages do not divide the model.
TROUPE_API RankPlan rank_plan(const Model& model, const Layout& layout, int pp_rank);

}  // namespace troupe::train::internal
