#include "troupe/actors/loop_actor/loop_controller.hpp"

#include "troupe/actors/loop_actor/internal/actor_system.hpp"
#include "troupe/runtime/callable.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace troupe::loops {
namespace {

/// The error that ended a loop. It is the exit reason of the loop's follower.
using Death = std::shared_ptr<const Error>;
constexpr std::uint8_t kLoopEnded = 1;
/// CAF adds the delay to its clock, so it is limited to avoid an overflow. next() sets a new timer
/// after it.
constexpr Duration kLongestTimer = std::chrono::hours(24);

}  // namespace
}  // namespace troupe::loops

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::loops::Death)

namespace troupe::loops {
namespace {

/// Follower: keeps one take() of a loop open. It runs on CAF's thread, so it must not block.
class Follower : public caf::event_based_actor {
 public:
  Follower(caf::actor_config& config, int id, Ask ask, caf::actor controller)
      : caf::event_based_actor(config),
        id_(id),
        ask_(std::move(ask)),
        controller_(std::move(controller)) {}

  caf::behavior make_behavior() override {
    send(this, ready_atom::value);
    return {[this](ready_atom) { hear(); }, [this](forget_atom) { quit(); }};
  }

 private:
  /// Sends the result of the take() that has ended, if any, to the controller and starts the next
  /// one.
  void hear() {
    try {
      if (asked_.read) send(controller_, message_atom::value, id_, Message(asked_.read()));
      asked_ = ask_();
      // The callback holds the weak address. A strong handle would keep a forgotten follower alive
      // until its loop emits an event.
      asked_.notify([me = address()] {
        if (const auto follower = caf::actor_cast<caf::actor>(me))
          caf::anon_send(follower, ready_atom::value);
      });
    } catch (...) {
      die(error_in_flight());
    }
  }

  static Error error_in_flight() {
    try {
      throw;
    } catch (const Error& error) {
      return error;
    } catch (...) {
      return failure_of_current_exception("take");
    }
  }

  void die(const Error& error) {
    quit(caf::error(kLoopEnded, caf::atom("loop"),
                    caf::make_message(Death(std::make_shared<const Error>(error)))));
  }

  int id_;
  Ask ask_;
  caf::actor controller_;
  Asked asked_;
};

Error death_of(const caf::error& reason) {
  if (reason && reason.context().match_elements<Death>()) return *reason.context().get_as<Death>(0);
  return Error(Code::internal, "the follower of a loop ended: " + to_string(reason));
}

}  // namespace

struct Followers::Actors {
  caf::scoped_actor self{actor_system()};
  std::map<int, caf::actor> followers;
  std::uint64_t timers = 0;  ///< the number of the latest timer; older ones are ignored

  int id_of(const caf::actor_addr& address) const {
    for (const auto& [id, follower] : followers)
      if (follower.address() == address) return id;
    return -1;
  }
};

Followers::Followers() : actors_(std::make_unique<Actors>()) {}

Followers::~Followers() {
  for (const auto& [id, follower] : std::exchange(actors_->followers, {})) {
    caf::anon_send(follower, forget_atom::value);
    actors_->self->wait_for(follower);
  }
}

void Followers::follow(int id, Ask ask) {
  caf::actor follower = actor_system().spawn<Follower>(id, std::move(ask),
                                                       caf::actor_cast<caf::actor>(actors_->self));
  actors_->self->monitor(follower);
  actors_->followers[id] = std::move(follower);
}

void Followers::forget(int id) {
  const auto found = actors_->followers.find(id);
  if (found == actors_->followers.end()) return;
  caf::anon_send(found->second, forget_atom::value);
  actors_->followers.erase(found);
}

std::optional<Followers::Heard> Followers::next(Time until) {
  std::optional<Heard> heard;
  bool rang = false;
  const caf::scoped_actor& self = actors_->self;
  const auto on_events = [&](message_atom, int id, const Message& events) {
    // The number may belong to another loop by now: accept events of the present follower only.
    if (id == actors_->id_of(caf::actor_cast<caf::actor_addr>(self->current_sender())))
      heard = {id, events, std::nullopt};
  };
  const auto on_death = [&](const caf::down_msg& down) {
    const int id = actors_->id_of(down.source);
    if (id < 0) return;  // the loop was forgotten
    actors_->followers.erase(id);
    heard = {id, nullptr, death_of(down.reason)};
  };
  const auto on_timer = [&](timer_atom, std::uint64_t number) {
    rang = rang || number == actors_->timers;
  };
  while (!heard) {
    rang = false;
    const Duration left = until - std::min(until, steady_now());
    if (left == Duration::zero()) {
      bool nothing = false;
      self->receive(
          on_events, on_death, on_timer,
          caf::after(std::chrono::seconds(0)) >> [&] { nothing = true; });
      if (nothing) return std::nullopt;
      continue;
    }
    // A timeout of receive() would follow the wall clock, which may be changed.
    if (until != Time::max())
      caf::delayed_anon_send(caf::actor_cast<caf::actor>(self), std::min(left, kLongestTimer),
                             timer_atom::value, ++actors_->timers);
    while (!heard && !rang) self->receive(on_events, on_death, on_timer);
  }
  return heard;
}

}  // namespace troupe::loops
