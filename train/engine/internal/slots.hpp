/// What a rank's list of actions keeps: which part of which region each live micro-batch has.
#pragma once

#include "troupe/train/engine/stages.hpp"
#include "troupe/train/pipeline/schedule.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace troupe::train::internal {

/// How long a part of an arena is in use. All but `work` are of one stage and one micro-batch.
enum class Region : std::uint8_t {
  work,      ///< during one action; shared by all stages of the rank
  slot,      ///< from the forward pass to the end of the backward pass
  outgoing,  ///< the gradient of the stage's input, until it is sent
  pair,      ///< from I to W, where these are apart
};
inline constexpr std::size_t kRegions = 4;

/// Most parts of each region of a stage that are in use at one time.
using LiveParts = std::array<int, kRegions>;

/// Which part of each region a live micro-batch has. The interpreter moves it action by action; a
/// scan of a list says what the list needs.
class Slots {
 public:
  Slots(int p, std::size_t stages, std::size_t micros, bool apart);

  /// Takes what the action fills and what it needs from then on; gives back what none needs later.
  void before(const Action& action);
  void after(const Action& action);
  /// Of a live one.
  int of(Region region, int stage, int micro) const;
  const std::vector<LiveParts>& most() const noexcept { return most_; }

 private:
  struct Places {
    std::array<std::vector<int>, kRegions> held;   // by micro-batch; -1: none
    std::array<std::vector<bool>, kRegions> used;  // by place
  };
  void take(Region region, const Action& action);
  void give_back(Region region, const Action& action);
  std::size_t local(int stage) const noexcept { return static_cast<std::size_t>(stage / p_); }

  int p_;
  bool apart_;
  std::vector<Places> stages_;  // the rank's, ascending
  std::vector<LiveParts> most_;
};

/// Whether a list has backward passes in two actions.
bool is_apart(const std::vector<Action>& list) noexcept;
/// Of the rank's stages, ascending.
std::vector<LiveParts> live_of(const std::vector<Action>& list, const RankStages& stages,
                               int micros);

/// What a rank of a pipeline has and does in a step.
struct RankPlan {
  RankStages stages;
  std::vector<Action> actions;
  std::vector<LiveParts> live;  ///< of each of its stages
  bool apart = false;           ///< I and W are actions of their own
};
/// The plain run (pp = 1) is F0 B0 F1 B1 ... of one stage, whatever the schedule is. Reads the
/// schedule's file. Throws InvalidArgument, one sentence, for a schedule that does not fit the
/// layout or a model that its stages do not divide.
TROUPE_API RankPlan rank_plan(const Model& model, const Layout& layout, int pp_rank);

}  // namespace troupe::train::internal
