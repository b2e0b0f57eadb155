/// Simulates the supervisor of a gang: the real GangCore, over played nodes, ranks, disks and
/// drivers. Nodes die, fall silent, drain and come back, other work takes CPUs, writes are slow or
/// fail, and drivers are killed. A seed drives everything.
///
///     GangWorld world(seed);
///     world.run();
///     EXPECT_EQ(world.broken(), "");
///
/// Events of a rank arrive in their order, also after its gang has ended. Reports of free CPUs lag
/// behind the death of a gang by up to a second.
#pragma once

#include "troupe/runtime/base/random.hpp"
#include "troupe/train/internal/gang_core.hpp"

#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <set>
#include <string>
#include <vector>

namespace troupe::train::internal {

class GangWorld {
 public:
  struct Seen {
    std::uint64_t gangs = 0, restarts = 0, moves = 0, growths = 0, left = 0, commits = 0;
    std::uint64_t removed = 0, late = 0, failed_saves = 0, drivers = 0, hidden = 0, gathers = 0;
  };

  explicit GangWorld(std::uint64_t seed);
  void run();
  /// Returns the first promise that was broken, or an empty string.
  const std::string& broken() const noexcept { return broken_; }
  const Seen& seen() const noexcept { return seen_; }

 private:
  struct Host {
    NodeInfo info;
    bool up = true, heard = true;  ///< heard: control hears it; a silent one is dead later
    bool told_draining = false;    ///< the core has been told
    Time lost{};
    int life = 0, foreign = 0, held = 0;
    struct Lag {
      Time until;
      int life = 0, gang = 0;  ///< the driver's life, and its gang
    };
    std::vector<Lag> lag;                      ///< ranks that have ended and still count as there
    std::vector<std::pair<int, int>> waiting;  ///< gang and rank, for a CPU
  };
  struct Rank {
    std::size_t host = 0;
    int life = 0;  ///< of its host
    bool placed = false, told_ready = false, dead = false, ended = false, told_end = false;
    Time last{};  ///< arrival of its last event
  };
  struct Played {
    int number = 0;
    std::vector<Rank> ranks;
    bool begun = false, hurt = false, told_hurt = false, told_lost = false, over = false,
         wanted = false;
    long step = 0;
    Time begun_at{};
    std::map<long, std::set<int>> wrote;  ///< what the core was told
  };
  struct Event {
    Time at;
    std::uint64_t order = 0;
    std::function<void()> what;
    bool operator<(const Event& other) const noexcept {
      return at != other.at ? at > other.at : order > other.order;
    }
  };
  /// What a driver's life must come to.
  struct Expected {
    int restarts = 0, moves = 0;
    Duration grow_after{};
    Time grown_at = Time::max();
    int before = 0;
    long first = 0;        ///< the step that it starts from
    int last_killed = 0;   ///< a gang that had begun; 0: none
    int failed_saves = 0;  ///< in a row
    bool ended = false;
  };

  void at(Time when, std::function<void()> what) {
    events_.push({when, ++order_, std::move(what)});
  }
  void after(Duration delay, std::function<void()> what) { at(now_ + delay, std::move(what)); }
  /// Like after(), unless the driver is killed first.
  void then(Duration delay, std::function<void()> what) {
    after(delay, [this, life = life_, what = std::move(what)] {
      if (life == life_) what();
    });
  }
  Duration some(Duration least, Duration most) {
    return least + Duration(static_cast<Duration::rep>(
                       random_.below(static_cast<std::uint64_t>((most - least).count()) + 1)));
  }
  bool chance(double p) { return random_.chance(p); }
  void say(const std::string& what);
  static SavedModel model(long step);
  static Error error(Code code) { return {code, "played", Outcome::unknown}; }

  // --- nodes
  int free(const Host& host) const {
    return static_cast<int>(host.info.cpus) - host.foreign - host.held;
  }
  std::vector<NodeInfo> infos(bool with_lag) const;
  void strike();
  void kill_host(std::size_t index);
  void revive(std::size_t index);
  void heal();
  void serve(std::size_t index);

  // --- ranks
  void spawn(const act::Spawn& what);
  void begin(const act::Begin& what);
  void play_step(int gang);
  void save(Played& gang);
  void end_loop(int gang);
  void hurt(Played& gang, int rank, Duration told);
  void tell(Played& gang, int rank, WorkerEvent event);
  void take_down(Played& gang);
  Played* present(int gang);

  // --- the driver
  void start_driver(const SavedModel& start);
  void kill_driver();
  void drive();
  void perform(const act::AskNodes&);
  void perform(const act::Probe&) {}
  void perform(const act::ChooseStart& what);
  void perform(const act::Spawn& what) { spawn(what); }
  void perform(const act::Begin& what) { begin(what); }
  void perform(const act::Tell&) {}
  void perform(const act::Watch& what);
  void perform(const act::WantSave&);
  void perform(const act::Kill&);
  void perform(const act::Started&) {}
  void perform(const act::EndSave& what);
  void perform(const act::Reported& what);
  void perform(const act::Began& what);
  void perform(const act::Report&) {}
  void perform(const act::Restored&) {}
  void perform(const act::Restarted&) {}
  void perform(const act::Finish&);
  void perform(const act::Fail& what);
  bool exists(const SavedModel& saved) const;

  Random random_;
  Time now_ = Time{} + std::chrono::seconds(1);
  std::uint64_t order_ = 0;
  std::priority_queue<Event> events_;
  std::vector<Host> hosts_;
  std::map<int, Played> gangs_;  ///< of this driver; number + 1000 * its life
  GangPlan plan_;
  struct Rules {
    long steps = 0, every = 1;
    Duration step{}, faults{}, until{};
    bool folder = false, bad_host = false;
  } rules_;
  std::map<long, std::pair<std::size_t, int>>
      objects_;  ///< the host of a saved object, and its life
  std::set<long> folders_;
  std::map<long, double> values_;  ///< of reports, by step
  int keep_ = 1;
  std::unique_ptr<GangCore> core_;
  int life_ = 0;  ///< of drivers
  Expected expected_;
  std::string broken_;
  Seen seen_;
};

}  // namespace troupe::train::internal
