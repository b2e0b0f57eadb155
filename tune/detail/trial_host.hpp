/// The actor around a trial's function, and what it tells the experiment.
#pragma once

#include "troupe/tune/trial.hpp"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <tuple>

namespace troupe::tune::internal {

struct TrialSetup {
  int number = 0;
  int attempt = 1;
  train::SavedModel start;
};

struct TrialMessage {
  enum class Kind : std::uint8_t { reported, saved, restored, noted, ended };
  Kind kind = Kind::ended;
  train::Metrics metrics;
  bool can_save = false;
  train::SavedModel saved;
  std::uint64_t hash = 0;
  std::string error;  ///< ended: why, empty without one; noted: the text
};

/// What a trial inside report() is told.
enum class Verdict : std::uint8_t { stop, go_on, save };

class TROUPE_API TrialHost {
 public:
  explicit TrialHost(TrialSetup setup);
  TrialHost(const TrialHost&) = delete;
  TrialHost& operator=(const TrialHost&) = delete;
  ~TrialHost();
  /// What happened since; waits at most so many milliseconds for the first message.
  std::vector<TrialMessage> take(int wait_ms);
  void reply(Verdict verdict);

 protected:
  void run(std::function<void(Trial&)> body);

 private:
  friend class tune::Trial;
  void push(TrialMessage message);
  Verdict await_verdict();

  TrialSetup setup_;
  long step_ = 0;
  bool reported_ = false;  ///< in this attempt; these three belong to the function's thread
  bool stopped_ = false;   ///< report() has said false
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<TrialMessage> messages_;
  std::deque<Verdict> verdicts_;
  std::thread thread_;
};

template <auto trial,
          class Parameters =
              typename troupe::detail::Signature<std::remove_const_t<decltype(trial)>>::Parameters>
class TrialActor {
  static_assert(sizeof(Parameters) == 0,
                "troupe: a trial is a function or a lambda without captures whose first parameters "
                "are tune::Trial& and the struct of its hyper-parameters");
};
template <auto trial, class Hp, class... P>
class TrialActor<trial, troupe::detail::List<Trial&, Hp, P...>> : public TrialHost {
  using Target = troupe::detail::target_of<trial>;

 public:
  using Params = std::decay_t<Hp>;
  TrialActor(TrialSetup setup, Params hp, std::decay_t<P>... arguments)
      : TrialHost(std::move(setup)) {
    auto kept = std::make_shared<std::tuple<Params, std::decay_t<P>...>>(std::move(hp),
                                                                         std::move(arguments)...);
    run([kept](Trial& t) {
      std::apply([&](auto&... each) { Target::call(nullptr, t, std::move(each)...); }, *kept);
    });
  }
};

}  // namespace troupe::tune::internal
