#include "troupe/runtime/control/restart_pace.hpp"

#include "troupe/runtime/base/back_off.hpp"

#include <algorithm>

namespace troupe::control {

void RestartPace::begins() noexcept {
  ++count_;
  alive_since_.reset();
}

Duration RestartPace::ended(const RestartPaceOptions& options, Time now, std::int64_t limit,
                            bool asked) noexcept {
  if (alive_since_ && now - *alive_since_ >= options.lived)
    short_lives_ = 0;
  else if (!asked)
    ++short_lives_;
  alive_since_.reset();
  Duration pause = Duration::zero();
  if (!asked && short_lives_ > 1)
    pause = back_off(short_lives_ - 1, options.first, options.longest);
  // Few restarts: shorten the pauses, so that all of them together take at most `storm`.
  if (limit > 0 && limit <= options.storm / options.first)
    pause = std::min(pause, Duration(options.storm / limit));
  // Restarts without limit: at most one life per `first`, also after long lives.
  if (limit < 0 && next_at_) pause = std::max(pause, *next_at_ + options.first - now);
  next_at_ = now + pause;
  return pause;
}

std::string RestartPace::describe_end(Time now) const {
  if (!alive_since_) return "ended in its constructor";
  return "ended " + pause_text(now - *alive_since_) + " after its constructor";
}

std::string ordinal(std::uint32_t number) {
  const std::uint32_t last = number % 10;
  const bool teen = number / 10 % 10 == 1;
  const char* ending = teen || last == 0 || last > 3 ? "th"
                       : last == 1                   ? "st"
                       : last == 2                   ? "nd"
                                                     : "rd";
  return std::to_string(number) + ending;
}

}  // namespace troupe::control
