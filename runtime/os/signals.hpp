/// The dispositions and the mask of signals that a process was started with.
///
/// A zygote runs the user's program once more, so it starts as the driver did: with the same
/// signals ignored and blocked. The driver's are recorded when the library is loaded, before any
/// code of the program's own, and given to each process that is started for it. What lies between,
/// an agent that ignores what it likes, does not matter.
///
///     const SignalState& given = inherited_signals();      // travels with spawn()
///     apply_signals(given);                                // in the zygote, when it is loaded
#pragma once

#include <csignal>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace troupe::os {

/// Bit n - 1 stands for signal n.
struct SignalState {
  std::uint64_t ignored = 0;
  std::uint64_t blocked = 0;  ///< in the thread that loaded the library
  friend bool operator==(const SignalState&, const SignalState&) = default;
};

/// Of this process, and the calling thread, right now.
SignalState current_signals() noexcept;
/// All that are not ignored are handled by default; a handler is lost.
void apply_signals(const SignalState& state) noexcept;
/// As a set for sigprocmask and the like.
sigset_t signal_set(std::uint64_t signals) noexcept;

/// Two numbers in hexadecimal, like "1000,0".
std::string signals_text(const SignalState& state);
std::optional<SignalState> parse_signals(std::string_view text) noexcept;

/// What a process that forks workers changes of its own, and takes back in each fork: Ctrl-C and a
/// closed terminal are the driver's affair, and its children are to be waited for.
class ForkerSignals {
 public:
  ForkerSignals() noexcept;
  /// As it was before; in the child.
  void restore() const noexcept;
  /// SIGCHLD, which is blocked.
  const sigset_t& children() const noexcept { return children_; }

 private:
  static constexpr int kChanged[] = {SIGCHLD, SIGINT, SIGQUIT, SIGPIPE};
  struct sigaction before_[4]{};
  sigset_t mask_before_{};
  sigset_t children_{};
};

}  // namespace troupe::os
