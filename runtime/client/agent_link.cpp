#include "troupe/runtime/client/agent_link.hpp"

#include "troupe/runtime/base/wait.hpp"

#include <memory>
#include <utility>

namespace troupe::client {
namespace {

/// The number of frames that may wait for the agent before this process waits, too. Far below the
/// number at which a channel refuses frames.
constexpr std::size_t kMostWaiting = 1 << 16;
static_assert(kMostWaiting < ring::kMaxOverflow);
/// The agent reads its ring within this time.
constexpr Duration kReads = std::chrono::seconds(5);

}  // namespace

void AgentLink::attach(std::vector<Fd> descriptors, std::uint32_t agent_slot,
                       std::uint32_t my_slot) {
  if (descriptors.size() != 3)
    throw Unavailable(Code::unavailable, "the node's welcome came without its descriptors");
  auto memory = ring::ChannelMemory::attach(std::move(descriptors[0])).value();
  auto bell = std::make_shared<ring::Doorbell>(
      ring::Doorbell::attach(std::move(descriptors[1]), std::move(descriptors[2])).value());
  channel_ = ring::Channel(std::move(memory), 1, std::move(bell), agent_slot);
  channel_.close_fd();
  slot_ = my_slot;
}

const char* AgentLink::tell(const wire::NodeMessage& message, BlobView payload) {
  if (is_lost()) return nullptr;
  if (!channel_.send(writer_.encode(message), payload))
    return "the queue to the node's agent is full";
  return channel_.waiting() >= kMostWaiting ? settle() : nullptr;
}

const char* AgentLink::settle() {
  if (is_lost() || channel_.waiting() == 0) return nullptr;
  std::size_t waiting = channel_.waiting();
  Time deadline = steady_now() + kReads;
  while (!channel_.flush()) {
    const Time now = steady_now();
    if (channel_.waiting() < waiting) {
      waiting = channel_.waiting();
      deadline = now + kReads;
    }
    if (now >= deadline) return "the node's agent did not read its ring for 5 s";
    if (socket_.is_hung_up()) {  // its ring may say why: who reads that notes the loss
      channel_.take_waiting();
      break;
    }
    channel_.peer_doorbell().wake_sleeper();
    yield();
  }
  return nullptr;
}

void AgentLink::await_close(Duration most) {
  if (is_lost()) return;
  (void)socket_.flush();
  socket_.end_sending();
  const Time deadline = steady_now() + most;
  std::vector<std::byte> buffer(os::kMaxPacket);
  for (;;) {
    const auto received = socket_.receive(buffer);
    if (received.kind == os::Received::Kind::closed) return;
    if (received.kind == os::Received::Kind::packet) continue;
    if (received.kind == os::Received::Kind::starved) {  // nothing reads it any more
      socket_.skip();
      continue;
    }
    const Duration left = deadline - steady_now();
    pollfd entry{socket_.fd(), POLLIN, 0};
    if (left <= Duration(0) || wait_for({&entry, 1}, left) == 0) return;
  }
}

bool AgentLink::lose(const Error& why) {
  if (is_lost_.exchange(true, std::memory_order_relaxed)) return false;
  why_lost_ = why;
  channel_.take_waiting();
  lack_.over();
  return true;
}

}  // namespace troupe::client
