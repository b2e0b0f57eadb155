/// The actor that runs a trial's function, attempt after attempt, and the messages between it and
/// optimize()'s runner.
///
/// A host is such an actor in a process of its own. start() begins an attempt, and the message
/// `ended` ends it. Between two attempts the host restores what the function may have changed of
/// the process (ProcessState). An attempt that failed, or left a child process, is the host's last.
#pragma once

#include "troupe/actors/loop_actor/loop_actor.hpp"
#include "troupe/actors/loop_actor/output_place.hpp"
#include "troupe/runtime/callable.hpp"
#include "troupe/tune/trial.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <tuple>

namespace troupe::tune::internal {

/// The data that an attempt starts with.
struct TrialSetup {
  int number = 0;
  int attempt = 1;
  train::SavedModel start;  ///< the weights to restore; empty: none
  std::string metric = "score";
  bool replicate = false;  ///< a checkpoint goes to a second node
  // What the trial reserves for each rank of its gang.
  int workers = 0;
  double cpus = 0, gpus = 0;
  bool holds = false;  ///< this process holds the sum for all ranks
  loops::OutputPlace output;
};

/// A message from the host to the runner.
struct TrialMessage {
  enum class Kind : std::uint8_t {
    ready,  ///< the host runs; once, and before all others
    reported,
    saved,
    restored,
    noted,
    gathered,  ///< the ranks of the trial's gang are ready
    ended,
  };
  Kind kind = Kind::ended;
  train::Metrics metrics;
  double score = 0;  ///< reported
  bool can_save = false;
  train::SavedModel saved;
  std::uint64_t hash = 0;
  std::string error;  ///< ended: the error, or empty; noted: the text
  NodeId node;        ///< ready: where the host runs
  int pid = 0;
  bool reusable = false;  ///< ended: the host can run another attempt
};

/// The runner's answer to a trial inside report(). After `save` the trial saves and waits for
/// another one.
enum class Verdict : std::uint8_t { stop, go_on, save };

/// What the loop of a host receives: an attempt to run, or a verdict for the one that runs.
struct TrialOrder {
  Verdict verdict = Verdict::stop;
  TrialSetup setup;
  std::function<void(Trial&)> body;  ///< empty: a verdict
};

/// Runs the trial's function on a thread of its own and answers the runner's calls meanwhile.
class TROUPE_API TrialLoop : public LoopActor<TrialMessage, TrialOrder> {
 public:
  TrialLoop();
  ~TrialLoop() { stop(); }
  void answer(Verdict verdict) { tell({verdict, {}, {}}); }

 protected:
  void begin(const TrialSetup& setup, std::function<void(Trial&)> body) {
    tell({Verdict::stop, setup, std::move(body)});
  }

 private:
  friend class tune::Trial;
  friend class TrialObserver;
  void serve();
  Verdict await_verdict();

  // Only the function's thread uses these.
  TrialSetup setup_;
  long step_ = 0;
  bool reported_ = false;  ///< this attempt has reported
  bool stopped_ = false;   ///< report() has returned false
};

/// The actor class of one trial function. The primary template refuses other functions.
template <auto trial, class Parameters = typename CallableTraits<trial>::Parameters>
class TrialActor {
  static_assert(sizeof(Parameters) == 0,
                "troupe: a trial is a function or a lambda without captures whose first parameters "
                "are tune::Trial& and the struct of its hyper-parameters");
};
template <auto trial, class Hp, class... P>
class TrialActor<trial, TypeList<Trial&, Hp, P...>> : public TrialLoop {
 public:
  using Params = std::decay_t<Hp>;
  using Passed = std::tuple<std::decay_t<P>...>;
  /// Whether each attempt can get a copy of the arguments.
  static constexpr bool reusable = std::is_copy_constructible_v<Passed>;

  explicit TrialActor(std::decay_t<P>... arguments)
      : passed_(std::make_shared<Passed>(std::move(arguments)...)) {}
  void start(const TrialSetup& setup, const Params& hp) {
    begin(setup, [hp, passed = passed_](Trial& t) {
      const auto call = [&t, &hp](auto&&... each) {
        Params own = hp;
        CallableTraits<trial>::call(t, std::move(own), std::move(each)...);
      };
      if constexpr (reusable)
        std::apply(call, Passed(*passed));
      else
        std::apply(call, std::move(*passed));
    });
  }

 private:
  std::shared_ptr<Passed> passed_;
};

}  // namespace troupe::tune::internal
