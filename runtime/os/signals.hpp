/// The ignored and blocked signals that a process was started with.
///
/// A zygote runs the user's program once more, so it starts as the driver did: with the same
/// signals ignored and blocked. The library records the driver's state when it is loaded, before
/// any code of the program. It passes that state to each process that is started for the driver,
/// through an agent that may itself ignore other signals.
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

/// Returns the present state of this process and the calling thread.
SignalState current_signals() noexcept;
/// Applies a state. Signals that are not ignored get the default action; handlers are removed.
void apply_signals(const SignalState& state) noexcept;
/// Converts the bits to a set for sigprocmask and the like.
sigset_t signal_set(std::uint64_t signals) noexcept;

/// Encodes a state as two hexadecimal numbers, like "1000,0"; and decodes it.
std::string signals_text(const SignalState& state);
std::optional<SignalState> parse_signals(std::string_view text) noexcept;

/// The signal settings of a process that forks workers. It ignores SIGINT, SIGQUIT and SIGPIPE,
/// because the driver handles Ctrl-C, and it blocks SIGCHLD to wait for its children. restore()
/// takes the changes back in each fork.
class ForkerSignals {
 public:
  ForkerSignals() noexcept;
  /// Restores the settings from before the constructor. For the forked child.
  void restore() const noexcept;
  /// The set with SIGCHLD, which is blocked.
  const sigset_t& children() const noexcept { return children_; }

 private:
  static constexpr int kChanged[] = {SIGCHLD, SIGINT, SIGQUIT, SIGPIPE};
  struct sigaction before_[4]{};
  sigset_t mask_before_{};
  sigset_t children_{};
};

}  // namespace troupe::os
