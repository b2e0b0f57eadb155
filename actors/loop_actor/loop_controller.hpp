/// LoopController: receives the events and deaths of LoopActors in the process that controls them,
/// without polling.
///
///     LoopController<int> loops;
///     loops.follow(7, [counter] { return counter.call<&Counter::take>(); });
///     while (auto heard = loops.next(deadline))
///       if (heard->death) say(heard->from, *heard->death);
///       else for (int event : heard->events) …
///
/// Each followed loop has a CAF actor in this process, its follower, which keeps one take() open.
/// The end of the follower is the death notice, and a delayed message is the deadline. Loops that
/// wait cost no CPU.
#pragma once

#include "troupe/runtime/async_event.hpp"
#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/error.hpp"
#include "troupe/runtime/context.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace troupe {

namespace loops {
/// A take() in progress: how to be notified of its end, and how to read its value then.
struct Asked {
  std::function<void(std::function<void()> told)> notify;  ///< as notify_when_ready()
  std::function<std::shared_ptr<void>()>
      read;  ///< never blocks; throws the error of the loop's end
};
using Ask = std::function<Asked()>;

/// LoopController without the types of its events, so that CAF stays out of the header.
class TROUPE_API Followers {
 public:
  struct Heard {
    int from = 0;
    std::shared_ptr<void> events;
    std::optional<Error> death;
  };
  Followers();
  Followers(const Followers&) = delete;
  Followers& operator=(const Followers&) = delete;
  ~Followers();
  void follow(int id, Ask ask);
  void forget(int id);
  std::optional<Heard> next(Time until);

 private:
  struct Actors;
  std::unique_ptr<Actors> actors_;
};
}  // namespace loops

/// Follows loops by numbers that the caller chooses. One thread uses it. The constructor throws
/// Unavailable when the system gives the process no more threads.
template <class Event>
class LoopController {
 public:
  struct Heard {
    int from = 0;
    std::vector<Event> events;   ///< in their order; empty with a death
    std::optional<Error> death;  ///< why no more events come from this loop
  };

  /// Receives the events of a loop from now on. `take` calls the loop's LoopActor::take(); it runs
  /// on another thread. Precondition: no other loop is followed with this number.
  void follow(int id, std::function<Ref<std::vector<Event>>()> take) {
    followers_.follow(id, [take = std::move(take)] {
      const Ref<std::vector<Event>> taken = take();
      return loops::Asked{
          [taken](std::function<void()> told) { notify_when_ready(taken, std::move(told)); },
          [taken] { return std::make_shared<std::vector<Event>>(Context::current().get(taken)); }};
    });
  }
  /// Ends following a loop. Events that have arrived are dropped. Does nothing for a number that is
  /// not followed.
  void forget(int id) { followers_.forget(id); }
  /// Returns the next events of a loop, or its death. Blocks until there are some, or until
  /// `until`; then returns nullopt. A time that has passed does not block.
  std::optional<Heard> next(Time until) {
    std::optional<loops::Followers::Heard> heard = followers_.next(until);
    if (!heard) return std::nullopt;
    Heard typed{heard->from, {}, std::move(heard->death)};
    if (heard->events)
      typed.events = std::move(*static_cast<std::vector<Event>*>(heard->events.get()));
    return typed;
  }

 private:
  loops::Followers followers_;
};

}  // namespace troupe
