/// The user code of a simulated process: the seeded workload of a driver, or the tasks and the
/// actor of a worker. It is driven by events: run() goes as far as possible and says when to be
/// woken.
#pragma once

#include "tests/simulation/cluster/process.hpp"

#include <optional>
#include <set>
#include <string>
#include <vector>

namespace troupe::sim::cluster {

/// The work of the drivers in one schedule.
struct Workload {
  /// The number of actions of one driver: up to 6 × `actions` until all drivers together made
  /// `least_calls` calls, and `fewest_actions` once they have.
  std::uint64_t actions = 40, fewest_actions = 40, least_calls = 0;
  Duration between{std::chrono::milliseconds(100)};
  bool actors = true, nested = true, large = true, bulk = true, throws = true, names = true;
  bool seats = true;        ///< some actors take a resource
  double slow_tasks = 0;    ///< share of tasks that run for up to a second
  std::uint64_t kills = 4;  ///< per cent of the actions that kill an actor
  /// Drivers go on slowly until the faults have stopped. Then they use every object and actor
  /// once more.
  bool lingers = false;
  bool shares = false;  ///< all drivers call one detached actor, all the time
};

class Program {
 public:
  explicit Program(Process& process) : process_(process) {}

  void begin_driver(const Workload& workload, std::uint64_t number, Time now);
  void run();
  void on_found(std::uint64_t request, ActorId actor, ObjectHandle lifetime);
  /// Kills an actor for good on behalf of a driver, which goes on calling it for a while.
  void kill_now(ActorId actor);
  /// Returns whether this driver has all its answers and has let go of everything.
  bool finished() const noexcept { return finished_; }
  bool hosts_actor() const noexcept { return static_cast<bool>(actor_); }
  bool is_busy() const noexcept { return current_.has_value(); }
  ActorId actor() const noexcept { return actor_; }
  std::uint64_t incarnation() const noexcept { return incarnation_; }
  /// Describes what a driver still waits for.
  std::string waits_for() const;
  std::string describe() const;  ///< describes what a worker does

 private:
  struct Current {
    std::optional<Incoming> call;
    std::optional<std::pair<wire::StartActor, Blob>> start;
    Spec spec;
    enum class Stage : std::uint8_t { arguments, running, children } stage = Stage::arguments;
    std::vector<ObjectHandle> values;  ///< whose bytes the task needs before it begins
    std::vector<ObjectHandle> refs;    ///< inside its arguments
    std::vector<ObjectHandle> children;
    std::shared_ptr<const ErrorInfo> bad;
    Time begun{}, until{}, waits_since{};
  };
  // a worker
  bool take_next();
  void open_arguments(const wire::Call& call, BlobView payload);
  bool all_here(const std::vector<ObjectHandle>& objects);
  bool wait_or_block(const std::vector<ObjectHandle>& objects);
  void advance();
  void begin_running();
  void act();
  void answer(const Outgoing& value);
  void answer_error(Code code, const std::string& type, Outcome outcome,
                    std::shared_ptr<const ErrorInfo> cause = {});
  void end_call();
  Outgoing value_of(const Spec& spec);

  // a driver
  struct Result {
    ObjectHandle handle;
    Spec spec;
    ActorId actor;  ///< for a method
    bool wants = false;
    bool plain = false;  ///< for a method: it has no arguments
    bool once = false;   ///< for a task: it has no retries
  };
  struct KnownActor {
    ActorId id;
    ObjectHandle lifetime;
    std::string name;
    std::uint64_t number = 0;
    bool killed = false, may_fail = false, detached = false;
    bool over = false;   ///< killed for good by this driver
    bool keeps = false;  ///< restarts without limit, and its methods cannot fail
  };
  /// A kill for good that follows a kill with a restart.
  struct Kill {
    ActorId actor;
    Time at{};
  };
  struct Question {
    std::uint64_t request = 0;
    std::string name;
    ActorId made;  ///< the actor of the spawn that this question follows
    bool detached = false, last = false;
  };
  void drive();
  bool has_more() const;
  void one_action();
  void submit_one();
  void call_one();
  void call(KnownActor& actor, bool plain);
  void spawn_one();
  bool spawn_last();
  void kill_one();
  void kill_for_good(KnownActor& actor);
  void find_one();
  void share_one();
  void linger(Time now);
  LeaseKey some_key();
  LeaseKey key_of_child(const Spec& child);
  void check_results();
  void judge(Result& result);
  void wind_up();
  std::vector<ObjectHandle> some_objects(std::uint64_t most, bool ready_only);
  Spec new_spec(Spec::Kind kind);
  bool user_made(const ErrorInfo& error) const;

  Process& process_;
  std::optional<Current> current_;
  ActorId actor_;
  std::uint64_t incarnation_ = 0;
  bool created_ = false;

  bool is_driver_ = false, finished_ = false, winding_up_ = false;
  Workload workload_;
  std::uint64_t number_ = 0, next_spec_ = 0, done_ = 0, seats_ = 0;
  Time next_action_{};
  std::vector<ObjectHandle> objects_;
  std::vector<Result> results_;
  std::vector<KnownActor> actors_;
  std::vector<Question> questions_;
  std::vector<Kill> kills_;
  std::vector<Result> nested_;  ///< refs found inside results, to be got next
  std::set<ActorId> killed_;
  std::uint64_t pester_ = 0;  ///< further actions that call the actor killed last
  ActorId pestered_;
  Duration pester_every_{};  ///< longest time between two such calls
  bool lingered_ = false, spawned_last_ = false;
};

}  // namespace troupe::sim::cluster
