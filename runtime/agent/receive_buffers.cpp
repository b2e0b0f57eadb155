#include "troupe/runtime/agent/receive_buffers.hpp"

#include <utility>

namespace troupe::agent {

ReceiveBuffers::ReceiveBuffers(objectstore::Client& client, std::function<void()> wake)
    : client_(client), wake_(std::move(wake)) {}

ReceiveBuffers::~ReceiveBuffers() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
    changed_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

void ReceiveBuffers::ask(PullId pull, std::uint64_t bytes) {
  if (!thread_.joinable()) thread_ = SignalMaskedThread("troupe-reserve", [this] { run(); });
  const std::lock_guard lock(mutex_);
  requests_.push_back({pull, bytes});
  changed_.notify_one();
}

std::vector<ReceiveBuffers::Answer> ReceiveBuffers::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(answers_, {});
}

void ReceiveBuffers::run() {
  while (true) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return over_ || !requests_.empty(); });
    if (over_) return;
    const Request request = requests_.front();
    requests_.pop_front();
    lock.unlock();
    Answer answer{request.pull, request.bytes, client_.create(request.bytes)};
    lock.lock();
    answers_.push_back(std::move(answer));
    lock.unlock();
    wake_();
  }
}

}  // namespace troupe::agent
