/// LoopController: what controls LoopActors hears of them here, without asking them again and again.
///
///     LoopController<int> loops;
///     loops.follow(7, [counter] { return counter.call<&Counter::take>(); });
///     while (auto heard = loops.next(deadline))
///       if (heard->death) say(heard->from, *heard->death);
///       else for (int event : heard->events) …
///
/// Each followed loop has an actor of CAF in this process that keeps one take() open. Its end is
/// the death notice, and a delayed message is the deadline. Loops that wait cost nothing.
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
/// A take() under way, and how its value is read when it is there.
struct Asked {
  std::function<void(std::function<void()> told)> notify;  ///< as notify_when_ready()
  std::function<std::shared_ptr<void>()>
      read;  ///< never blocks; throws the error of the loop's end
};
using Ask = std::function<Asked()>;

/// LoopController without its types.
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

/// One thread. Throws Unavailable, by its constructor, when the process gets no more threads.
template <class Event>
class LoopController {
 public:
  struct Heard {
    int from = 0;
    std::vector<Event> events;   ///< in their order; empty with a death
    std::optional<Error> death;  ///< why nothing comes from there any more
  };

  /// Hears from now on what a loop emits; `take` calls LoopActor::take() of it, on another thread.
  /// Precondition: nothing else is followed by this number.
  void follow(int id, std::function<Ref<std::vector<Event>>()> take) {
    followers_.follow(id, [take = std::move(take)] {
      const Ref<std::vector<Event>> taken = take();
      return loops::Asked{
          [taken](std::function<void()> told) { notify_when_ready(taken, std::move(told)); },
          [taken] { return std::make_shared<std::vector<Event>>(Context::current().get(taken)); }};
    });
  }
  /// Hears nothing more of it, not even what has arrived. Does nothing for who is not followed.
  void forget(int id) { followers_.forget(id); }
  /// The next news. Blocks until there is one, or until then: nothing then. A time that has passed
  /// gives what is there.
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
