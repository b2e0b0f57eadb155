/// GangCore: runs gangs one after the other until the loop of a run has ended. It decides where
/// ranks go, when a gang begins, restarts, moves or ends, and which checkpoint is the next start.
/// A plain state machine: inputs go in, acts come out, and the shell (fit.cpp) does them.
///
///     GangCore core(plan, start);
///     core.begin(now);
///     for (GangAct& act : core.take()) perform(act);     // asks for nodes, spawns ranks, …
///     core.heard(now, gang, rank, event);                // and so on, until Finish or Fail
///
/// States: placing (no gang), gathering (ranks wait for their places), running, moving (running,
/// and the next checkpoint ends the gang) and ended. Inputs of an older gang change nothing.
#pragma once

#include "troupe/runtime/base/random.hpp"
#include "troupe/train/internal/gang_place.hpp"
#include "troupe/train/internal/gang_verdict.hpp"
#include "troupe/train/internal/kept_checkpoints.hpp"
#include "troupe/train/internal/reports.hpp"
#include "troupe/train/internal/saves.hpp"

#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace troupe::train::internal {

/// What stays the same during a run.
struct GangPlan {
  int least = 1, most = 1;  ///< ranks; a gang has a multiple of tp * pp of them
  Layout layout;            ///< its dp follows from the size of the gang when the sizes differ
  double cpus = 0, gpus = 0;
  bool spread = false;
  int max_restarts = 0;  ///< -1: without limit
  Duration grow_after = std::chrono::seconds(30);
  bool verdicts = false;  ///< an observer judges each report
  bool moves = true;      ///< a gang leaves nodes that drain, and grows
  std::string metric = "loss";
  MetricReduce reduce = MetricReduce::mean;
  bool maximize = false;
  bool folder = false;  ///< checkpoints are folders, else objects
  NodeId driver;
  std::uint64_t seed = 1;  ///< of the back-off
};

/// The acts. Those about ranks concern the present gang.
namespace act {
struct AskNodes {};  ///< answered by nodes()
/// Submit a task of this need, and answer with newcomer() when it ran, with no_newcomer() when it
/// is Infeasible.
struct Probe {
  double cpus = 0, gpus = 0;
};
/// Answered by chosen() with the first of these that still exists, or with the newest folder.
struct ChooseStart {
  std::vector<SavedModel> candidates;
};
struct Spawn {
  int gang = 0, rank = 0, world = 1, incarnation = 0;
  NodeId node;
  std::string listen;  ///< the host at which the rank's door listens; empty: it needs none
  Layout layout;
  SavedModel start;
};
/// Send a new key if the gang has doors, and then the order to begin.
struct Begin {
  int gang = 0;
  std::vector<GangMember> members;
  bool has_doors = false;
};
struct Tell {
  int rank = 0;
  WorkerOrder order;
};
struct Watch {
  int rank = 0;
  Position at;
};
struct WantSave {};  ///< tell rank 0 that a checkpoint is wanted soon
struct Kill {};      ///< kill all ranks of the gang; it has ended
/// Rank 0 has found where the gang starts in its folder, or a rank does not see the folder.
struct Started {
  FolderEvent event;
};
/// All ranks have written their shares of a checkpoint, or one could not: complete it, or clean up.
/// Answered by committed() if it is complete.
struct EndSave {
  int gang = 0;
  Saves::Ended save;
};
/// A report, for the folder's file.
struct Reported {
  Metrics metrics;
  std::optional<double> value;
};
struct Began {
  Gang gang;
};
/// Hand a report to the observer. `waits`: answer with judged().
struct Report {
  int gang = 0;
  Metrics metrics;
  SavedModel saved;
  bool waits = false;
};
struct Restored {
  std::uint64_t hash = 0;
};
struct Restarted {
  std::string why;
  long step = 0;
};
struct Finish {};
struct Fail {
  Error error;
};
}  // namespace act
using GangAct =
    std::variant<act::AskNodes, act::Probe, act::ChooseStart, act::Spawn, act::Begin, act::Tell,
                 act::Watch, act::WantSave, act::Kill, act::Started, act::EndSave, act::Reported,
                 act::Began, act::Report, act::Restored, act::Restarted, act::Finish, act::Fail>;

class GangCore {
 public:
  enum class State : std::uint8_t { placing, gathering, running, moving, ended };
  /// What a run has come to so far.
  struct Results {
    Metrics last;
    std::vector<Metrics> history;
    std::vector<std::string> failures;
    int restarts = 0, moves = 0, ranks = 0;
  };

  /// `start`: the checkpoint that the first gang begins from, if any.
  GangCore(GangPlan plan, SavedModel start);

  void begin(Time now);
  void nodes(Time now, std::vector<NodeInfo> nodes);
  void newcomer(Time now);
  void no_newcomer(Time now);
  /// `found` is empty when there is none.
  void chosen(Time now, const SavedModel& found);
  void heard(Time now, int gang, int rank, const WorkerEvent& event);
  /// The rank's process or its actor ended.
  void died(Time now, int gang, int rank, const Error& error);
  void judged(int gang, bool go_on);
  void committed(Time now, int gang, const SavedModel& model);
  /// Adds a sentence to the failures of the run.
  void note(std::string sentence) { results_.failures.push_back(std::move(sentence)); }
  void time(Time now);

  /// When time() is due.
  Time next() const;
  /// Returns the acts that are to be done, in their order.
  std::vector<GangAct> take() { return std::exchange(acts_, {}); }

  State state() const noexcept { return state_; }
  const GangPlan& plan() const noexcept { return plan_; }
  const Results& results() const noexcept { return results_; }
  const KeptCheckpoints& kept() const noexcept { return kept_; }
  const SavedModel& start() const noexcept { return starts_.now; }
  /// The number of the present gang; 0: there is none.
  int gang() const noexcept { return gang_ ? gang_->number : 0; }

 private:
  using End = GangVerdict::End;
  struct Rank {
    NodeId node;
    std::string door;
    int pid = 0;
    bool ready = false;
    bool asked = false;  ///< was sent Watch, and has not answered with `passed`
  };
  struct Present {
    int number = 0;
    Layout layout;
    std::vector<Rank> ranks;
    bool has_doors = false;
    GangVerdict verdict;
    Reports reports;
    bool told_gone = false;
    Time limit = Time::max();  ///< of gathering
    Time grace = Time::max();  ///< of the ranks that have not ended after a failure
    /// A rank fits nowhere; until then its node may turn out to be lost.
    Time doubt_until = Time::max();
    std::optional<Position> open;
    Time ask_at = Time::max();   ///< to ask the ranks that `open` waits for
    long saved = -1;             ///< moving: the step of the checkpoint that came
    Time move_by = Time::max();  ///< then its report is not waited for any more
    Saves saves;
  };
  struct Placing {
    Time ask = Time::max();
    Duration poll{};
    bool asked = false;  ///< for nodes, by placing
    bool probed = false;
    std::string never;  ///< why the gang fits nowhere
    GangHeld held;
    Time held_until{};
    Duration gather_within = std::chrono::seconds(1);  ///< doubles, as starts may be slow
  };
  struct Starts {
    SavedModel now, first;
    long judged = 0;     ///< the last step that the observer saw
    long from = 0;       ///< where the last restart began
    int unlucky = 0;     ///< restarts without a new checkpoint
    std::string reason;  ///< of the restart under way; empty: a move
  };
  struct Growth {
    Duration after{};
    Time since = Time::max();     ///< more fits since then
    Time grown_at = Time::max();  ///< the gang began larger than the one before
    int before = 0;               ///< size of the gang before
  };

  GangNeed need(int workers) const;
  std::pair<int, GangPlaces> best_places(const GangHeld& held) const;
  GangHeld ranks_by_node() const;
  const NodeInfo* node(NodeId id) const;
  bool is_present(int gang, int rank) const;
  void judge_doubt(Time now);
  void place(Time now);
  void spawn(Time now, int size, const GangPlaces& places);
  void begin_gang(Time now);
  void look_for_move(Time now);
  bool wants_move() const;
  bool drains() const;
  void happened(Time now, int rank, const WorkerEvent& event);
  void ended(int rank, const WorkerEvent& event);
  void heard_of_folder(int rank, const FolderEvent& event);
  void saved(Time now, const SavedModel& model);
  void note(int rank, long step, const Error& error);
  void settle(Time now);
  void judge_reports();
  void look_after(Time now);
  void watch_open(Time now);
  void end_gang(Time now, End end);
  void settle_reports();
  void reported(const Reports::Complete& report);
  SavedModel saved_in(long step) const;
  void take_down(Time now);
  void failed(Time now, const Error& error);
  void move(Time now);
  void choose_start(std::string reason);
  void fail(const Error& error);
  void tell_all(const WorkerOrder& order);
  int size() const noexcept { return static_cast<int>(gang_->ranks.size()); }

  const GangPlan plan_;
  State state_ = State::placing;
  Results results_;
  KeptCheckpoints kept_;
  Starts starts_;
  std::vector<NodeInfo> nodes_;
  Time look_ = Time::max();  // when a gang's nodes are asked for next
  std::optional<Present> gang_;
  int gangs_ = 0;
  Placing placing_;
  Growth growth_;
  Random random_;
  std::vector<GangAct> acts_;
};

}  // namespace troupe::train::internal
