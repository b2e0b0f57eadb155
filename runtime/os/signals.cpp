#include "troupe/runtime/os/signals.hpp"

#include <pthread.h>
#include <charconv>

namespace troupe::os {
namespace {

constexpr int kLast = 64;

constexpr std::uint64_t bit(int signal) noexcept {
  return std::uint64_t{1} << (signal - 1);
}

}  // namespace

SignalState current_signals() noexcept {
  SignalState state;
  sigset_t blocked;
  sigemptyset(&blocked);
  pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  for (int signal = 1; signal <= kLast; ++signal) {
    struct sigaction action{};
    if (sigaction(signal, nullptr, &action) != 0) continue;  // a signal that the C library reserves
    if ((action.sa_flags & SA_SIGINFO) == 0 && action.sa_handler == SIG_IGN)
      state.ignored |= bit(signal);
    if (sigismember(&blocked, signal) == 1) state.blocked |= bit(signal);
  }
  return state;
}

void apply_signals(const SignalState& state) noexcept {
  for (int signal = 1; signal <= kLast; ++signal) {
    if (signal == SIGKILL || signal == SIGSTOP) continue;
    struct sigaction action{};
    action.sa_handler = (state.ignored & bit(signal)) != 0 ? SIG_IGN : SIG_DFL;
    sigaction(signal, &action, nullptr);
  }
  const sigset_t blocked = signal_set(state.blocked);
  pthread_sigmask(SIG_SETMASK, &blocked, nullptr);
}

sigset_t signal_set(std::uint64_t signals) noexcept {
  sigset_t set;
  sigemptyset(&set);
  for (int signal = 1; signal <= kLast; ++signal)
    if ((signals & bit(signal)) != 0) sigaddset(&set, signal);
  return set;
}

std::string signals_text(const SignalState& state) {
  std::array<char, 40> text;
  char* end = std::to_chars(text.begin(), text.end(), state.ignored, 16).ptr;
  *end++ = ',';
  end = std::to_chars(end, text.end(), state.blocked, 16).ptr;
  return std::string(text.begin(), end);
}

std::optional<SignalState> parse_signals(std::string_view text) noexcept {
  SignalState state;
  const char* begin = text.data();
  const char* end = begin + text.size();
  const auto ignored = std::from_chars(begin, end, state.ignored, 16);
  if (ignored.ec != std::errc{} || ignored.ptr == end || *ignored.ptr != ',') return std::nullopt;
  const auto blocked = std::from_chars(ignored.ptr + 1, end, state.blocked, 16);
  if (blocked.ec != std::errc{} || blocked.ptr != end) return std::nullopt;
  return state;
}

void ignore_group_signals() noexcept {
  sigset_t group;
  sigemptyset(&group);
  for (const int signal : kGroupSignals) {
    std::signal(signal, SIG_IGN);
    sigaddset(&group, signal);
  }
  pthread_sigmask(SIG_UNBLOCK, &group, nullptr);
}

void outlive_group_signals() noexcept {
  for (const int signal : kGroupSignals) {
    struct sigaction action{};
    if (sigaction(signal, nullptr, &action) != 0) continue;
    if ((action.sa_flags & SA_SIGINFO) != 0 || action.sa_handler != SIG_DFL) continue;
    action.sa_handler = [](int) {};
    action.sa_flags = SA_RESTART;
    sigaction(signal, &action, nullptr);
  }
}

ForkerSignals::ForkerSignals() noexcept {
  sigemptyset(&children_);
  sigaddset(&children_, SIGCHLD);
  sigprocmask(SIG_BLOCK, &children_, &mask_before_);
  for (std::size_t i = 0; i < kChanged; ++i) {
    struct sigaction action{};
    action.sa_handler = changed(i) == SIGCHLD ? SIG_DFL : SIG_IGN;
    sigaction(changed(i), &action, &before_[i]);
  }
}

void ForkerSignals::restore() const noexcept {
  for (std::size_t i = 0; i < kChanged; ++i) sigaction(changed(i), &before_[i], nullptr);
  sigprocmask(SIG_SETMASK, &mask_before_, nullptr);
}

}  // namespace troupe::os
