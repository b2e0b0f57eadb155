/// This process's connection to its agent: the socket, which carries descriptors, and the ring,
/// which carries the other messages. Knows whether the agent is lost. Serves ClientEngine, under its
/// lock.
///
///     if (const char* why = link.tell(message, payload)) lost(why);   // queued behind a full ring
///     if (const char* why = link.settle()) lost(why);                 // before a frame to a peer
///     if (link.lose(why)) …                                           // the first time only
///
/// Invariants: AGENT-1 Messages go out in order, and none after the loss, which drops those that are
/// queued. AGENT-2 When settle() has returned, all messages so far are in the agent's ring, or no
/// agent reads them: it read nothing for 5 s, or its end of the socket is closed. AGENT-3 The first
/// reason of the loss stays. AGENT-4 No function waits for an agent that is lost, or rings it.
#pragma once

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/error.hpp"
#include "troupe/runtime/client/descriptor_lack.hpp"
#include "troupe/runtime/os/local_socket.hpp"
#include "troupe/runtime/ring/channel.hpp"
#include "troupe/runtime/wire/messages.hpp"

#include <atomic>
#include <cstdint>
#include <utility>
#include <vector>

namespace troupe::client {

class AgentLink {
 public:
  void connect(Fd socket) { socket_ = os::LocalSocket(std::move(socket)); }
  /// Opens the ring with the descriptors of Welcome. Throws Unavailable, and the ring's errors.
  void attach(std::vector<Fd> descriptors, std::uint32_t agent_slot, std::uint32_t my_slot);

  os::LocalSocket& socket() noexcept { return socket_; }
  const os::LocalSocket& socket() const noexcept { return socket_; }
  ring::Channel& channel() noexcept { return channel_; }
  /// Returns the slot of the agent's channel on our doorbell.
  std::uint32_t slot() const noexcept { return slot_; }
  /// Of the packet that comes next over the socket.
  DescriptorLack& lack() noexcept { return lack_; }
  const DescriptorLack& lack() const noexcept { return lack_; }
  /// The socket can be read. Any thread.
  void note_readable() noexcept { is_readable_.store(true, std::memory_order_release); }
  bool take_readable() noexcept {
    return is_readable_.load(std::memory_order_acquire) &&
           is_readable_.exchange(false, std::memory_order_acq_rel);
  }

  /// Sends a message. Returns why the agent counts as lost from here on; nullptr: it does not.
  const char* tell(const wire::NodeMessage& message, BlobView payload);
  /// Waits until the agent's ring has taken all messages that are queued for it. Returns as tell()
  /// does. The agent never blocks, so this is short.
  const char* settle();
  /// Closes this side of the socket, and waits `most` at most until the agent closes its side. Drops
  /// what arrives meanwhile.
  void await_close(Duration most);

  /// Any thread.
  bool is_lost() const noexcept { return is_lost_.load(std::memory_order_relaxed); }
  const Error& why_lost() const noexcept { return why_lost_; }
  /// Notes that the agent is lost, and drops what is queued for it. Returns false when the loss was
  /// known.
  bool lose(const Error& why);

 private:
  os::LocalSocket socket_;
  ring::Channel channel_;
  std::uint32_t slot_ = 0;
  wire::FrameWriter writer_;
  DescriptorLack lack_;
  std::atomic<bool> is_readable_{true};
  std::atomic<bool> is_lost_{false};
  Error why_lost_{Code::unavailable, ""};
};

}  // namespace troupe::client
