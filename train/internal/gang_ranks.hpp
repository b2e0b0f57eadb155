/// GangRanks: the ranks of one gang, as the supervisor (fit.cpp) sees them. Receives their
/// events, sends them orders, and keeps their verdict and reports.
///
///     GangRanks ranks(options, host);
///     for (…) ranks.add(spawn(…));
///     while (ranks.verdict().end() == GangVerdict::End::open) {
///       ranks.hear(Time::max());               // calls the host
///       while (auto report = ranks.reports().next()) ranks.judge(go_on(*report));
///       ranks.look_after();
///     }
#pragma once

#include "troupe/actors/loop_actor/loop_controller.hpp"
#include "troupe/train/fit.hpp"
#include "troupe/train/internal/gang_verdict.hpp"
#include "troupe/train/internal/reports.hpp"

#include <vector>

namespace troupe::train::internal {

class GangRanks {
 public:
  class Host {
   public:
    virtual ~Host() = default;
    virtual void saved(const SavedModel& model) = 0;
    virtual void restored(std::uint64_t hash) = 0;
    /// The rank's process or its actor ended.
    virtual void died(int rank, const Error& error) = 0;
    virtual void failed(int rank, long step, const Error& error) = 0;
  };

  GangRanks(const FitOptions& options, Host& host);
  GangRanks(const GangRanks&) = delete;
  GangRanks& operator=(const GangRanks&) = delete;
  /// Calls take_down().
  ~GangRanks();

  /// Adds the next rank.
  void add(WorkerHandle worker);
  bool any_ready() const;
  bool all_ready() const;
  /// Tells all loops to begin.
  void begin();
  /// Waits for events until `until` at the latest, and hands all that have come to the host, the
  /// verdict and the reports.
  void hear(Time until);
  /// Sends the ranks the verdict on the next report of rank 0.
  void judge(bool go_on);
  /// Call it after each hear(). Once a rank has failed, ends all waits for verdicts at once, and
  /// the wait for the other ranks after a grace period.
  void look_after();
  /// Kills all ranks.
  void take_down();

  GangVerdict& verdict() noexcept { return verdict_; }
  Reports& reports() noexcept { return reports_; }

 private:
  struct Rank {
    WorkerHandle worker;
    bool ready = false;
    bool asked = false;  ///< was sent watch(), and has not answered with `passed`
  };
  bool take(const std::optional<LoopController<WorkerEvent>::Heard>& heard);
  void happened(int rank, const WorkerEvent& event);
  void ended(int rank, const WorkerEvent& event);
  bool keeps_waiting() const;
  void ask_for_places();
  void tell_all(const WorkerOrder& order);
  Rank& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  int size() const noexcept { return static_cast<int>(ranks_.size()); }

  Host& host_;
  GangVerdict verdict_;
  Reports reports_;
  std::vector<Rank> ranks_;
  LoopController<WorkerEvent> loops_;
  bool told_gone_ = false;
  Time grace_ = Time::max();  // deadline for the other ranks to end after a failure
};

}  // namespace troupe::train::internal
