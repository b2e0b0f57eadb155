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

#include <array>
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

/// The signals that a terminal, a user or a batch system sends to every process of a job. The
/// driver alone decides what they mean; the runtime's other processes end with the driver.
inline constexpr std::array kGroupSignals{SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};

/// Makes an agent or control ignore the group's signals, and unblocks those that spawn() blocked
/// until now.
void ignore_group_signals() noexcept;
/// Lets a worker outlive the group's signals that would end it: they get a handler that does
/// nothing. Handlers and ignored signals of the program stay. A command that a task starts has the
/// default action again, since exec takes handlers away.
void outlive_group_signals() noexcept;

/// The signal settings of a process that forks workers. It ignores SIGPIPE and the group's signals,
/// and it blocks SIGCHLD to wait for its children. restore() takes the changes back in each fork.
class ForkerSignals {
 public:
  ForkerSignals() noexcept;
  /// Restores the settings from before the constructor. For the forked child.
  void restore() const noexcept;
  /// The set with SIGCHLD, which is blocked.
  const sigset_t& children() const noexcept { return children_; }

 private:
  static constexpr std::size_t kChanged = kGroupSignals.size() + 2;
  static constexpr int changed(std::size_t i) noexcept {
    return i < kGroupSignals.size() ? kGroupSignals[i] : i == kChanged - 1 ? SIGCHLD : SIGPIPE;
  }
  struct sigaction before_[kChanged]{};
  sigset_t mask_before_{};
  sigset_t children_{};
};

}  // namespace troupe::os
