#include "troupe/runtime/base/memory_file.hpp"

#include <pthread.h>
#include <unistd.h>
#include <cerrno>
#include <csignal>
#include <ctime>

namespace troupe {

bool resize_memory(int fd, std::uint64_t bytes) noexcept {
  sigset_t too_large, before, waiting;
  sigemptyset(&too_large);
  sigaddset(&too_large, SIGXFSZ);
  sigemptyset(&waiting);
  pthread_sigmask(SIG_BLOCK, &too_large, &before);
  sigpending(&waiting);
  const bool done = ftruncate(fd, static_cast<off_t>(bytes)) == 0;
  const int why = errno;
  // Take back the SIGXFSZ of this ftruncate(). One that was pending before is the program's own.
  const timespec at_once{};
  if (!done && why == EFBIG && sigismember(&waiting, SIGXFSZ) == 0)
    sigtimedwait(&too_large, nullptr, &at_once);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = why;
  return done;
}

const char* memory_remedy(int error) noexcept {
  switch (error) {
    case EMFILE:
    case ENFILE: return "raise the limit of open files (ulimit -n)";
    case EFBIG: return "raise the limit of a file's size (ulimit -f), which holds for memory too";
    case EPERM: return "the memory is sealed";
    case ENOSPC:
    case ENOMEM:
      return "free objects, or give the node more memory (cgroup limit, or ulimit -v, RLIMIT_AS)";
    default: return "see the system's log";
  }
}

}  // namespace troupe
