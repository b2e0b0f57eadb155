#include "troupe/runtime/agent/reserver.hpp"

#include "troupe/runtime/agent/internal/quiet_thread.hpp"

#include <utility>

namespace troupe::agent {

Reserver::Reserver(objectstore::Client& client, std::function<void()> wake)
    : client_(client), wake_(std::move(wake)) {}

Reserver::~Reserver() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
    changed_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

void Reserver::ask(std::uint64_t pull, std::uint64_t bytes) {
  if (!thread_.joinable()) thread_ = quiet_thread("troupe-reserve", [this] { run(); });
  const std::lock_guard lock(mutex_);
  wishes_.push_back({pull, bytes});
  changed_.notify_one();
}

std::vector<Reserver::Answer> Reserver::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(answers_, {});
}

void Reserver::run() {
  while (true) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return over_ || !wishes_.empty(); });
    if (over_) return;
    const Wish wish = wishes_.front();
    wishes_.pop_front();
    lock.unlock();
    Answer answer{wish.pull, wish.bytes, client_.create(wish.bytes)};
    lock.lock();
    answers_.push_back(std::move(answer));
    lock.unlock();
    wake_();
  }
}

}  // namespace troupe::agent
