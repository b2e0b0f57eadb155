#include "troupe/tune/internal/process_state.hpp"

#include "troupe/runtime/base/standard_descriptors.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <cstdlib>
#include <cstring>

namespace troupe::tune {
namespace {

constexpr int kSignals = 64;

std::map<std::string, std::string> environment_now() {
  std::map<std::string, std::string> variables;
  for (char** each = environ; each != nullptr && *each != nullptr; ++each) {
    const char* equals = std::strchr(*each, '=');
    if (equals != nullptr)
      variables.emplace(std::string(*each, static_cast<std::size_t>(equals - *each)), equals + 1);
  }
  return variables;
}

void restore_environment(const std::map<std::string, std::string>& before) {
  const std::map<std::string, std::string> now = environment_now();
  if (now == before) return;
  for (const auto& [name, value] : now)
    if (before.count(name) == 0) ::unsetenv(name.c_str());
  for (const auto& [name, value] : before) {
    const auto found = now.find(name);
    if (found == now.end() || found->second != value) ::setenv(name.c_str(), value.c_str(), 1);
  }
}

}  // namespace

ProcessState::ProcessState()
    : environment_(environment_now()),
      folder_(make_fd(::open(".", O_PATH | O_DIRECTORY | O_CLOEXEC))),
      umask_(::umask(0)),
      c_locale_(std::setlocale(LC_ALL, nullptr)) {
  ::umask(umask_);
  actions_.resize(kSignals);
  for (int signal = 1; signal <= kSignals; ++signal)
    ::sigaction(signal, nullptr, &actions_[static_cast<std::size_t>(signal) - 1]);
  ::pthread_sigmask(SIG_SETMASK, nullptr, &blocked_);
  std::fegetenv(&floating_point_);
}

bool ProcessState::restore() const {
  restore_environment(environment_);
  const bool in_folder = folder_ && ::fchdir(folder_.get()) == 0;
  ::umask(umask_);
  // The actions of SIGKILL, SIGSTOP and the C library's own signals cannot be set.
  for (int signal = 1; signal <= kSignals; ++signal)
    ::sigaction(signal, &actions_[static_cast<std::size_t>(signal) - 1], nullptr);
  ::pthread_sigmask(SIG_SETMASK, &blocked_, nullptr);
  std::locale::global(locale_);
  ::uselocale(LC_GLOBAL_LOCALE);
  const bool in_locale = std::setlocale(LC_ALL, c_locale_.c_str()) != nullptr;
  std::fesetenv(&floating_point_);
  return in_folder && in_locale;
}

bool has_child() {
  siginfo_t child{};
  return ::waitid(P_ALL, 0, &child, WEXITED | WNOHANG | WNOWAIT) == 0 || errno != ECHILD;
}

}  // namespace troupe::tune
