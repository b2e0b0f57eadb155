/// How a link opens: the lower rank connects to the other's door; the higher rank waits until its
/// own door has the connection.
#pragma once

#include "troupe/actors/collective/tcp/internal/wire.hpp"
#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/fd.hpp"
#include "troupe/runtime/base/result.hpp"
#include "troupe/runtime/base/secret.hpp"

#include <netinet/in.h>
#include <poll.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

namespace troupe::collective::internal {

/// Sets the buffers of a socket; 0 leaves the system's. A listener's connections inherit them.
void set_buffers(int fd, int bytes) noexcept;
void send_at_once(int fd) noexcept;  ///< TCP_NODELAY
/// Returns whether a call that failed is to be made again, after poll(2).
bool would_wait(int error) noexcept;

class Opening {
 public:
  Opening() = default;
  Opening(const Opening&) = delete;
  Opening& operator=(const Opening&) = delete;
  virtual ~Opening();
  /// Goes on without waiting. Returns nothing while it has not ended; then once the connection,
  /// whose other end has proven the key, or worker_died or unavailable.
  virtual std::optional<Result<Fd>> advance() = 0;
  virtual pollfd watched() const noexcept = 0;
};

/// Connects. While the door refuses, or closes the connection before it has proven anything, it
/// tries again with the same bytes. After a first connection, a door that refuses has closed.
class Connector final : public Opening {
 public:
  struct Target {
    int rank = 0, peer = 0;
    std::string address;  ///< of the peer's door, for the texts
    sockaddr_in at{};
    int buffer = 0;
    Time deadline;
  };
  /// `back`: the key of what the peer sends.
  Connector(Target target, const Hello& hello, Secret<32> back);
  std::optional<Result<Fd>> advance() override;
  pollfd watched() const noexcept override;

 private:
  enum class Step : std::uint8_t { pausing, connecting, proving };
  std::optional<Result<Fd>> connect();
  std::optional<Result<Fd>> await_connection();
  std::optional<Result<Fd>> not_connected(int error);
  std::optional<Result<Fd>> prove();
  std::optional<Result<Fd>> again(const std::string& why);
  Error failed(Code code, const std::string& why) const;
  Error unreachable(const std::string& why) const;

  Target target_;
  Hello hello_;
  Secret<32> back_;
  Fd fd_;
  Step step_ = Step::pausing;
  Time again_at_;  ///< the end of a pause
  unsigned failures_ = 0;
  bool was_connected_ = false;
  std::string last_failure_ = "no answer";
  std::size_t sent_ = 0, come_ = 0;  ///< bytes of the hello, of the peer's proof
  Proof proof_{};
};

/// Carries a proven connection from the door's thread to a link. Any thread.
class Handover {
 public:
  /// Throws Unavailable when the system has no descriptor.
  Handover();
  int watched() const noexcept { return event_.get(); }  ///< readable after give()
  void give(Fd connection);
  Fd take();  ///< empty before give()

 private:
  Fd event_;
  std::mutex mutex_;
  Fd connection_;
};

/// Waits for a handover. It has no deadline, since groups have one.
class Awaiting final : public Opening {
 public:
  explicit Awaiting(std::shared_ptr<Handover> handover) : handover_(std::move(handover)) {}
  std::optional<Result<Fd>> advance() override;
  pollfd watched() const noexcept override { return {handover_->watched(), POLLIN, 0}; }

 private:
  std::shared_ptr<Handover> handover_;
};

}  // namespace troupe::collective::internal
