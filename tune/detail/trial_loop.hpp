/// The actor that runs a trial's function, and the messages between it and optimize()'s runner.
#pragma once

#include "troupe/actors/loop_actor/loop_actor.hpp"
#include "troupe/runtime/callable.hpp"
#include "troupe/tune/trial.hpp"

#include <cstdint>
#include <string>
#include <tuple>

namespace troupe::tune::internal {

/// The data that an attempt starts with.
struct TrialSetup {
  int number = 0;
  int attempt = 1;
  train::SavedModel start;  ///< the weights to restore; empty: none
};

/// A message from the attempt to the runner.
struct TrialMessage {
  enum class Kind : std::uint8_t { reported, saved, restored, noted, ended };
  Kind kind = Kind::ended;
  train::Metrics metrics;
  bool can_save = false;
  train::SavedModel saved;
  std::uint64_t hash = 0;
  std::string error;  ///< ended: the error, or empty; noted: the text
};

/// The runner's answer to a trial inside report(). After `save` the trial saves and waits for
/// another one.
enum class Verdict : std::uint8_t { stop, go_on, save };

/// Runs the trial's function on a thread of its own and answers the runner's calls meanwhile.
class TROUPE_API TrialLoop : public LoopActor<TrialMessage, Verdict> {
 public:
  explicit TrialLoop(TrialSetup setup);
  ~TrialLoop() { stop(); }

 protected:
  void run(std::function<void(Trial&)> body);

 private:
  friend class tune::Trial;
  Verdict await_verdict() { return next().value_or(Verdict::stop); }

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
  TrialActor(TrialSetup setup, Params hp, std::decay_t<P>... arguments)
      : TrialLoop(std::move(setup)) {
    auto kept = std::make_shared<std::tuple<Params, std::decay_t<P>...>>(std::move(hp),
                                                                         std::move(arguments)...);
    run([kept](Trial& t) {
      std::apply([&](auto&... each) { CallableTraits<trial>::call(t, std::move(each)...); }, *kept);
    });
  }
};

}  // namespace troupe::tune::internal
