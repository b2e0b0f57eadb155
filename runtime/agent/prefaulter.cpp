#include "troupe/runtime/agent/prefaulter.hpp"

#include "troupe/runtime/agent/internal/quiet_thread.hpp"

#include <sys/resource.h>
#include <unistd.h>

namespace troupe::agent {
namespace {

constexpr Bytes kPiece{128 << 10};
constexpr int kNicest = 19;

}  // namespace

Prefaulter::Prefaulter(objectstore::Host& host)
    : host_(host), thread_(quiet_thread("troupe-prefault", [this] { run(); })) {}

Prefaulter::~Prefaulter() {
  over_.store(true, std::memory_order_relaxed);
  thread_.join();
}

void Prefaulter::run() noexcept {
  setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kNicest);  // of this thread alone
  while (!over_.load(std::memory_order_relaxed) && host_.prefault(kPiece)) {
  }
}

}  // namespace troupe::agent
